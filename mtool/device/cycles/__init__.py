"""Estimate the cycles of an inference from the instructions that really run; docs/cycles.md has the assumptions."""

from mtool.device.cycles.cores import Core, cores
from mtool.device.cycles.estimate import KINDS, Estimate, Part, cores_for, estimate
from mtool.device.cycles.flash import Clock

__all__ = ["KINDS", "Clock", "Core", "Estimate", "Part", "cores", "cores_for", "estimate"]
