"""Helium: vectors, and tiles of them."""
