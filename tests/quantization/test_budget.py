"""Bits chosen for a budget, recipes, and the changes of a QDQ model to more bits."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.base.errors import FitError, UsageError
from mtool.cli import app
from mtool.commands import Scheme
from mtool.quantization import recipes, rounding
from mtool.quantization.budget import Bench, Bits, Budget, Cost, Point, Score, Search, Start
from mtool.verification.oracles import ort

quantization = pytest.importorskip("onnxruntime.quantization")
RANDOM = np.random.default_rng


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_budget_is_read_and_written() -> None:
    found = Budget.parse("flash = 64K, ram=1.5KiB,ms=30ms,accuracy=-0.5,sqnr=20dB")
    assert found == Budget(65536, 1536, 30.0, -0.5, 20.0)
    assert Budget.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rom=64K", "'rom' is not a limit"),
        ("flash=1K,flash=2K", "'flash' is given twice"),
        ("flash=-1", "flash has to be a size such as 64K; found '-1'"),
        ("accuracy=90", "accuracy has to be a change in percentage points, 0 or less; found '90'"),
        ("ms=fast", "ms has to be milliseconds; found 'fast'"),
        ("", "'' is not a limit"),
    ],
)
def test_a_wrong_budget(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Budget.parse(text)
    assert said in refused.value.what and "flash=64K" in refused.value.hint


def network(path: Path, layers: int = 4, size: int = 8) -> onnx.ModelProto:
    """Write a chain of dense layers."""
    nodes, constants, value = [], dict[str, graphs.Array](), "x"
    for number in range(layers):
        constants |= {f"w{number}": RANDOM(number).normal(0, size**-0.5, (size, size)).astype(np.float32)}
        nodes.append(helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [f"s{number}"], name=f"fc{number}"))
        constants |= {f"b{number}": RANDOM(9 + number).normal(0, 0.1, size).astype(np.float32)}
        value = f"a{number}" if number < layers - 1 else "y"
        nodes.append(helper.make_node("Relu", [f"s{number}"], [value], name=f"r{number}"))
    made = graphs.model(nodes, {"x": (np.float32, (1, size))}, ["y"], constants)
    onnx.save(made, path)
    return made


def samples(count: int = 20, size: int = 8) -> list[dict[str, graphs.Array]]:
    return [{"x": RANDOM(number).normal(size=(1, size)).astype(np.float32)} for number in range(count)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Return a float model and its QDQ model."""
    folder = tmp_path_factory.mktemp("start")
    floats = network(folder / "net.onnx")
    with warnings.catch_warnings(action="ignore"):
        quantization.quantize_static(
            folder / "net.onnx", folder / "int8.onnx", Reader(), quant_format=quantization.QuantFormat.QDQ,
            per_channel=True, extra_options={"WeightSymmetric": True},
        )  # fmt: skip
    return Start(floats, onnx.load(folder / "int8.onnx"), samples(), folder)


class Reader:
    def __init__(self) -> None:
        self.left = iter(samples())

    def get_next(self) -> dict[str, graphs.Array] | None:
        return next(self.left, None)


class Fake:
    """A bench whose figures are sums over layers, as if each model had been measured."""

    def __init__(self, search: dict[str, dict[int, float]], sizes: Mapping[int, float], together: float) -> None:
        self.loss, self.sizes, self.together, self.samples = search, sizes, together, 10_000
        self.bits = Bits({})

    def bench(self) -> Bench:
        def judge(model: onnx.ModelProto) -> Score:
            lost = sum(self.loss[name][bits] for name, bits in self.bits.weights.items())
            lost += self.together * (2 in self.bits.weights.values())
            return Score(0.9 - lost, 30 - 100 * lost)

        def price(model: onnx.ModelProto) -> Cost:
            return Cost(round(sum(self.sizes[bits] for bits in self.bits.weights.values())))

        return Bench(judge, price, 0.9, is_labelled=True, samples=self.samples)


def searched(
    monkeypatch: pytest.MonkeyPatch,
    start: Start,
    limits: Budget | None,
    of_2_bits: float = 0.004,
    together: float = 0.0,
) -> tuple[Bits, int]:
    """Return the bits that a search chooses and the number of models in its front; no model is really quantized."""
    loss = {f"fc{n}": {8: 0.0, 4: 0.001 * (4 - n), 2: of_2_bits * (4 - n)} for n in range(4)}
    fake = Fake(loss, {8: 64, 4: 32, 2: 16}, together)

    def with_bits(self: Start, bits: Bits, listener: object = None) -> onnx.ModelProto:
        fake.bits = bits
        return start.integers

    def sensitivity(self: Search) -> object:
        return loss, dict.fromkeys(loss, fake.sizes)

    monkeypatch.setattr(Start, "with_bits", with_bits)
    monkeypatch.setattr(Search, "sensitivity", sensitivity)
    found, front = Search(start, fake.bench(), limits, lambda done, total: None).choice()
    assert found in front and list(front) == sorted(front, key=lambda one: -(one.cost.flash or 0))
    return found.bits, len(front)


