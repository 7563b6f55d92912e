"""The names that options of commands have in Python. Messages name an option as a command does (`--dim batch=1`).

`in_python` writes it as code would (`dims="batch=1"`) in an error that the Python interface raises.
"""

import re
from collections.abc import Collection

from mtool.base.errors import MtoolError

_ARGUMENTS = {
    "arena": "arenas",
    "pool": "pools",
    "dim": "dims",
    "const": "constants",
    "max": "maxima",
    "limit": "limits",
    "state": "states",
    "schedule": "schedules",
    "backend": "backends",
    "option": "template_options",
    "interface-api": "conventions.interface",
    "operators-api": "conventions.operators",
    "executor": "conventions.executor",
    "input": "inputs",
    "flash-command": "Deployment.flash",
    "port": "Deployment.port",
    "probe": "Deployment.probe",
    "power": "Deployment.power",
    "output-dir": "folder",
    "name": "name",
    "io": "io",
    "tls-ca": "Tls.ca",
    "tls-cert": "Tls.certificate",
    "tls-key": "Tls.key",
    "scheduler": "RackAt.scheduler",
    **{
        same: same.replace("-", "_")
        for same in (
            "arena-section", "partial", "optimize", "rounding", "hybrid", "stream", "weights", "tuned", "tolerance",
            "backend-fallback", "portable", "protect", "single-file", "template", "trust-template", "board", "seed",
            "samples", "repeat", "number", "fill", "golden", "atol", "rtol", "key", "counter", "since", "labels",
            "evaluate", "runner", "insecure", "host",
        )
    },
}  # fmt: skip
_WHOLE = {
    "force": 'edits="force"',
    "keep": 'edits="keep"',
    "modules": 'template_options={"modules": "signed"}',
    "module-key": 'template_options={"module_key": ...}',
    "unsigned-modules": 'template_options={"modules": "unsigned"}',
}
_SWITCHES = {"backend-fallback", "portable", "protect", "single-file", "trust-template", "insecure"}

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])\b(?: ('[^']*'|[^\s,;)']*[\w\"}\]]))?")
_COMMAND = re.compile(r"(?<![\w.])(mtool|pip|dask|west) [a-z-]+.*")
_WORDS = (
    r"arena|external|never|always|caller|own|shared|interleaved|aot|graph|graph-host|c|pointers|packed|step|feed|typed|"
    r"values|onnx|tflite|speed|size|balanced|text|written"
)
_VALUE = re.compile(rf".*[=:\d./].*|[A-Z]+|{_WORDS}")


def in_python(error: MtoolError, parameters: Collection[str] = ()) -> None:
    """Name the options in an error as Python does; a command that a line tells to type stays as it is.

    Args:
        error: what to say otherwise.
        parameters: names of the function's own arguments, for options that have the same.
    """
    error.what = _written(error.what, parameters)
    error.details = tuple(_written(line, parameters) for line in error.details)
    error.hint = _written(error.hint, parameters)


def _written(text: str, parameters: Collection[str]) -> str:
    command = _COMMAND.search(text)
    end = command.start() if command else len(text)

    def argument(found: re.Match[str]) -> str:
        option, value = found[1], found[2]
        rest = f" {value}" if value else ""
        if option in _WHOLE:
            return _WHOLE[option] + rest
        own = option.replace("-", "_")
        name = own if own in parameters else _ARGUMENTS.get(option)
        if name is None:
            return found[0]
        if option in _SWITCHES:
            return f"{name}=True{rest}"
        if value and _VALUE.fullmatch(value):
            colon = ":" if value.endswith(":") else ""
            return f'{name}="{value.removesuffix(":").strip(chr(39))}"{colon}'
        return name + rest

    return _OPTION.sub(argument, text[:end]) + text[end:]
