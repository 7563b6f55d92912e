"""Softmax in portable C."""
