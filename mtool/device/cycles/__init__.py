"""Estimate the cycles of an inference from the executed instructions; docs/cycles.md has the assumptions."""

from mtool.device.cycles.cores import Core, cores
from mtool.device.cycles.estimate import KINDS, Clock, Estimate, Part, cores_for, estimate

__all__ = ["KINDS", "Clock", "Core", "Estimate", "Part", "cores", "cores_for", "estimate"]
