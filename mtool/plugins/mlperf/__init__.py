"""MLPerf Tiny: a host that drives a device under test as EEMBC's runner does (mlcommons/tiny, benchmark/runner)."""
