"""Write docs/errors.md: the tree of errors, their exit codes, and the messages for some mistakes.

scripts/errors.py
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mtool.base import errors
from mtool.base.errors import MtoolError
from mtool.cli import app

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "errors.md"
HEAD = """# Errors and exit codes

What an error message contains, and what each exit code and exception class means. `make reference` writes this page
from `mtool/base/errors.py` and from the commands' output; don't edit it.

mtool prints an error to stderr: one line that says what is wrong, then the place and the expected and actual values,
a suggestion, and the exit code. With `--json`, stdout has the same as an object `error` with the keys `what`,
`details`, `hint` and `exit_code`. In Python, an error is an exception of one of the classes below, with attributes of
the same names.

A message that starts with `error: internal error` is a bug in mtool; `-vv` prints the traceback to report.

"""
NEXT = {  # where to read on
    2: "`mtool COMMAND --help`; [commands](commands.md), [project folders](projects.md)",
    3: "[operators](operators.md), [TFLite models](tflite.md), [limits](limits.md)",
    4: "[a model that does not fit](tutorials/does-not-fit.md), [does it fit](fit.md)",
    5: "`mtool doctor --board BOARD`; the build log, whose path the error shows",
    6: "`mtool boards --attached`; [which board](flash.md#which-board)",
    7: "[when flashing fails](flash.md#when-it-fails)",
    8: "[ports](transports.md), [flash a board](flash.md)",
    9: "[debug a wrong result](tutorials/wrong-result.md), [verify](verify.md)",
    10: "`mtool debug`: [gdb at an operator](transports.md#gdb-at-an-operator-mtool-debug)",
}
MISTAKES = (  # the same on every computer
    "mtool check digits.onnx",
    "mtool run digits_int8.onnx --bord host",
    "mtool check digits_int8.onnx --board nucleo_h743",
    "mtool check digits_int8.onnx --limit nodes=many",
    "mtool check digits_int8.onnx --limit file=1000",
    "mtool check digits_int8.onnx --board host --option speed=fast",
)


def subclasses() -> Iterator[tuple[str, str, str]]:
    """Return each class of error that is not in mtool.base.errors: its name, its base, its module."""
    for path in sorted((ROOT / "mtool").rglob("*.py")):
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for name, base in re.findall(r"^class (\w+)\((\w+)\):", path.read_text(), re.MULTILINE):
            if isinstance(getattr(errors, base, None), type) and module != errors.__name__:
                yield name, base, module


def answered(command: str) -> str:
    """Return what a command says, in a folder that has the example's model."""
    said = io.StringIO()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        model = ROOT / "examples" / "digits" / "digits_int8.onnx"
        (Path(folder) / model.name).write_bytes(model.read_bytes())
        try:
            os.chdir(folder)
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                app.invoke(command.split()[1:])
        finally:
            os.chdir(before)
    return said.getvalue().strip()


def page() -> str:
    """Return the page."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, MtoolError)]
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    lines = [
        "```text",
        tree,
        "```",
        "",
        "## What each code means",
        "",
        "| code | class | meaning | read on |",
        "|---:|---|---|---|",
    ]
    lines.append("| 0 | | success | |")
    for one in classes:
        meaning = " ".join((one.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
        if one is MtoolError:
            meaning = "A bug in mtool, or an error that fits nowhere else"
        lines.append(f"| {one.exit_code} | `mtool.errors.{one.__name__}` | {meaning} | {NEXT.get(one.exit_code, '')} |")
    lines += ["| 129 | | SIGHUP: the terminal was closed | |", "| 130 | | Ctrl-C | |", "| 143 | | SIGTERM | |", ""]
    others = [f"`{module}.{name}` is a `{base}`" for name, base, module in subclasses()]
    lines += ["Other classes: " + "; ".join(others) + ".", ""]
    lines += [
        "`verify`, `flash` and `demo` compare the outputs with the reference (9). `run`, `bench` and `report` do not.",
        "",
    ]
    lines += ["## Examples", "", "In a folder that contains `digits_int8.onnx`:", ""]
    for command in MISTAKES:
        lines += ["```console", f"$ {command}", answered(command), "```", ""]
    lines += ["## Errors of the operating system", "", "The message has the path, the system's message and a hint:", ""]
    lines += ["| error | hint |", "|---|---|"]
    lines += [f"| {os.strerror(number)} | {text} |" for number, text in errors.REMEDIES.items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