def test_the_most_accurate_within_a_limit_of_cost(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    bits, _ = searched(monkeypatch, start, Budget(flash=160))
    assert sum({8: 64, 4: 32, 2: 16}[one] for one in bits.weights.values()) in (144, 160)
    assert bits.weights["fc0"] >= bits.weights["fc3"]


def test_equal_bits_are_chosen_where_the_steps_lose_more_together(
    monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    steps, _ = searched(monkeypatch, start, Budget(flash=130), of_2_bits=0.0012)
    assert 2 in steps.weights.values()
    bits, _ = searched(monkeypatch, start, Budget(flash=130), of_2_bits=0.0012, together=0.1)
    assert {*bits.weights.values()} == {4}


def test_the_smallest_within_a_limit_of_accuracy(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    for limits in (Budget(accuracy=-0.5), None):
        bits, size = searched(monkeypatch, start, limits)
        lost = sum((4 - n) * {8: 0, 4: 1, 2: 4}[bits.weights[f"fc{n}"]] for n in range(4))
        assert 0 < lost <= 5 and bits.weights["fc0"] > bits.weights["fc3"] and size > 1


def test_what_the_nearest_model_misses(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    with pytest.raises(FitError) as refused:
        searched(monkeypatch, start, Budget(flash=32, accuracy=-0.1))
    assert (
        refused.value.exit_code == 4 and refused.value.what == "no model is within the budget flash=32B,accuracy=-0.1"
    )
    *tried, nearest, needs = refused.value.details
    assert len(tried) > 2 and all(line.startswith("tried: ") for line in tried)
    assert tried[0].startswith("tried: 8 bits, weights 256 B, flash 256 B")
    assert nearest.startswith("the nearest: 2 bits")
    assert needs == "it needs flash: 64 B of 32 B, accuracy: 3.9 points less"
    with pytest.raises(UsageError, match="no estimate of ms"):
        searched(monkeypatch, start, Budget(ms=3))


@pytest.mark.parametrize(("samples", "expected"), [(400, "b"), (40_000, "a"), (40, "b")])
def test_accuracies_within_their_standard_error_are_equal(
    monkeypatch: pytest.MonkeyPatch, start: Start, samples: int, expected: str
) -> None:
    fake = Fake({f"fc{n}": {8: 0.0} for n in range(4)}, {8: 64}, 0)
    fake.samples, fake.bits = samples, Bits(dict.fromkeys(fake.loss, 8))
    monkeypatch.setattr(Start, "with_bits", lambda *_: start.integers)
    search = Search(start, fake.bench(), Budget(flash=1000), lambda done, total: None)
    of = {"a": (Score(0.905, 20.0), 30), "b": (Score(0.900, 22.04), 20), "c": (Score(0.900, 21.96), 25)}
    search.points = {
        name: Point(Bits({name: 8}), size, Cost(size), score, start.integers) for name, (score, size) in of.items()
    }
    assert search.best() == search.points[expected]


def test_wide_activations_keep_their_range(start: Start, tmp_path: Path) -> None:
    """Their range ends at zero where onnxruntime has left out Relu."""
    groups = rounding.activations_of(start.integers)
    assert ("x",) in groups and len(groups) == 5
    noise = []
    for tensors in (set[str](), {name for group in groups for name in group}):
        made = start.copy()
        rounding.widen(made, tensors)
        onnx.save(made, tmp_path / "made.onnx")
        network(tmp_path / "net.onnx")
        one, other = (
            np.stack([each["y"] for each in ort.outputs(str(tmp_path / name), samples(), title=name)])
            for name in ("net.onnx", "made.onnx")
        )
        noise.append(np.square(one - other).sum())
    assert noise[1] < 0.7 * noise[0]
    assert not {tensor.name for tensor in made.graph.initializer} - {
        name for node in made.graph.node for name in node.input
    }


def test_a_layer_is_left_in_float(start: Start, tmp_path: Path) -> None:
    made = start.copy()
    for layer in start.layers:
        rounding.keep_float(made, start.floats, layer)
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node].count("DequantizeLinear") == 5
    assert {"w0", "b0"} <= {tensor.name for tensor in made.graph.initializer}


def test_a_recipe_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"model")
    names = ("a", 'b "quoted" \\ ü', "c\n\x7f")
    row = recipes.Row(bits="4 bits", weight_bytes=100, sqnr_db=12.5, accuracy=0.5, chosen=True)
    sha = hashlib.sha256(b"model").hexdigest()
    result = recipes.Result(sha256=sha, board="host", budget="", measure="by the labels")
    origin, bits = recipes.Made.of(tmp_path / "a.onnx", samples(2)), Bits(dict.fromkeys(names, 4), ("t:0",))
    made = recipes.Recipe.of(origin, Scheme(exclude=("n",), integer_io=True), bits, result, [row])
    assert made.scheme.exclude == ["n"] and made.scheme.integer_io
    (tmp_path / "a.toml").write_bytes(made.as_toml())
    assert recipes.read(tmp_path / "a.toml") == made == recipes.of_model(tmp_path / "a.onnx")
    assert made.bits == bits
    (tmp_path / "a.onnx").write_bytes(b"another")
    assert recipes.of_model(tmp_path / "a.onnx") is None
    (tmp_path / "b.toml").write_text("[made]\nmodel = 1\n")
    with pytest.raises(UsageError, match="is not a recipe"):
        recipes.read(tmp_path / "b.toml")
    (tmp_path / "c.toml").write_bytes(made.as_toml().replace(b"a = 4", b"a = 5"))
    with pytest.raises(UsageError, match=r"weights\.a: expected 8, 4, 2 or 32, found 5"):
        recipes.read(tmp_path / "c.toml")
    with pytest.raises(UsageError, match="exists and is not a recipe"):
        recipes.check_target(tmp_path / "b.toml", [])


def test_options_that_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="chooses the weights' bits"):
        mtool.quantize("net.onnx", [], budget="flash=1K", scheme=Scheme(weights="int4"))
    assert app.invoke(["quantize", "net.onnx", "--data", "a.npz", "--recipe", "a.toml", "--weights", "int8"]) == 2
    assert "leave out --weights, or --recipe" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"^gone.toml does not exist"):
        mtool.quantize("net.onnx", [], recipe="gone.toml")
    with pytest.raises(UsageError, match="has the whole scheme"):
        mtool.quantize("net.onnx", [], budget="flash=1K", recipe="a.toml")


