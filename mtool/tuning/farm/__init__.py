"""A board farm: workers of a Dask cluster hold the boards, the process that tunes asks them and writes the log."""
