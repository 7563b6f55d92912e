"""Portable C."""
