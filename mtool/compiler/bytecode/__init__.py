"""Bytecode: a model as calls of the firmware's parametric kernels instead of machine code. See docs/bytecode.md."""
