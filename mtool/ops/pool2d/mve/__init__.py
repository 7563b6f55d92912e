"""Pools for Helium."""
