"""Modules: models that firmware loads at run time, from one signed file (crt/include/mt_module.h)."""
