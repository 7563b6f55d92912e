"""The flash stage: a built firmware is written into a board, by one of the tools that can."""

from mtool.device.flash.flashing import Flashed, all_runners, choose, flash, job_of, plan, runners_of
from mtool.device.flash.runner import Job, Runner

__all__ = ["Flashed", "Job", "Runner", "all_runners", "choose", "flash", "job_of", "plan", "runners_of"]
