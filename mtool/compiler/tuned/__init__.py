"""What tuning has found: its log, the tasks that it measures, and the schedules that a compilation takes from it."""
