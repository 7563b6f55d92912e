"""The build stage: it builds firmware from a project folder, and reads its sizes from the ELF file."""

from mtool.device.build.build import Built, build, builds_whole_framework, firmware_of, is_up_to_date, plan
from mtool.device.build.size import Size, measure

__all__ = ["Built", "Size", "build", "builds_whole_framework", "firmware_of", "is_up_to_date", "measure", "plan"]
