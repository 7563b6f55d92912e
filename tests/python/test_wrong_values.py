"""Wrong values for public functions and options are reported by mtool's own errors, never by Python's."""

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mtool
from mtool.base import checked
from mtool.base.errors import MtoolError, UsageError

WRONG: tuple[Any, ...] = (
    None, True, -1, 1.5, float("nan"), "", "siez", "a\0b", "=", "x=", ":", b"x", (), ("siez",), [3], {}, {"a": "x"},
    {3: 4}, {"a": object()}, object(), np.zeros(3), np.float32(1), [[1], [1, 2]], Path("nowhere"),
    int, lambda: 1, 1 << 70,
)  # fmt: skip
CLASSES = [
    mtool.Options, mtool.Deployment, mtool.Pool, mtool.Choice, mtool.BackendSpec, mtool.Conventions, mtool.Scheme,
    mtool.Pixels, mtool.Tolerance,
]  # fmt: skip
FUNCTIONS = [one for name in mtool.__all__ if inspect.isfunction(one := getattr(mtool, name))]
NEEDED = {"where": "cmsis_nn", "name": "dtcm", "schedule": "dsp_pointwise"}


def attempt(call: Any, *arguments: Any, **named: Any) -> MtoolError | None:
    """Call something, which may refuse what it is given with an error of the package's own."""
    try:
        call(*arguments, **named)
    except MtoolError as error:
        assert isinstance(error, UsageError) or error.exit_code == 6, error  # 6: no board of that name
        assert str(error) and "--" not in error.what
        return error
    return None


