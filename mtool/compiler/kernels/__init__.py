"""The internal operators and what their C has in common: one package an operator, the rest knows none of them.

Schedules, targets, knobs; the C text of operands and epilogues; quantized arithmetic. What belongs to one instruction
set lies in a folder named as in each operator: c99, integer, f32, dsp (SIMD32), mve (Helium).
"""
