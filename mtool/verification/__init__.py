"""Comparison of a model on a device with its reference: whole, by layer, and with its rounding ties."""
