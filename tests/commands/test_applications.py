"""Applications: created, recordings sent through their program, and compared with labels and this computer."""

import json
import shutil
import wave
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from own import begin

import mtool
from mtool.base import resources
from mtool.base.errors import FitError, MismatchError, UsageError
from mtool.cli import app
from mtool.commands import replaying, user_project
from mtool.commands.new_project import with_front_end
from mtool.stages.options import Options

Captured = pytest.CaptureFixture[str]
HOP = 320  # samples: 20 ms


def loudness(path: Path, hops: int = 1) -> Path:
    """Write a model whose score is the mean magnitude of hops, 1.0 at 4096."""
    nodes = [
        helper.make_node("Cast", ["pcm"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Abs", ["real"], ["magnitude"]),
        helper.make_node("ReduceMean", ["magnitude"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["mean", "step"], ["scaled"]),
        helper.make_node("Min", ["scaled", "one"], ["score"]),
    ]
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in (("step", 2**-12), ("one", 1))]
    inputs = [helper.make_tensor_value_info("pcm", TensorProto.INT16, [1, hops * HOP])]
    outputs = [helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def clip(path: Path, *loud: tuple[float, float], seconds: float = 3.0, rate: int = 16_000, channels: int = 1) -> Path:
    """Write a recording that is loud from each start to its end."""
    samples = np.zeros((int(seconds * rate), channels), "<i2")
    for start, end in loud:
        samples[int(start * rate) : int(end * rate), 0] = 4000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return path


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "hey"
    assert begin(folder, loudness(folder.parent / "loudness.onnx"), "--app", "wakeword") == 0
    return folder


@pytest.fixture
def project(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a project, which is the working folder."""
    shutil.copytree(begun, tmp_path / "hey")
    monkeypatch.chdir(tmp_path / "hey")
    return tmp_path / "hey"


def test_recordings_go_through_the_program(project: Path, capsys: Captured) -> None:
    clip(project / "clips" / "a.wav", (0.5, 0.8), (1.0, 1.2), (2.0, 2.5), channels=2)
    clip(project / "clips" / "b.wav", (2.9, 3.0))
    (project / "clips" / "a.txt").write_text("0.5\t0.8\tkeyword\n2.0\t2.5\tkeyword\n")
    assert app.invoke(["replay", "clips", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Three hops are averaged; the second word comes within the refractory time of the first.
    assert found["clips"] == {
        "clips/a.wav": [{"keyword": "keyword", "at_s": 0.56}, {"keyword": "keyword", "at_s": 2.06}],
        "clips/b.wav": [{"keyword": "keyword", "at_s": 2.96}],
    }
    assert found["hops"] == 300 and found["hop_ms"] == 20 and found["missed_hops"] < 150
    assert 0 < found["duty_percent"] < 50
    (project / "clips" / "b.txt").write_text("0.1\t0.2\tkeyword\n")
    assert app.invoke(["replay", "clips/b.wav"]) == 9
    said = capsys.readouterr().err
    assert "b.wav: keyword at 0.10 s is not detected; detected: keyword at 2.96 s" in said
    assert "is detected at 2.96 s, where there is no label" in said


def test_recordings_that_can_not_be_used(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = replaying.settings_of(user_project.require())
    with pytest.raises(UsageError, match="there are no recordings"):
        replaying.read_clips([project / "clips"], settings)
    with pytest.raises(UsageError, match="has another format"):
        replaying.read_clips([clip(project / "slow.wav", rate=8000)], settings)
    for content in (b"", b"RIFF"):
        (project / "bad.wav").write_bytes(content)
        with pytest.raises(UsageError, match=r"is not a recording\n.*ends inside its header"):
            replaying.read_clips([project / "bad.wav"], settings)
    with pytest.raises(UsageError, match="has no samples"):
        replaying.read_clips([clip(project / "zero.wav", seconds=0)], settings)
    cut = clip(project / "cut.wav", seconds=1)
    cut.write_bytes(cut.read_bytes()[:-100])
    with caplog.at_level("WARNING"):
        assert len(replaying.read_clips([cut], settings)[0].samples) == 15_950
    assert "15950 of the 16000 samples" in caplog.text
    path = clip(project / "a.wav")
    for text, said in (
        (b"1\tkeyword\n", "a.txt:1 is not a label"),
        (b"\n1\t2\tother\n", "a.txt:2: 'other' is not in"),
        (b"\xff\xfe", "a.txt is not text in UTF-8"),
        (b"2\t1\tkeyword\n", "a.txt:1: 2 to 1 s is not a part of it"),
        (b"2\t4\tkeyword\n", "a.txt:1: 2 to 4 s is not a part of it"),
        (b"nan\t2\tkeyword\n", "a.txt:1: nan to 2 s is not a part of it"),
    ):
        path.with_suffix(".txt").write_bytes(text)
        with pytest.raises(UsageError, match=said):
            replaying.read_clips([path], settings)


def test_recordings_are_read_once_also_with_an_extensible_header(project: Path) -> None:
    settings = replaying.settings_of(user_project.require())
    folder = project / "clips"
    plain = clip(folder / "a.wav", (0.1, 0.2), seconds=0.5).read_bytes()
    extended = (40).to_bytes(4, "little") + b"\xfe\xff" + plain[22:36]
    extended += bytes.fromhex("16001000040000000100000000001000800000aa00389b71")
    (folder / "B.WAV").write_bytes(b"RIFF" + (16060).to_bytes(4, "little") + plain[8:16] + extended + plain[36:])
    clips = replaying.read_clips([folder, folder / "a.wav", folder / ".." / "clips" / "a.wav"], settings)
    assert sorted(one.path.name for one in clips) == ["B.WAV", "a.wav"]
    assert np.array_equal(clips[0].samples, clips[1].samples) and len(clips[0].samples) == 8000


def test_the_rate_is_that_of_the_front_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 40]) for name in ("x", "score"))
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["score"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    front = mtool.preprocess(
        ("decimate:by=3", "log_mel:rate=8000"), tmp_path / "m.onnx", output=tmp_path / "front.onnx"
    )
    values = ("--app", "wakeword", "--model", str(front.path), "--board", "host")
    assert app.invoke(["new", str(tmp_path / "hey"), *values]) == 0
    assert "keyword: element 0 of the 80 of score; change it in [app.keywords] of mtool.toml" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "hey")
    slow = clip(Path("clips/a.wav"), rate=16_000)
    assert app.invoke(["replay", str(slow)]) == 2
    said = capsys.readouterr().err
    assert "expected  16 bits a sample, 24000 Hz" in said and "set rate" not in said
    file = Path("mtool.toml")
    file.write_text(file.read_text().replace("rate = 24000", "rate = 16000"))
    for command in (["replay", str(slow)], ["update"]):
        assert app.invoke(command) == 2
        assert "rate in [app] is 16000\n  the front end in front.onnx is for 24000" in capsys.readouterr().err


def test_other_detections_than_here_are_reported(project: Path) -> None:
    one = replaying.Clip(project / "a.wav", np.zeros(HOP, np.int16), None)
    detected = (replaying.Detection("keyword", 0.02),)
    host = replaying.Heard(one, (5, 6), (), (1.0, 1.0))
    for heard, said in (
        (replaying.Heard(one, (5, 6), detected, (1.0, 30.0)), "found     keyword at 0.02 s"),
        (replaying.Heard(one, (5, 7), (), (1.0, 30.0)), "the score after hop 1 is 7, expected 6"),
    ):
        replayed = replaying.Replay("mps2_an386", 20.0, (heard,), (host,), is_estimated=True)
        with pytest.raises(MismatchError) as raised:
            replayed.check_host()
        assert said in str(raised.value)
        with pytest.raises(FitError, match="mps2_an386 misses 1 of 2 hops: it is too slow"):
            replayed.check_in_time()
        assert replayed.missed == 1 and replayed.worst_ms == 30 and replayed.duty == pytest.approx(31 / 40)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threshold = 0.9", "threshold = 1.5", "threshold: expected at most 1, found 1.5"),
        ("release = 0.5", "release = 0.95", "release (0.95) is above threshold (0.9)"),
        ("smoothing = 3", "smoothing = 65", "smoothing"),
        ("smoothing = 3", "smooth = 3", "smooth: there is no such key; did you mean smoothing?"),
        ("smoothing = 3", "smoothing = 2.5", "smoothing: expected a whole number, found 2.5"),
        ('"keyword" = 0', "", "keywords: expected a length of at least 1, found {}"),
        ('"keyword" = 0', '"keyword" = 1', "keyword: expected 0 to 0, elements of score, found 1"),
        ('"keyword" = 0', '"keyword" = false', "keywords.keyword: expected a whole number, found false"),
        ('"keyword" = 0', '"yes" = 0\n"no" = 0', "keywords: yes and no are the same element, 0"),
        ('"keyword" = 0', '"key\\"word" = 0', 'keywords.key"word'),
        ('type = "wakeword"', 'type = "standalone"', "is not an application"),
    ],
)
def test_errors_in_the_settings(project: Path, old: str, new: str, said: str, capsys: Captured) -> None:
    file = project / "mtool.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert app.invoke(["update"]) == 2
    assert said in capsys.readouterr().err


def test_of_two_keywords_in_a_hop_the_louder_one_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's second score is half the first; both reach the threshold in the same hop."""
    path = loudness(tmp_path / "two.onnx")
    proto = onnx.load(path)
    proto.graph.node[-1].output[0] = "one_score"
    proto.graph.node.append(helper.make_node("Mul", ["one_score", "shares"], ["score"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.float32([[1, 0.5]]), "shares"))
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    onnx.save(proto, path)
    assert begin(tmp_path / "hey", path, "--app", "wakeword") == 0
    monkeypatch.chdir(tmp_path / "hey")
    file = Path("mtool.toml")
    changed = (
        ("threshold = 0.9", "threshold = 0.1"),
        ("release = 0.5", "release = 0.1"),
        ("smoothing = 3", "smoothing = 1"),
    )
    text = file.read_text().replace('"keyword" = 0', '"loud" = 0\n"soft" = 1')
    for old, new in changed:
        text = text.replace(old, new)
    file.write_text(text)
    a = clip(Path("clips/a.wav"), (0.5, 0.8))
    (heard,) = replaying.replay(user_project.require(), [a]).heard
    assert heard.detections == (replaying.Detection("loud", 0.52),)


def test_a_devicetree_without_a_microphone_is_named() -> None:
    """The driver's file says what to write, before the devicetree's macros fail."""
    (sensor,) = (resources.path("project_templates") / "own" / "wakeword" / "src").glob("*sensor.c{*")
    assert "!DT_NODE_HAS_STATUS(MICROPHONE, okay)" in sensor.read_text()


def test_only_the_boards_sensor_is_recorded(project: Path, capsys: Captured) -> None:
    assert app.invoke(["record"]) == 2
    assert "has no sensor" in capsys.readouterr().err


@pytest.mark.long
def test_a_recording_begins_with_an_empty_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that slides, the program's reset clears the window, here and on a board."""
    path = loudness(tmp_path / "window.onnx", hops=4)
    values = ("--app", "wakeword", "--slide", f"pcm={HOP}")
    assert begin(tmp_path / "hey", path, *values, board="mps2_an386") == 0
    monkeypatch.chdir(tmp_path / "hey")
    clips = [clip(Path(f"clips/{name}.wav"), (0.1, 0.2), seconds=0.2) for name in "ab"]
    found = replaying.replay(user_project.require(), clips)
    found.check_host()
    first, again = (one.scores for one in found.heard)
    assert first == again and first[0] == 0 < first[-1]


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("board", ["mps2_an386", "qemu_riscv32", "arduino_mega2560"])
def test_each_template(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The program of an Arduino board runs on its own test board, too: its C part."""
    folder = tmp_path / "my hey"
    test_board = ("--test-board", "mps2_an385") if board.startswith("arduino") else ()
    assert begin(folder, loudness(tmp_path / "loudness.onnx"), "--app", "wakeword", *test_board, board=board) == 0
    clip(folder / "clips" / "a.wav", (0.5, 0.8))
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert app.invoke(["replay", "clips", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clips"] == {"clips/a.wav": [{"keyword": "keyword", "at_s": 0.56}]} and found["missed_hops"] == 0
    if board.startswith("arduino"):
        assert app.invoke(["build"]) == 0


def test_a_known_model_gets_its_front_end(tmp_path: Path, capsys: Captured) -> None:
    for shape in ([1, 3, 40], [1, 5, 40]):
        values = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind in (("features", TensorProto.INT8), ("score", TensorProto.FLOAT))
        ]
        constants = [
            numpy_helper.from_array(data, name) for name, data in (("s", np.float32(0.1)), ("z", np.int8(-128)))
        ]
        nodes = [helper.make_node("DequantizeLinear", ["features", "s", "z"], ["score"])]
        graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
        path = tmp_path / f"rows_{shape[1]}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    with with_front_end(tmp_path / "rows_3.onnx", Options(), needs_one=True) as whole:
        assert onnx.load(whole).graph.input[0].name == "pcm"
    with with_front_end(tmp_path / "rows_5.onnx", Options(), needs_one=False) as whole:
        assert whole == tmp_path / "rows_5.onnx"
    assert begin(tmp_path / "p", tmp_path / "rows_5.onnx", "--app", "wakeword") == 2
    assert "rows_5.onnx does not take samples of a sensor" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.product(2)
@models.needed
@pytest.mark.parametrize(
    ("model", "detections", "duty_percent"),
    [
        ("sww/str_ww_ref_model", {"marvin_617de221_0.wav": 1, "short_wav_easy10s.wav": 2}, 25),
        ("public/okay_nabu", {}, 60),
    ],
)
def test_a_published_model_hears_its_word(
    model: str,
    detections: dict[str, int],
    duty_percent: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    """MLPerf Tiny's recordings have its word; okay_nabu hears nothing in them."""
    folder = tmp_path / "hey"
    assert begin(folder, models.FOLDER / f"{model}.tflite", "--app", "wakeword", board="mps2_an386") == 0
    for path in (models.FOLDER / "sww").glob("*.wav"):
        shutil.copy(path, folder / "clips")
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert app.invoke(["replay", "clips", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = {Path(name).name: len(heard) for name, heard in found["clips"].items()}
    assert len(counts) == 2 and counts == {**dict.fromkeys(counts, 0), **detections}
    assert found["missed_hops"] == 0 and found["duty_percent"] < duty_percent
