"""Loops in portable C."""
