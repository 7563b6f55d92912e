"""mtool evaluate: results that are kept, data for models of several types, and whole runs on the host and in QEMU."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graphs
import models
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.manifest import Tensor
from mtool.quantization import dataset, evaluation
from mtool.quantization.dataset import Data
from mtool.quantization.metrics import Scoring
from mtool.stages import samples as sampling

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = str(DIGITS / "digits_int8.onnx"), str(DIGITS / "test_data.npz")
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tensor(dtype: str, *shape: int, **more: Any) -> Tensor:
    return Tensor(name="x", c_name="x", dtype=dtype, shape=shape, bytes=0, arena_offset=None, **more)


class Board:
    """A model whose scores are its input; after some inferences Ctrl-C is pressed."""

    def __init__(self, folder: Path, firmware: bytes = b"1", states: tuple[str, ...] = ()) -> None:
        (folder / "firmware").write_bytes(firmware)
        self.manifest: Any = SimpleNamespace(
            model="m", outputs=[tensor("float32", 1, 3)], states=states, executor="aot", inputs=[]
        )
        self.folder, self.board, self.path = folder, SimpleNamespace(name="host"), Path("m.onnx")
        self.built = SimpleNamespace(firmware={"host_driven": folder / "firmware"})
        self.runs, self.left, self.is_process = 0, 1000, False

    def open(self, prepared: object) -> "Board":
        return self

    def run(self, sample: dict[str, Any]) -> dict[str, Any]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.runs += 1
        return sample

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def evaluated(board: Any, count: int = 6) -> evaluation.Evaluation:
    rows = np.random.default_rng(0).random((count, 1, 3), np.float32)
    read = Data(tuple({"x": row} for row in rows), rows.argmax(axis=2)[:, 0])
    return evaluation.run(board, board, read, Scoring(), board)


def test_results_are_kept_after_an_interrupt_and_for_one_firmware(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.left = 4
    with pytest.raises(KeyboardInterrupt):
        evaluated(board)
    (kept,) = tmp_path.glob("build/*.results")
    board.left = 100
    kept.write_bytes(kept.read_bytes()[:-5])  # the last record was cut off
    done = evaluated(board)
    assert (done.reused, board.runs) == (3, 7) and done.figures.by_name["top1"] == 1
    assert evaluated(board, 8).reused == 6 and board.runs == 9
    assert evaluated(Board(tmp_path, b"2")).reused == 0, "another firmware"
    assert evaluated(board).reused == 6
    kept.write_bytes(b"damaged")
    assert evaluated(board).reused == 0 and evaluated(board).reused == 6


def test_a_sequence_runs_as_a_whole(tmp_path: Path) -> None:
    board = Board(tmp_path, states=("s",))
    assert evaluated(board).reused == evaluated(board).reused == 0 and not [*tmp_path.glob("build/*")]


def test_real_values_are_quantized_for_an_integer_input() -> None:
    np.savez("x.npz", x=np.float32([[0, 0.25], [0.74, 500]]), labels=[[0.5], [1.5]])
    quantized = tensor("int8", 1, 2, scale=(0.5,), zero_point=(-3,))
    read = dataset.read(Path("x.npz"), [quantized])
    assert [one["x"].tolist() for one in read.samples] == [[[-3, -3]], [[-2, 127]]]
    assert read.labels is not None and read.labels.tolist() == [[0.5], [1.5]]
    assert sampling.real(np.int8([-3, 127]), quantized).tolist() == [0, 65]
    with pytest.raises(UsageError, match="has the wrong type"):
        sampling.inputs_of(Path("x.npz"), [quantized])
    with pytest.raises(UsageError, match="has the wrong type"):
        dataset.read(Path("x.npz"), [tensor("int8", 1, 2)])
    np.savez("x.npz", x=np.float32([[0, np.nan]]), labels=[1])
    with pytest.raises(UsageError, match="the data for x have values that are not finite"):
        dataset.read(Path("x.npz"), [quantized])


@pytest.mark.parametrize(
    ("names", "labels"), [(("cat", "ant", "bee"), [0, 1, 1, 2]), (("2", "10", "0"), [0, 2, 10, 10])]
)
def test_folders_of_classes_have_the_labels(names: tuple[str, ...], labels: list[int]) -> None:
    """The class is the folder's number, or its place in the order of the names; folders without samples don't count."""
    for name, count in zip((*names, "a"), (1, *((1, 2) if names[0] == "cat" else (2, 1)), 0), strict=True):
        Path("data", name).mkdir(parents=True)
        for number in range(count):
            np.save(Path("data", name, f"{number}.npy"), np.full((1, 2), len(name), np.float32))
    read = dataset.read(Path("data"), [tensor("float32", 1, 2)])
    assert read.labels is not None and read.labels.tolist() == labels
    assert [one["x"][0, 0] == 2 for one in read.samples] == [label == 10 for label in labels]
    Path("data/00").mkdir()
    np.save("data/00/0.npy", np.zeros((1, 2), np.float32))
    if "0" in names:
        with pytest.raises(UsageError, match="two folders are the same class"):
            dataset.check(Path("data"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1\n0\n", [[1], [0]]), ("1 0\n0 1", [[1, 0], [0, 1]]), ("1 2\n3", [1, 2, 3]), ("0.5\n-2e1", [[0.5], [-20]])],
)
def test_a_text_of_labels(text: str, expected: list[Any]) -> None:
    Path("l.txt").write_text(text)
    found = dataset.labels_of(Path("l.txt"))
    assert found.tolist() == expected and (found.dtype.kind == "f") == ("." in text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "none.npz"], ["none.npz has no labels", "--labels FILE"]),
        (["--data", DATA, "--labels", "l.txt"], ["found 450 samples but 2 labels"]),
        (["--data", DATA, "--scores", "nope"], ["the model has no output 'nope'", "scores int8[1,10]"]),
        (["--data", DATA, "--metrics", "mae"], ["mae can't be computed", "for these labels: top1"]),
        (["--data", "shape.npz"], ["has the wrong shape", "expected  int8[1,1,8,8]", "found     int8[3,9,9]"]),
        (["--data", "eleven.npz"], ["a class from 0 to 9", "found     11 for sample 1"]),
        (["digits_int8_2.onnx", "--data", "none.npz"], ["none.npz has no labels"]),
        (["other.onnx", "--data", DATA], ["has the wrong type", "expected  float32[1,4]"]),
    ],
)
def test_wrong_data_are_reported_before_the_build(arguments: list[str], said: list[str], capsys: Captured) -> None:
    x = np.zeros((3, 8, 8), np.int8)[:, None]
    np.savez("none.npz", x=x)
    np.savez("shape.npz", x=np.zeros((3, 9, 9), np.int8), labels=[0, 1, 2])
    np.savez("eleven.npz", x=x, labels=[0, 11, 2])
    Path("l.txt").write_text("1\n2\n")
    shutil.copy(MODEL, "digits_int8_2.onnx")
    onnx.save(graphs.model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (1, 4))}, ["y"]), "other.onnx")
    assert app.invoke(["evaluate", MODEL, *arguments]) == 2
    reported = capsys.readouterr().err
    assert all(words in reported for words in said), reported
    assert not Path("build").exists()


@pytest.mark.parametrize(("outputs", "said"), [(4, "y has an input's shape"), (5, "y has 5 values")])
def test_labels_of_normal_and_anomalous_samples(outputs: int, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Relu reconstructs positive values; negative ones are the anomalies."""
    x = np.random.default_rng(0).random((20, 1, 4), np.float32) + 0.1
    labels = np.arange(20) % 2
    x[labels == 1] *= -1
    np.savez("data.npz", x=x, labels=labels)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    made = graphs.model(nodes, {"x": (np.float32, (1, 4))}, ["y"], {"w": np.eye(4, outputs, dtype=np.float32)})
    onnx.save(made, "net.onnx")
    found = mtool.evaluate("net.onnx", "data.npz", by_reference=True).figures
    assert said in caplog.text
    assert found.by_name == {"auc": 1.0, "map": 1.0} if outputs == 4 else "top1" in found.by_name