def cases(names: list[str]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name in names for value in WRONG)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_options_wrong_value_is_reported(kind: Any) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    needed = {name: value for name, value in NEEDED.items() if name in names[:1]}
    for name, value in cases(names):
        attempt(kind, **{**needed, name: value})
        assert attempt(kind, **{**needed, name: object()}) is not None or name in ("knobs",), name


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_functions_wrong_argument_is_reported(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is missing, so that nothing is built whatever else is right."""
    monkeypatch.chdir(tmp_path)
    needed: dict[str, Any] = {"path": "missing.onnx", "paths": ["missing.onnx"], "board": "host", "what": "missing"}
    needed |= {"boards": ["host"], "options": [mtool.Options()], "data": "missing.npz", "front": "micro_speech"}
    parameters = inspect.signature(function).parameters
    needed["board"] = "nucleo_l4r5zi" if function is mtool.flash_model else "host"
    given = {name: needed[name] for name, one in parameters.items() if one.default is one.empty}
    for name, value in cases([*parameters]):
        refused = attempt(function, **{**given, name: value})
        assert refused is not None or function is mtool.conventions, (name, value)
        assert name in str(attempt(function, **{**given, name: object()}))
    assert "has no argument bord" in str(attempt(function, **given, bord="host"))


MISSPELT = {
    "optimize": ("siez", "size"), "io": ("arean", "arena"), "partial": ("alway", "always"),
    "order": ("writen", "written"), "rounding": ("tflit", "tflite"), "hybrid": ("float23", "float32"),
    "weights": ("txt", "text"), "edits": ("forse", "force"), "arenas": ("shard", "shared"),
    "conventions": ("packd", "packed"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_value_is_reported_with_the_one_that_is_meant(name: str) -> None:
    wrong, meant = MISSPELT[name]
    error = attempt(mtool.Options, **{name: wrong})
    assert error is not None and error.exit_code == 2
    assert repr(wrong) in error.what and error.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"dims": "batch=1"}, {"dims": {"batch": 1}}),
        ({"dims": {"batch": "1"}}, {"dims": {"batch": 1}}),
        ({"states": "hn:h0"}, {"states": (("hn", "h0"),)}),
        ({"schedules": {"pw_2": "dsp:unroll=16"}}, {"schedules": {"pw_2": mtool.Choice("dsp", {"unroll": "16"})}}),
        ({"pools": ["dtcm=1KiB"]}, {"pools": (mtool.Pool("dtcm", 1024),)}),
        ({"backends": "ethos_u:only=a"}, {"backends": (mtool.BackendSpec("ethos_u", options={"only": "a"}),)}),
        ({"conventions": "packed"}, {"conventions": mtool.conventions("packed")}),
        ({"tuned": "t.jsonl"}, {"tuned": (Path("t.jsonl"),)}),
        ({"template_options": "opt=-O3"}, {"template_options": {"opt": "-O3"}}),
        ({"tolerance": np.int64(2)}, {"tolerance": 2}),
    ],
)
def test_text_is_read_as_the_command_line_reads_it(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert mtool.Options(**given) == mtool.Options(**meant)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (mtool.Deployment, {"timeout_s": -1}),
        (mtool.Deployment, {"timeout_s": 1e-5}),
        (mtool.Deployment, {"timeout_s": float("inf")}),
        (mtool.Options, {"limits": {"nodes": -5}}),
        (mtool.Options, {"dims": {"batch": -1}}),
        (mtool.Options, {"maxima": {"selected": 0}}),
        (mtool.Tolerance, {"lsb": -1}),
        (mtool.Tolerance, {"of_backends": -1}),
        (mtool.Tolerance, {"atol": -0.5}),
    ],
)
def test_a_field_out_of_its_range_is_reported(kind: Any, given: dict[str, Any]) -> None:
    error = attempt(kind, **given)
    assert error is not None and f"{kind.__name__}.{[*given][-1]} is" in error.what


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("verify", {"samples": 0}),
        ("verify", {"seed": -1}),
        ("verify_layers", {"samples": 0}),
        ("verify_layers", {"seed": -1}),
        ("report", {"samples": -1}),
        ("report", {"repeat": 0}),
        ("run", {"seed": -1}),
        ("run", {"kinds": ["hostdriven"]}),
        ("run", {"inputs": ()}),
        ("prepare", {"kinds": "hostdriven"}),
        ("bench", {"number": 0}),
        ("bench", {"cooldown_ms": -1.0}),
        ("check", {"hz": -5}),
        ("tune", {"trials": -1}),
    ],
)
def test_an_argument_out_of_its_range_is_reported(
    function: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    board = {"boards": ["host"]} if function == "check" else {"board": "host"}
    model = Path(__file__).parents[2] / "examples/digits/digits_int8.onnx"
    error = attempt(getattr(mtool, function), model, **board, **given)
    assert error is not None and error.what.startswith(f"{next(iter(given))} is")
    assert "expected" in str(error)


def test_a_hint_names_the_python_argument() -> None:
    error = attempt(mtool.Options, dims="batch")
    assert error is not None and error.hint == 'for instance: dims="batch=1"'
    options = mtool.Options(stream="x", backends="cmsis_nn")
    error = attempt(
        mtool.compile, Path(__file__).parents[2] / "examples/digits/digits_int8.onnx", board="host", options=options
    )
    assert error is not None and "backends" in error.what and "--" not in str(error)


def test_a_pools_settings_stand_within_the_quotes() -> None:
    error = attempt(mtool.Options, pools="dtcm=48KiB,zzz=1")
    assert error is not None and error.hint == 'for instance: pools="dtcm=64KiB,for=tensors"'
    assert error.what.startswith('pools="dtcm=48KiB,zzz=1": ')


def test_names_of_several_models_are_those_of_their_options() -> None:
    error = MtoolError("two models", hint="name all of them, in their order: --name a_kws --name b_kws")
    checked.in_python(error)
    assert error.hint.endswith('options=[Options(name="a_kws"), Options(name="b_kws")]')


def test_what_follows_a_command_names_the_python_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mtool.BoardError) as failed:
        mtool.compile("missing.onnx", board="nowhere")
    assert "mtool boards --new nowhere; " in failed.value.hint and failed.value.hint.endswith('board="zephyr:NAME"')


def test_no_boards_is_an_error() -> None:
    error = attempt(mtool.check, "missing.onnx", boards=())
    assert error is not None and error.what == "boards is empty"


def test_a_missing_project_folder_is_reported_by_its_argument(tmp_path: Path) -> None:
    error = attempt(mtool.check, "missing.onnx", ["host"], folder=tmp_path / "none")
    assert error is not None and error.hint.endswith("leave out folder")
