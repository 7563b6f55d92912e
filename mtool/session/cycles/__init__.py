"""Estimate the cycles of an inference from the instructions that really run; docs/cycles.md has the assumptions."""

from mtool.session.cycles.cores import Core, cores
from mtool.session.cycles.estimate import KINDS, Estimate, Part, cores_for, estimate

__all__ = ["KINDS", "Core", "Estimate", "Part", "cores", "cores_for", "estimate"]
