"""Pools for RISC-V vectors."""
