"""Tuning: measure schedules on a board, and remember the fastest (mtool.tuning.tuning)."""
