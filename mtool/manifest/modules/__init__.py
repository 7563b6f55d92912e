"""Modules: models that firmware loads at run time, from one signed file. docs/modules.md has the format."""
