"""The flash stage: write built firmware to a board with one of the supported tools."""

from mtool.device.flash.flashing import FlashResult, all_runners, choose, flash, job_of, plan, runners_of
from mtool.device.flash.runner import Job, Runner

__all__ = ["FlashResult", "Job", "Runner", "all_runners", "choose", "flash", "job_of", "plan", "runners_of"]
