"""Tuning results: the log, the measured tasks, and the schedules that a compilation takes from it."""
