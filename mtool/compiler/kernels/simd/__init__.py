"""Weighted sums for a computer, in vectors of floats."""
