"""Published MLPerf Tiny results whose code is also published, for comparison with the cycle estimate."""
