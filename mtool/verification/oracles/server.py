"""The process in which oracles run: it takes calls from its standard input and answers on its standard output."""

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mtool.base.errors import MtoolError
from mtool.verification.oracles import wire

FUNCTIONS = (
    "evaluator.outputs",
    "layer_loss.of_layers",
    "litert.intermediates",
    "litert.lacking",
    "litert.outputs",
    "ort.outputs",
    "quantizer.prepare",
    "quantizer.quantise",
)
"""The functions that can be called."""


class _Kept(logging.Handler):
    """Keeps what is logged, for the process that has the terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.name, record.levelno, record.getMessage()))


def serve() -> None:
    """Answer calls until the input ends. What a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        kept = _Kept()
        logging.getLogger("mtool").addHandler(kept)
        while True:
            try:
                name, named = wire.read(sys.stdin.buffer)
            except EOFError:
                return
            kept.said = []
            answer = _answer(function_of(name), named)
            for part in wire.parts({**answer, "said": kept.said}):
                answers.write(part)
            answers.flush()


def function_of(name: str) -> Callable[..., Any]:
    """Return a function by its module and its own name ("ort.outputs")."""
    assert name in FUNCTIONS
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"mtool.verification.oracles.{module}"), function)
    return found


def _answer(function: Callable[..., Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a call comes to: its value, an error of mtool's, or the traceback of any other."""
    try:
        return {"value": function(**named)}
    except MtoolError as refused:
        kind = type(refused).__name__
        return {"refused": [kind, refused.what, list(refused.details), refused.hint]}
    except Exception:
        return {"failed": traceback.format_exc()}