@pytest.mark.slow
def test_the_digits_on_the_host_and_in_qemu(capsys: Captured) -> None:
    boards = ["host", *(["mps2_an386"] if shutil.which("qemu-system-arm") else [])]
    found = []
    for board in boards:
        assert app.invoke(["evaluate", MODEL, "--data", DATA, "--board", board, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert found[-1].pop("board") == board and found[-1].pop("reused") == 0
    assert found[0] == found[-1] and found[0]["samples"] == 450
    assert found[0]["top1"] == pytest.approx(0.989, abs=0.001)
    assert np.trace(found[0]["confusion"]) == round(450 * found[0]["top1"])
    assert app.invoke(["evaluate", MODEL, "--data", DATA, "--samples", "100"]) == 0
    captured = capsys.readouterr()
    assert "100 of them kept from an earlier run" in captured.err and "rows are labels" in captured.out
    by_reference = mtool.evaluate(MODEL, DATA, by_reference=True)
    assert by_reference.reference == "onnxruntime" and by_reference.figures.by_name["top1"] == found[0]["top1"]


@pytest.mark.slow
@models.needed
def test_models_side_by_side_and_in_a_report(capsys: Captured) -> None:
    """Real values serve the float model and both int8 models; the labels are the float model's classes."""
    with np.load(models.golden("kws/kws_float32")) as data:
        np.savez("data.npz", x0=data["x0"], labels=data["y0"].reshape(4, -1).argmax(axis=1))
    paths = [str(models.path(f"kws/{name}")) for name in ("kws_float32", "kws_int8_qdq")]
    assert app.invoke(["evaluate", *paths, "--data", "data.npz", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["top1"]) for one in document["models"]] == [("kws_float32", 1), ("kws_int8_qdq", 1)]
    assert app.invoke(["evaluate", *paths, "--data", "data.npz"]) == 0
    shown = capsys.readouterr().out
    assert "kws_float32.onnx" in shown and "kws_int8_qdq.onnx" in shown and "rows are labels" not in shown
    assert app.invoke(["report", *paths, "--data", "data.npz", "-o", "page.html"]) == 0
    page = Path("page-kws_int8_qdq.html").read_text()
    accuracy = page[page.index('id="accuracy"') : page.index('id="boards"')]
    assert accuracy.count("100.0% (51.0% to 100.0%)") == 2 and 'id="confusion"' in accuracy
