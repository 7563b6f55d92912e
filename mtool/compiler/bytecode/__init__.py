"""Bytecode: a model as calls of the firmware's parametric kernels, in place of machine code. See docs/bytecode.md."""
