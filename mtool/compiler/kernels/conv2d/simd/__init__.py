"""Convolutions for a computer, in vectors of floats."""
