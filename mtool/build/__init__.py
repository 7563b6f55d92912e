"""The build stage: a project folder becomes firmware, whose sizes are read from the ELF file."""

from mtool.build.build import Built, build, firmware_of, plan
from mtool.build.size import Size, measure

__all__ = ["Built", "Size", "build", "firmware_of", "measure", "plan"]