def test_a_recipe_has_the_bits_of_all_layers(start: Start) -> None:
    with pytest.raises(UsageError, match="the recipe lacks the bits of 2 layers: fc1, fc3"):
        start.with_bits(Bits({"fc0": 8, "fc2": 4}))
    with pytest.raises(UsageError, match="the model has no 'fc9'"):
        start.with_bits(Bits({f"fc{n}": 8 for n in (0, 1, 2, 3, 9)}))


@pytest.mark.slow
def test_a_recipe_makes_the_same_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network(tmp_path / "net.onnx", size=40)
    np.savez(tmp_path / "data.npz", x=np.concatenate([one["x"] for one in samples(50, 40)]))
    quantize = ["quantize", "net.onnx", "--data", "data.npz"]
    assert app.invoke([*quantize, "--board", "mps2_an386", "--budget", "sqnr=15", "-o", "a.onnx"]) == 0
    captured = capsys.readouterr()
    assert "chosen" in captured.out and "wrote a.onnx, and its recipe a.toml" in captured.out
    found = recipes.read(tmp_path / "a.toml")
    assert min(found.weights.values()) < 8 and found.result.budget == "sqnr=15" and found.front[0].flash_bytes
    assert app.invoke([*quantize, "--recipe", "a.toml", "-o", "b.onnx"]) == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert not (tmp_path / "b.toml").exists() and "differs from the recipe" not in capsys.readouterr().err
    np.savez(tmp_path / "data.npz", x=np.concatenate([one["x"] for one in samples(40, 40)]))
    assert app.invoke([*quantize, "--recipe", "a.toml", "-o", "b.onnx", "--json"]) == 0
    captured = capsys.readouterr()
    assert "the calibration data are others" in captured.err and json.loads(captured.out)["front"] == []
    report = mtool.report("a.onnx", board="mps2_an386")
    assert "Bits by layer" in report.as_html() and report.as_json()["front"]


@pytest.mark.slow
def test_more_bits_where_accuracy_is_lacking(tmp_path: Path) -> None:
    network(tmp_path / "net.onnx", size=40)
    data = samples(50, 40)
    least = 6 + max(row.sqnr_db for row in mtool.quantize("net.onnx", data, budget="sqnr=1", output="a.onnx").front)
    done = mtool.quantize("net.onnx", data, budget=f"sqnr={least}", output="a.onnx")
    assert done.recipe is not None and done.outputs[0].sqnr_db is not None and done.outputs[0].sqnr_db >= least
    assert recipes.read(done.recipe).activations
    mtool.verify("a.onnx", board="host").check()
    with pytest.raises(FitError, match="sqnr=140"):
        mtool.quantize("net.onnx", data, budget="sqnr=140", output="a.onnx")
