"""Loops with Helium."""
