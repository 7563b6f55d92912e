"""The loops that the register tiles of crt/include/mt_dsp_*.h have."""

UNROLLS = (28, 16, 8)  # steps of k an iteration
