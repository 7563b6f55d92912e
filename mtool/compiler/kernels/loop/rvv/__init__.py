"""Loops for RISC-V vectors."""
