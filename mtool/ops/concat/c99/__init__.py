"""Concatenation in portable C."""
