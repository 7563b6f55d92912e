"""Convolutions for SIMD32 (Armv7E-M, Armv8-M with DSP)."""
