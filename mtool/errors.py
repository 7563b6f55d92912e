"""The public names of the error tree (`mtool.base.errors`)."""

from mtool.base.errors import *  # noqa: F403
