"""Users' values for inputs and states: unsuitable ones are refused, never converted."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.frontend.onnx_file import load
from mtool.compiler.frontend.user_values import stored_as

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 4] x, int64[1] k, uint8[2] u, float[1, 4] s) => (float[1, m] y, uint8[2] z, float[1, 4] next) {
        y, i = TopK (x, k) z = Add (u, u) next = Add (s, x) }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), found)
    return found


def constant(path: Path, name: str, value: Any) -> Any:
    options = ModelOptions(constants={"k": np.array([2]), name: value}, states=[("next", "s")])
    return load(path, options).constants[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", [2.7]), ("k", [np.nan]), ("k", [1e30]), ("k", [2**64 - 1]), ("k", [1, 2]), ("k", ["two"]),
        ("u", [300, 0]), ("u", [-1, 0]), ("u", 1), ("x", np.ones((2, 4))), ("x", np.ones(3)), ("x", 1 + 2j),
    ],
)  # fmt: skip
def test_a_constant_that_does_not_go_into_its_input(path: Path, name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        constant(path, name, np.asarray(value))
    assert f"--const {name} does not fit that input" in caught.value.what
    assert caught.value.details[0].startswith("expected  ")


@pytest.mark.parametrize("value", [[2.0], 2, [[2]], [True + 1]])
def test_one_that_does_has_its_type_and_shape(path: Path, value: Any) -> None:
    found = constant(path, "k", np.asarray(value))
    assert (found.dtype, found.tolist()) == (np.int64, [2])


@pytest.mark.parametrize("value", [np.ones((1,) * 10), np.ones((1,) * 32), 1, 1.0, [1], [[1, 1, 1, 1]]])
def test_a_state_of_one_number_whatever_its_shape(path: Path, value: Any) -> None:
    options = ModelOptions(constants={"k": np.array([2])}, states=[("next", "s")], state_values={"s": value})
    (state,) = load(path, options).states
    assert state.initial is not None
    np.testing.assert_array_equal(state.initial, np.ones((1, 4), np.float32))


@pytest.mark.parametrize("value", ["a", None, {"a": 1}, 1 + 2j, [1, 2], np.ones((1, 5))])
def test_a_state_that_begins_as_what_it_can_not_be(path: Path, value: Any) -> None:
    options = ModelOptions(constants={"k": np.array([2])}, states=[("next", "s")], state_values={"s": value})
    with pytest.raises(UsageError, match="does not fit that input"):
        load(path, options)


def test_strings_and_small_floats_go_into_their_own_types() -> None:
    words, halves = np.array(["a", "b"]), np.array([0.5, 2], ml_dtypes.bfloat16)
    assert stored_as(words, np.dtype(object)) is not None
    for dtype in (halves.dtype, np.dtype(np.float32)):
        found = stored_as(halves, dtype)
        assert found is not None and found.astype(float).tolist() == [0.5, 2]


def test_a_file_that_is_missing_or_cut_short_is_named_with_the_reason(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY\x01\x00")
    for file, words in (("none.npy", "does not exist"), ("short.npy", "short.npy")):
        arguments = ["compile", str(path), "--state", f"next:s={tmp_path / file}", "-d", str(tmp_path / "c")]
        assert app.invoke(arguments) == 2
        reported = capsys.readouterr().err
        assert words in reported
        assert "is not a number" not in reported
