"""A board farm: the workers of a Dask cluster hold the boards, the tuning process sends work and writes the log."""
