"""Write docs/errors.md: the tree of errors, their exit codes, and what some mistakes are answered with.

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

Written from the classes of `mtool/base/errors.py` and from what the commands say (`make reference`); don't edit it.

An error goes to stderr: what is wrong in one line, then where, what was expected and what was found, then one thing to
try, and the exit code. With `--json` the same is on stdout as an object, `error`, with the keys `what`, `details`,
`hint` and `exit_code`. In Python it is an exception of a class below, with attributes of those names.

A line that begins with `error: internal error` is a bug in mtool: `-vv` shows the traceback to report.

"""
NEXT = {  # where to read on
    2: "`mtool COMMAND --help`; [commands](commands.md), [project folders](projects.md)",
    3: "[operators](operators.md), [TFLite models](tflite.md), [limits](limits.md)",
    4: "[a model that does not fit](tutorials/does-not-fit.md), [does it fit](fit.md)",
    5: "`mtool doctor --board BOARD`; the build's log, whose place the error says",
    6: "`mtool boards --attached`; [which board](flash.md#which-board)",
    7: "[when flashing fails](flash.md#when-it-fails)",
    8: "[ports](transports.md), [flash a board](flash.md)",
    9: "[debug a wrong result](tutorials/wrong-result.md), [verify](verify.md)",
    10: "`mtool debug`: [gdb at an operator](transports.md#gdb-at-an-operator-mtool-debug)",
}
MISTAKES = (  # that are the same on every computer
    "mtool check digits.onnx",
    "mtool run digits_int8.onnx --bord host",
    "mtool check digits_int8.onnx --board nucleo_h743",
    "mtool check digits_int8.onnx --limit nodes=many",
    "mtool check digits_int8.onnx --limit file=1000",
    "mtool check digits_int8.onnx --board host --option speed=fast",
)


def subclasses() -> Iterator[tuple[str, str, str]]:
    """Return each class of error beside those of mtool.errors: its name, its base, its module."""
    for path in sorted((ROOT / "mtool").rglob("*.py")):
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for name, base in re.findall(r"^class (\w+)\((\w+)\):", path.read_text(), re.MULTILINE):
            if isinstance(getattr(errors, base, None), type) and module != "mtool.errors":
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
    lines.append("| 0 | | the command did what it was asked for | |")
    for one in classes:
        meaning = " ".join((one.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
        if one is MtoolError:
            meaning = "A bug in mtool, or an error that fits nowhere else"
        lines.append(f"| {one.exit_code} | `mtool.errors.{one.__name__}` | {meaning} | {NEXT.get(one.exit_code, '')} |")
    lines += ["| 129 | | SIGHUP: the terminal was closed | |", "| 130 | | Ctrl-C | |", "| 143 | | SIGTERM | |", ""]
    others = [f"`{module}.{name}` is a {base}" for name, base, module in subclasses()]
    lines += ["Of further classes, " + "; ".join(others) + ".", ""]
    lines += [
        "`run`, `bench` and `report` end with 0 whatever the outputs are; `verify`, `flash` and `demo` compare (9).",
        "",
    ]
    lines += ["## What mistakes are answered with", "", "In a folder with `digits_int8.onnx`:", ""]
    for command in MISTAKES:
        lines += ["```console", f"$ {command}", answered(command), "```", ""]
    lines += ["## What the operating system refuses", "", "Told with the path, the system's words, and:", ""]
    lines += ["| | what to try |", "|---|---|"]
    lines += [f"| {os.strerror(number)} | {text} |" for number, text in errors.REMEDIES.items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
