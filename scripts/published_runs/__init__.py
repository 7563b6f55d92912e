"""Published runs of MLPerf Tiny whose code is published too: what the estimate of cycles is held against."""
