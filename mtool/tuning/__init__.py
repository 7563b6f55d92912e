"""Tuning: measure schedules on a board, and remember the fastest."""
