"""The loops that crt/include/mt_dsp*.h has."""

UNROLLS = (28, 16, 8)  # steps of k an iteration
