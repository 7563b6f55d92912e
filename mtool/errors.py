"""The public names of the error tree (`mtool.base.errors`)."""

from mtool.base.errors import (
    BoardError,
    BuildError,
    CommunicationError,
    DeviceError,
    FitError,
    FlashError,
    MismatchError,
    ModelError,
    MtoolError,
    NeedsValues,
    NoAnswerError,
    UsageError,
)

__all__ = [
    "BoardError",
    "BuildError",
    "CommunicationError",
    "DeviceError",
    "FitError",
    "FlashError",
    "MismatchError",
    "ModelError",
    "MtoolError",
    "NeedsValues",
    "NoAnswerError",
    "UsageError",
]
