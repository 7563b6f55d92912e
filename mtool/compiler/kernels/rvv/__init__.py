"""RISC-V vectors: how their sums become int8."""
