"""SIMD32 (Armv7E-M, Armv8-M with DSP): packed weights and tiles of two 16-bit products an instruction."""
