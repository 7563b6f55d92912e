"""The flash stage: a built firmware is written into a board, by one of the tools that can."""

from mtool.device.flash.flashing import RUNNERS, Flashed, choose, flash, job_of, plan, runners_of
from mtool.device.flash.runner import Job, Runner

__all__ = ["RUNNERS", "Flashed", "Job", "Runner", "choose", "flash", "job_of", "plan", "runners_of"]
