"""Convolutions for Helium."""
