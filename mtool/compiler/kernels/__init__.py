"""The internal operators, one package each, and what their C has in common.

Common code: schedules, targets, knobs; the C text of operands and epilogues; quantized arithmetic. Code for one
instruction set is in a folder with the same name for all operators: c99, integer, f32, dsp (SIMD32), mve (Helium).
"""
