"""A second run of an unchanged model compiles and renders nothing; anything that changed is done again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest
from graphs import model
from onnx import helper, save

from mtool import commands, manifest
from mtool.base.errors import UsageError
from mtool.commands import Deployment, Options
from mtool.compiler.backends.spec import parse
from mtool.stages import compile_cache, deployment

F = np.float32


def write(path: Path, factor: float) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    save(model(nodes, {"x": (F, (1, 4))}, ["y"], {"w": np.full(4, factor, F)}), path)


class Runs:
    """Runs of a small model on the host, each with how often it was compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.deployment = folder / "net.onnx", Deployment(folder / "project")
        self.compiled = 0
        write(self.path, 2)
        compile = deployment.compile

        def counted(*arguments: object, **named: object) -> commands.CompiledModel:
            self.compiled += 1
            return compile(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(deployment, "compile", counted)

    def run(self, options: Options | None = None) -> tuple[int, float]:
        """Return how often it was compiled for this, and the first output for an input of ones."""
        before = self.compiled
        sample = {"x": np.ones((1, 4), F)}
        ran = commands.run(self.path, board="host", inputs=[sample], options=options, deployment=self.deployment)
        return self.compiled - before, float(ran.outputs[0]["y"][0, 0])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_a_second_run_compiles_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.run() == (1, 2.0)
    monkeypatch.setattr("mtool.project.render", lambda *_, **__: pytest.fail("rendered again"))
    assert runs.run() == (0, 2.0)


@pytest.mark.slow
def test_another_model_of_the_same_name_is_compiled(runs: Runs) -> None:
    runs.run()
    write(runs.path, 3)
    assert runs.run() == (1, 3.0)
    assert runs.run() == (0, 3.0)


@pytest.mark.product(3)
@pytest.mark.parametrize(
    "options",
    [Options(io="external"), Options(template_options={"opt": "-O3"}), Options(edits="keep")],
    ids=["io", "opt", "edits"],
)
def test_other_options_compile_again(runs: Runs, options: Options) -> None:
    runs.run()
    assert runs.run(options)[0] == 1
    assert runs.run(options)[0] == 0


def test_another_mtool_compiles_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.run()
    monkeypatch.setattr(compile_cache, "__version__", "9.9.9")
    assert runs.run()[0] == 1


def test_an_edited_source_of_mtool_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boards.yaml").write_text("one")
    monkeypatch.setattr(compile_cache.resources, "path", lambda name: tmp_path / "boards.yaml")
    before = [*compile_cache.program_texts()]
    os.utime(tmp_path / "boards.yaml", ns=(1, 1))
    assert [*compile_cache.program_texts()] != before


def test_templates_bytecode_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache.resources, "path", lambda name: tmp_path)
    before = [*compile_cache.program_texts()]
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.c.j2.cpython-311.bytecode").write_text("written by the first compilation")
    assert [*compile_cache.program_texts()] == before
    (tmp_path / "a.c.j2").write_text("a template")
    assert [*compile_cache.program_texts()] != before


def test_constants_that_are_given_count() -> None:
    reported = [[*compile_cache.option_texts(Options(constants={"w": np.full(3000, value)}))] for value in (0, 1)]
    reported.append([*compile_cache.option_texts(Options(constants={"w": np.full((3, 1000), 0)}))])
    assert reported[0] != reported[1] and reported[0] != reported[2]


def test_each_run_reports_which_files_are_left(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.run()
    assert runs.deployment.folder is not None
    page = runs.deployment.folder / "README.md"
    page.write_text("mine")
    for compiled in (1, 0, 0):
        caplog.clear()
        assert runs.run(Options(edits="keep"))[0] == compiled
        reported = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert reported == [f"{page} is left as it is: edited"]


def edit(project: Path) -> None:
    source = project / "model" / "net.c"
    source.write_text(source.read_text() + "/* mine */\n")


def remove(project: Path) -> None:
    (project / "model" / "net.h").unlink()


def test_an_edit_of_a_users_stops_the_run(runs: Runs) -> None:
    runs.run()
    edit(runs.deployment.folder or Path())
    with pytest.raises(UsageError, match="edited"):
        runs.run()


@pytest.mark.parametrize("change", [edit, remove])
def test_a_changed_project_is_generated_again(runs: Runs, change: Callable[[Path], None]) -> None:
    runs.run(Options(edits="force"))
    change(runs.deployment.folder or Path())
    assert runs.run(Options(edits="force")) == (1, 2.0)


def test_a_firmware_that_is_gone_is_built_without_compiling_the_model(runs: Runs) -> None:
    runs.run()
    ((runs.deployment.folder or Path()) / "build" / "host_driven").unlink()
    assert runs.run() == (0, 2.0)


_MIRROR = """from mtool.compiler.backends import Backend, Product
class Mirror(Backend):
    name = "mirror"
    def refusal(self, operation, context):
        return ""
    def compile(self, region, folder):
        return Product(body="(void)input0; (void)output0;")
"""
_MODULES = {"modules": "signed", "module_key": "11" * 32}


_REPLACED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"template_options": _MODULES}, {}, "refused"),
    ({"template_options": _MODULES}, {"template_options": {**_MODULES, "module_key": "22" * 32}}, "refused"),
    ({"template_options": _MODULES}, {"template_options": {**_MODULES, "module_slot_bytes": "65536"}}, "erased"),
    ({"template_options": _MODULES}, {"edits": "force"}, ""),
    ({"template_options": _MODULES}, {"template_options": {**_MODULES, "opt": "-Os"}}, ""),
    ({}, {"template_options": _MODULES}, ""),
    ({"protect": True}, {}, "built with --protect"),
    ({}, {"protect": True}, ""),
    ({"backends": "mirror.py"}, {}, "built with --backend mirror"),
    ({"name": "one"}, {"name": "other"}, "built for the model one"),
    ({"template_options": {"channel": "rtt"}}, {}, "built with --option channel=rtt"),
    ({"board": "mps2_an385"}, {}, "built for --board mps2_an385"),
]


@pytest.mark.parametrize(("before", "after", "reported"), _REPLACED if amount.IS_ALL else _REPLACED[::2], ids=str)
def test_what_a_firmware_is_is_not_replaced_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: dict[str, Any], after: dict[str, Any], reported: str
) -> None:
    write(tmp_path / "net.onnx", 2)
    options = [{"board": "mps2_an386", **given} for given in (before, after)]
    (tmp_path / "mirror.py").write_text(_MIRROR)
    for one in options:
        one["backends"] = tuple(parse(str(tmp_path / name)) for name in filter(None, [one.get("backends")]))
    models = [
        commands.compile(tmp_path / "net.onnx", board=one.pop("board"), options=Options(**one)) for one in options
    ]
    folder = commands.write_project(models[0], tmp_path / "project")
    if reported == "erased":
        with pytest.raises(UsageError, match="would erase the modules and their counters") as refused:
            commands.write_project(models[1], folder)
        (sizes,) = refused.value.details
        assert sizes.startswith("module_slot_bytes: there ") and sizes.endswith(", now 65536")
        assert sizes.split()[2].rstrip(",") in refused.value.hint and "--force" in refused.value.hint
    elif reported == "refused":
        with pytest.raises(UsageError, match="would replace firmware that takes modules"):
            commands.write_project(models[1], folder)
        assert manifest.load(folder).project.options["module_key"] == "11" * 32  # type: ignore[union-attr]
    else:
        commands.write_project(models[1], folder)
        warnings = [one.getMessage() for one in caplog.records if "replacing the firmware" in one.getMessage()]
        assert [f"which was {reported};" in one for one in warnings] == [True] * bool(reported)
