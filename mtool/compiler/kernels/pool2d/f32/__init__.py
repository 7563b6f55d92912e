"""Pools for Cortex-M with a float32 FPU."""
