"""Convolutions in portable C."""
