"""Convolutions for RISC-V vectors."""
