"""Write docs/python.md: every public function and class of mtool, by its signature and docstring.

scripts/python_api.py
"""

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import docstrings

import mtool
from mtool import commands
from mtool.device import session

RESULT = Path(__file__).parents[1] / "docs" / "python.md"
HEAD = """# Python

Written from the docstrings (`make reference`); don't edit it. The functions do what the commands of those names do,
raise the classes of [errors](errors.md), and print nothing.

```python
import mtool

model = mtool.compile("model.onnx", board="mps2_an386")
with mtool.open(model) as device:
    outputs = device.run({"input_1": x})
    print(device.time(number=10, repeat=5))
```

Options are values, or text as a command has it; a backend, calling conventions, and what may go wrong:

```python
options = mtool.Options(
    conventions=mtool.conventions("packed"),
    backends=[mtool.BackendSpec("cmsis_nn", options={"path": "CMSIS-NN"})],  # or: backends="cmsis_nn:path=CMSIS-NN"
    dims={"batch": 1},  # or: dims="batch=1"
)
try:
    model = mtool.compile("model.onnx", board="mps2_an386", options=options)
except mtool.ModelError as error:
    print(error.what, error.details, error.hint)
```

The classes of errors are in `mtool.errors` and in `mtool` itself. Threads may share a device, forked processes may not.

A project folder that is built already is opened by its name: `mtool.open("build/kws-mps2_an386")`.
"""


def definition(name: str, of: object, level: str) -> list[str]:
    """Return a function or class: a heading, its signature, its docstring."""
    assert callable(of)
    short = name.rpartition(".")[2]
    return [
        f"{level} {name}",
        "",
        "```py",
        *docstrings.signature(short, of),
        "```",
        "",
        *docstrings.markdown(of),
        "",
    ]


def public_members(of: type) -> dict[str, Any]:
    """Return the public members of a class by name, those of its bases first; dataclasses leave it their fields."""
    members: dict[str, Any] = {}
    for one in reversed(of.__mro__):
        if one.__module__.startswith("mtool.") and (one is of or not dataclasses.is_dataclass(one)):
            own = {name: value for name, value in vars(one).items() if not name.startswith("_")}
            members = {name: value for name, value in members.items() if name not in own} | own
    return members


def of_class(name: str, of: type) -> list[str]:
    """Return a class with its public properties and methods, those that it inherits first."""
    lines = definition(name, of, "###")
    for base in of.__mro__[1:]:
        if dataclasses.is_dataclass(base):
            lines += [*docstrings.markdown(base), ""]
    members = public_members(of)
    for member, value in members.items():
        if isinstance(value, property) and inspect.getdoc(value):
            lines += [f"- `{member}`: {next(docstrings.paragraphs(value))}", ""]
    for member, value in members.items():
        if inspect.isfunction(value):
            lines += definition(f"{of.__name__}.{member}", value, "####")
    return lines


def page() -> str:
    """Return the page."""
    public = {name: getattr(mtool, name) for name in mtool.__all__ if name not in ("__version__", "errors")}
    functions = {name: one for name, one in public.items() if not isinstance(one, type)}
    given = {name: one for name, one in public.items() if isinstance(one, type)}
    used = {name: getattr(commands, name) for name in commands.__all__ if name not in public}
    results = {name: one for name, one in used.items() if isinstance(one, type)}
    of_session = {name: getattr(session, name) for name in session.__all__}
    devices = {name: one for name, one in of_session.items() if isinstance(one, type)}
    lines = ["", "## Functions", ""]
    for name, one in functions.items():
        lines += definition(f"mtool.{name}", one, "###")
    for title, package, classes in (
        ("What is given to them", "mtool", given),
        ("The device", "mtool.device.session", devices),
        ("What they take and return", "mtool.commands", results),
    ):
        lines += [f"## {title}", ""]
        for name, one in classes.items():
            lines += of_class(f"{package}.{name}", one)
    text = "\n".join(line.rstrip() for line in lines)
    return HEAD + re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
