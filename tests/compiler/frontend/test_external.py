"""External data: read only from the model's folder, only where it is used, and part of the hash."""

import os
import resource
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend import from_proto, load
from mtool.compiler.frontend.hashing import file_hash
from mtool.compiler.frontend.reading import read, reread, runnable

WEIGHTS = np.arange(4, dtype=np.float32)


def external(location: str, name: str = "w", dims: tuple[int, ...] = (4,), **said: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **said}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])


def whole(
    nodes: list[onnx.NodeProto], tensors: list[TensorProto], functions: list[onnx.FunctionProto] | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=9)


def adding(tensor: TensorProto, output: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Add", ["x", "w"], [output])], "b", [], [value(output)], [tensor])


def as_initialiser(tensor: TensorProto) -> onnx.ModelProto:
    return whole([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def as_attribute(tensor: TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["x", "w"], ["y"])]
    return whole(nodes, [])


def as_sparse_initialiser(tensor: TensorProto) -> onnx.ModelProto:
    proto = as_initialiser(tensor)
    del proto.graph.initializer[:]
    places = helper.make_tensor("places", TensorProto.INT64, [4], [0, 1, 2, 3])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, places, [4]))
    return proto


def in_a_branch(tensor: TensorProto) -> onnx.ModelProto:
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=adding(tensor, "t"), else_branch=adding(tensor, "e"))
    return whole([node], [yes])


def in_a_function(tensor: TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["p", "w"], ["q"])]
    function = helper.make_function("f", "k", ["p"], ["q"], nodes, [helper.make_opsetid("", 17)])
    return whole([helper.make_node("k", ["x"], ["y"], domain="f")], [], [function])


def in_a_functions_branch(tensor: TensorProto) -> onnx.ModelProto:
    yes = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    branches = [adding(tensor, name) for name in "te"]
    for branch in branches:
        branch.node[0].input[0] = "p"
    node = helper.make_node("If", ["yes"], ["q"], then_branch=branches[0], else_branch=branches[1])
    function = helper.make_function("f", "k", ["p"], ["q"], [yes, node], [helper.make_opsetid("", 17)])
    return whole([helper.make_node("k", ["x"], ["y"], domain="f")], [], [function])


PLACES: list[Callable[[TensorProto], onnx.ModelProto]] = [
    as_initialiser, as_attribute, as_sparse_initialiser, in_a_branch, in_a_function, in_a_functions_branch,
]  # fmt: skip
everywhere = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)


