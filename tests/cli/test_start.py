"""Start-up loads only what a command needs, checked by the loaded modules, not by time."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtool import commands
from mtool.cli import app

ROOT = Path(__file__).parents[2]
HEAVY = {
    "numpy",
    "onnx",
    "google",
    "jinja2",
    "cookiecutter",
    "elftools",
    "serial",
    "tflite",
    "ml_dtypes",
    "onnxruntime",
}
DRAWN = {"rich", "pydantic", "yaml"}


def loaded(*arguments: str, **environment: str) -> tuple[set[str], str]:
    """Return the modules that are loaded when `mtool` ends, and what it printed."""
    source = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules)))\n"
        "from mtool.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[:1000]
    return set(done.stderr.split()), done.stdout


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_command(option: str) -> None:
    modules, shown = loaded(option)
    assert "mtool" in shown
    assert not packages(modules) & (HEAVY | DRAWN)
    assert not {app.module_of(name) for name in app.COMMANDS} & modules


def test_a_shells_completion_of_commands_loads_none() -> None:
    modules, shown = loaded(_MTOOL_COMPLETE="complete_bash", COMP_WORDS="mtool co", COMP_CWORD="1")
    assert shown.split() == ["compile"]
    assert not packages(modules) & HEAVY
    assert not {app.module_of(name) for name in app.COMMANDS} & modules


@pytest.mark.parametrize("command", app.COMMANDS)
@pytest.mark.product(3)
def test_a_shells_completion_of_options_loads_the_command_and_no_compiler(command: str) -> None:
    modules, shown = loaded(_MTOOL_COMPLETE="complete_bash", COMP_WORDS=f"mtool {command} --js", COMP_CWORD="2")
    assert shown.split() == ["--json"]
    assert not packages(modules) & HEAVY
    expected = {app.module_of(name) for name in (command, "boards", "doctor")}
    assert {app.module_of(name) for name in app.COMMANDS} & modules <= expected


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("run --board mps2_an500", "mps2_an500"), ("boards nucleo_l4", "nucleo_l4r5zi"), ("flash --runner pyo", "pyocd")],
)
def test_a_shells_completion_of_names_reads_no_schema(typed: str, completed: str) -> None:
    words = f"mtool {typed}"
    shell = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    modules, shown = loaded(_MTOOL_COMPLETE="complete_bash", **shell)
    assert shown.split() == [completed]
    assert not packages(modules) & {*HEAVY, "yaml"} and "mtool.boards" not in modules


def test_boards_loads_boards() -> None:
    modules, shown = loaded("boards")
    assert "mps2_an386" in shown
    assert not packages(modules) & HEAVY


@pytest.mark.parametrize("name", app.COMMANDS)
def test_a_summary_is_the_first_line_of_its_command(name: str) -> None:
    assert (inspect.getdoc(app.load(name)) or "").splitlines()[0] == app.COMMANDS[name]


def test_each_name_of_the_workflow_is_there() -> None:
    assert sorted(commands.__all__) == sorted(commands.MODULES) == sorted(dir(commands))
    for name in commands.__all__:
        assert getattr(commands, name) is not None


@pytest.mark.slow
def test_a_compile_loads_nothing_of_the_device_half(tmp_path: Path) -> None:
    model = ROOT / "examples" / "digits" / "digits_int8.onnx"
    argv, cache = ("compile", str(model), "--board", "mps2_an386", "--output-dir", str(tmp_path / "c")), tmp_path / "k"
    modules, _ = loaded(*argv, MTOOL_CACHE=str(cache))
    assert "mtool.compiler.compilation" in modules
    assert not packages(loaded(*argv, MTOOL_CACHE=str(cache))[0]) & HEAVY, "a cached result loads none of these"
    assert not packages(modules) & {"elftools", "serial", "cookiecutter", "tflite", "onnxruntime"}
    assert not {f"mtool.device.{name}" for name in ("build", "flash", "rpc", "session", "transport")} & modules
    assert not {"mtool.compiler.run_time_sizes", "mtool.compiler.backends.interface", "numpy.ma"} & modules


def test_a_second_run_loads_neither_the_compiler_nor_the_reference(tmp_path: Path) -> None:
    model = ROOT / "examples" / "digits" / "digits_int8.onnx"
    run = ("run", str(model), "--output-dir", str(tmp_path / "p"), "--quiet")
    assert "mtool.compiler.frontend.importer" in loaded(*run)[0]
    modules, shown = loaded(*run)
    assert "argmax" in shown
    assert not packages(modules) & {"jinja2", "tflite", "onnxruntime"}
    assert not {"mtool.compiler.compilation", "mtool.compiler.frontend.importer", "mtool.compiler.passes"} & modules
