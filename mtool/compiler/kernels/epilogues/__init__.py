"""Epilogues: what a kernel does with each of its results before it stores it."""