def save(folder: Path, proto: onnx.ModelProto, name: str = "m.onnx") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(proto.SerializeToString())
    return folder / name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a model, beside one that is the working folder; both of which, and that above, have data."""
    for name in ("model", "working"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "working")
    for name in ("secret", "working/cwd"):
        (tmp_path / name).write_bytes(WEIGHTS.tobytes())
    return tmp_path / "model"


@everywhere
def test_it_is_read_from_the_models_folder(place: Callable[[TensorProto], onnx.ModelProto], folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "w.bin").write_bytes(b"\0" * 8 + WEIGHTS.tobytes())
    graph = load(save(folder, place(external("sub/w.bin", offset="8", length="16"))))
    assert any(np.array_equal(data, WEIGHTS) for data in graph.constants.values())


@everywhere
@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("../secret", "outside its folder"),
        ("sub/../../secret", "outside its folder"),
        ("/etc/hostname", "outside its folder"),
        ("link", "outside its folder"),
        ("way/secret", "outside its folder"),
        ("a\0b", "can't be read"),
        ("", "can't be read"),
        ("cwd", "is missing"),
        (".", "can't be read"),
        ("sub", "can't be read"),
        ("pipe", "can't be read"),
    ],
)
def test_what_is_not_a_file_below_it_is_refused(
    place: Callable[[TensorProto], onnx.ModelProto], location: str, what: str, folder: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("../secret")
    (folder / "way").symlink_to("..")
    os.mkfifo(folder / "pipe")
    path = save(folder, place(external(location, length="16")))
    for reader in (load, runnable, reread, file_hash):
        with pytest.raises(ModelError, match=what):
            reader(path)


def test_a_link_is_refused_wherever_it_leads(folder: Path) -> None:
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "link").symlink_to("w.bin")
    with pytest.raises(ModelError, match="outside its folder"):
        load(save(folder, as_initialiser(external("link"))))


@pytest.mark.parametrize(
    "said",
    [
        {"offset": "x"}, {"offset": "-1"}, {"offset": "1"}, {"offset": "17"}, {"length": "15"}, {"length": "0x10"},
        {"length": "99999999999999999999999"}, {"offset": "9223372036854775807"}, {"length": "²"}, {"length": "-16"},
    ],
)  # fmt: skip
def test_offset_and_length_have_to_be_those_of_the_tensor(said: dict[str, str], folder: Path) -> None:
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = save(folder, as_initialiser(external("w.bin", **said)))
    for reader in (load, file_hash):
        with pytest.raises(ModelError, match="can't be read") as refused:
            reader(path)
        assert "'w'" in refused.value.details[0]


def test_the_hash_is_of_the_data_too(folder: Path) -> None:
    path = save(folder, as_initialiser(external("w.bin")))
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    first = file_hash(path)
    (folder / "w.bin").write_bytes((WEIGHTS + 1).tobytes())
    second = file_hash(path)
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    assert first == file_hash(path) != second


def test_the_hash_of_one_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    import hashlib

    proto = as_initialiser(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    proto.doc_string = "its location"
    path = save(tmp_path, proto)
    assert file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_only_what_is_used_is_read(folder: Path) -> None:
    """Of files as large as their file system lets them be."""
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(30 << 30)
        file.write(WEIGHTS.tobytes())
    unused = external("huge.bin", "u", (30 << 28,), length=str(30 << 30))
    proto = as_initialiser(external("huge.bin", length="16"))
    proto.graph.initializer.append(unused)
    path = save(folder, proto)
    tracemalloc.start()
    load(path)
    file_hash(path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    proto.graph.node[0].input[1] = "u"
    with pytest.raises(ModelError, match="limit 'constants'"):
        load(save(folder, proto))


def test_an_unused_tensor_may_not_lead_out_either(folder: Path) -> None:
    proto = as_initialiser(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    proto.graph.initializer.append(external("../secret", "u"))
    with pytest.raises(ModelError, match="outside its folder"):
        load(save(folder, proto))


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("m.onnx", "m.tflite"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"\x1c\0\0\0TFL3")
            file.truncate(30 << 30)
        with pytest.raises(ModelError, match="limit 'file'"):
            load(tmp_path / name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@everywhere
def test_a_model_in_memory_has_none(place: Callable[[TensorProto], onnx.ModelProto], folder: Path) -> None:
    for location in ("cwd", "../secret", "*/_ORT_MEM_ADDR_/*"):
        with pytest.raises(ModelError, match="has external data"):
            from_proto(place(external(location, length="16")), "m")


@everywhere
def test_onnxruntime_gets_the_bytes_that_were_read(
    place: Callable[[TensorProto], onnx.ModelProto], folder: Path
) -> None:
    ort = pytest.importorskip("onnxruntime")
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = save(folder, place(external("w.bin")))
    given = runnable(path)
    assert isinstance(given, bytes)
    assert b"w.bin" not in given
    session = ort.InferenceSession(given, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros(4, np.float32)})[0], WEIGHTS)
    plain = save(folder, as_initialiser(onnx.numpy_helper.from_array(WEIGHTS, "w")), "plain.onnx")
    assert runnable(plain) == str(plain)


def test_training_graphs_are_left_out(folder: Path) -> None:
    proto = as_initialiser(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    info = proto.training_info.add()
    info.algorithm.CopyFrom(adding(external("../secret"), "t"))
    assert not read(save(folder, proto)).training_info
