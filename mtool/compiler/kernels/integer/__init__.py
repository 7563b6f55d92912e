"""Cores that have nothing but a multiplier of integers: register tiles of 8-bit products."""
