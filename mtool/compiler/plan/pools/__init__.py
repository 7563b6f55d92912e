"""Memories of a board: what lies in which pool, tensors and constants alike."""
