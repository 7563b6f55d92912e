"""Dense layers for RISC-V vectors."""
