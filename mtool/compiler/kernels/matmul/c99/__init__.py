"""Batched products in portable C."""
