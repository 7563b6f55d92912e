"""Modules: models that firmware takes at run time, from one signed file. docs/modules.md has the format."""
