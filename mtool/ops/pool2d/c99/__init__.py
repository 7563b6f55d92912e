"""Pools in portable C."""
