"""A model's text is escaped everywhere: with hostile names in every place, the code stays the same."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import amount
import numpy as np
import onnx
import pytest
import yaml
from conventions import CONVENTIONS
from graphs import HOST, NO_FPU, compiled, model, run_c
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from mtool import boards, project
from mtool.base.escaping import c_string, comment, encodable, file_name, one_line, plain, visible
from mtool.base.filetree import FileTree
from mtool.base.option_values import Io
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan
from mtool.manifest import Manifest

EVIL = [
    "*/ int evil(void) { return 1; } /*",
    "\n#error evil\r\nset(EVIL 1)\rEVIL=1\n*\\\n/ int evil(void); /\\\n*",
    '"; int evil; char *s = "%s%n\') "',
    "$(touch evil)${EVIL}`evil`{{ 7 * 7 }}{% evil %}@EVIL@",
    "<script>evil()</script>[red]evil[/red]](javascript:evil)|-->",
    "\x1b]0;evil\x07\x1b[2J\x9b31m\u202e\u2066\u200bevil\x00",
]
HOSTILE = {
    "everything": "".join(EVIL),
    "joined": "*/??/",  # a backslash at the end, where trigraphs are heeded
    "backslash": "*/\\",
    "long": "*/" + "evil " * 2_000,
}
PLACES = {
    "host": (HOST, "external"),
    "mps2_an386": (Target("cortex-m4", frozenset({"fpu", "dsp"})), "arena"),
    "qemu_riscv32": (NO_FPU, "arena"),
    "native_sim": (HOST, "external"),
    "arduino_mega2560": (Target("avr5", frozenset()), "external"),
}
HASH = "0" * 64


@dataclass(frozen=True)
class Names:
    """How things of the model are called, by their places in it."""

    inside: Mapping[str, str]
    file: str

    def __call__(self, place: str) -> str:
        return self.inside.get(place, place)


INSIDE = ["x1", "x2", "y1", "y2", "h", "h_next", "w", "b", "mid", "mul1", "mul2", "add", "relu"]
INSIDE += ["call", "function", "parameter", "result", "local", "neg", "sigmoid"]
AROUND = ["graph", "producer", "document", "key", "dim", "opset"]


def hostile(text: str) -> Names:
    return Names({place: place + text for place in (*INSIDE, *AROUND)}, re.sub("[/\x00]", "_", "f" + text[:150]))


def like(manifest: Manifest) -> Names:
    """Plain names, of which the same C names are made."""
    options = ["x1", "x2", "h"] if not manifest.states else ["x1", "x2"]
    returned = ["y1", "y2", "h_next"] if not manifest.states else ["y1", "y2"]
    pairs = [*zip(options, manifest.inputs, strict=True), *zip(returned, manifest.outputs, strict=True)]
    pairs += [("h", state) for state in manifest.states]  # type: ignore[misc]
    return Names({place: tensor.c_name for place, tensor in pairs}, manifest.model)


def network(n: Names) -> onnx.ModelProto:
    """Products that share C, a state, a chain of elementwise operators, a function: a name wherever there is one."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("MatMul", [n("x1"), n("w")], [n("mid")], name=n("mul1"), doc_string=n("document")),
        helper.make_node("MatMul", [n("x2"), n("w")], ["other"], name=n("mul2")),
        helper.make_node("Add", [n("mid"), n("b")], ["sum"], name=n("add")),
        helper.make_node("Relu", ["sum"], [n("y1")], name=n("relu")),
        helper.make_node("Add", ["other", n("h")], [n("h_next")]),
        helper.make_node(n("function"), [n("h_next")], [n("y2")], name=n("call"), domain=n("opset")),
    ]
    body = [
        helper.make_node("Neg", [n("parameter")], [n("local")], name=n("neg"), doc_string=n("document")),
        helper.make_node("Sigmoid", [n("local")], [n("result")], name=n("sigmoid")),
    ]
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function(
        n("opset"), n("function"), [n("parameter")], [n("result")], body, imports, doc_string=n("document")
    )
    shape = [n("dim"), 4]
    inputs = [helper.make_tensor_value_info(n(name), 1, shape) for name in ("x1", "x2", "h")]
    outputs = [helper.make_tensor_value_info(n(name), 1, shape) for name in ("y1", "y2", "h_next")]
    constants = {"w": rng.standard_normal((4, 4)), "b": rng.standard_normal(4)}
    weights = [numpy_helper.from_array(data.astype(np.float32), n(name)) for name, data in constants.items()]
    graph = helper.make_graph(nodes, n("graph"), inputs, outputs, weights, doc_string=n("document"))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(n("opset"), 1)]
    made = helper.make_model(
        graph, opset_imports=opsets, ir_version=8, producer_name=n("producer"), functions=[function]
    )
    helper.set_model_props(made, {n("key"): n("document")})
    return made


def planned(n: Names, folder: Path, *, states: bool, io: Io = "arena", target: Target = HOST) -> Plan:
    path = folder / f"{n.file}.onnx"
    path.write_bytes(network(n).SerializeToString())
    options = ModelOptions(dims={n("dim"): 2}, states=((n("h_next"), n("h")),) if states else ())
    return make_plan(passes.run(frontend.load(path, options), target), target, io)


def twins(text: str, folder: Path, *, states: bool, io: Io = "arena", target: Target = HOST) -> list[tuple[Plan, str]]:
    """Return the plan of the network with hostile names and with plain ones, and their files' names."""
    names = hostile(text)
    plan = planned(names, folder, states=states, io=io, target=target)
    plainly = like(codegen.generate(plan, "", HASH)[1])
    again = planned(plainly, folder, states=states, io=io, target=target)
    return [(plan, f"{names.file}.onnx"), (again, f"{plainly.file}.onnx")]


_C = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|\S|\n', re.DOTALL)
_TRIGRAPHS = dict(zip("=/'()!<>-", "#\\^[]|{}~", strict=True))


def c_tokens(text: str) -> list[str]:
    """Return the tokens of C as a compiler sees them: trigraphs, joined lines, neither comments nor strings."""
    text = re.sub(r"\?\?([=/'()!<>-])", lambda found: _TRIGRAPHS[found[1]], text)
    text = re.sub(r"\\[ \t]*\n", "", text)
    tokens = [token for token in _C.findall(text) if not token.startswith(("/*", "//"))]
    return ['""' if token[0] == '"' and len(token) > 1 else token for token in tokens]


def structure(path: str, text: str) -> object:
    """Return what a file means to the program that reads it, without what may differ: comments, and what is shown."""
    name = Path(path).name
    if name.endswith((".c", ".h", ".cpp", ".ino", ".ld", ".S", ".overlay")):
        return c_tokens(text)
    if name.endswith(".json"):
        return _without_text(json.loads(text))
    if name.endswith((".yml", ".yaml")):
        return yaml.safe_load(text)
    if name.endswith((".cmake", "CMakeLists.txt", "Kconfig", ".conf")):
        lines = [line for line in text.split("\n") if not line.startswith("#")]
        return [re.sub(r'(?<=mainmenu )"[^"$\\]*"$|(?<=bool )"[^"$\\]*"$', '""', line) for line in lines]
    if name.endswith(".properties"):
        return [line for line in text.split("\n") if not line.startswith("sentence=")], text.count("\n")
    if name == "README.md":
        return text.split("\n")[1:]
    return text


def _without_text(value: Any) -> object:
    """Return JSON without its strings' content, but for names that mtool gave."""
    if isinstance(value, dict):
        return {key: _without_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_text(inner) for inner in value]
    return re.fullmatch(r"\w*", value) is not None and value if isinstance(value, str) else value


def same(one: FileTree, other: FileTree) -> None:
    assert [*one] == [*other]
    for path in one:
        text = one.text(path)
        if not path.endswith(".json"):  # JSON has every name exactly
            shown = text.replace("\n", "").replace("\t", "")
            assert shown.isprintable(), (path, [char for char in shown if not char.isprintable()][:5])
            assert len(text) < len(other.text(path)) + 20_000 or path.endswith("_graph.c"), path
        if not path.endswith("json"):
            assert structure(path, text) == structure(path, other.text(path)), path


@pytest.mark.product(3)
@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=[*HOSTILE])
def test_generated_c_has_the_tokens_of_the_same_model_with_plain_names(text: str, io: Io, tmp_path: Path) -> None:
    for states in (False, True):
        pair = twins(text, tmp_path, states=states, io=io)
        for name, chosen in CONVENTIONS.items():
            if states and name not in ("c", "step"):
                continue
            (files, manifest), (others, _) = (codegen.generate(plan, file, HASH, chosen) for plan, file in pair)
            assert manifest.inputs[0].name == "x1" + text and "mul1" + text in manifest.operators[0].origins  # exact
            assert manifest.model_file == pair[0][1]
            same(files, others)


@pytest.mark.product(3)
@pytest.mark.parametrize("board", PLACES)
@pytest.mark.parametrize("text", ["everything", "joined"])
def test_projects_and_packages_mean_the_same_with_plain_names(text: str, board: str, tmp_path: Path) -> None:
    (target, io), found = PLACES[board], boards.get(board)
    pair = twins(HOSTILE[text], tmp_path, states=False, io=io, target=target)  # type: ignore[arg-type]
    made = [codegen.generate(*each, HASH) for each in pair]
    for template in found.templates:
        trees = [project.render(*each, found, template=template)[0] for each in made]
        same(*trees)
        written = json.loads(trees[0]["mtool.json"])["models"][0]
        assert [tensor["name"] for tensor in written["inputs"]] == [tensor.name for tensor in made[0][1].inputs]
    for form in project.FORMATS if board == "host" else ():
        trees = [project.package(project.Packed(project.Module(*each)), form) for each in made]
        if form == "mlf":  # the model's own file lies in it
            assert not [path for path in trees[0] if re.search(r"[^\w./ (),:+=…-]", path)]
        else:
            same(*trees)


def test_no_foreign_code_runs(tmp_path: Path) -> None:
    mark = tmp_path / "evil"
    code = (
        f'extern int system(const char *); __attribute__((constructor)) static void e(void) {{ system("touch {mark}");'
    )
    name = f"x*/ {code} }} /*"
    graph = model([helper.make_node("Relu", [name], ["y"], name=name)], {name: (np.float32, (2,))}, ["y"])
    (result,) = run_c(compiled(graph), {name: np.asarray([-1, 2], np.float32)}, tmp_path)
    assert result.tolist() == [0, 2]
    assert not mark.exists()


def test_a_file_whose_name_is_not_text_compiles(tmp_path: Path) -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (2,))}, ["y"])
    files, manifest = codegen.generate(compiled(graph), "a\udcff\udc80.onnx", HASH)
    assert manifest.model_file == "a\ufffd\ufffd.onnx" and b"model_file" in manifest.to_json()
    assert files.text("test.c")


def test_comments_of_generated_c_are_written_by_one_module() -> None:
    """In the code generator a comment is a whole constant: what is put between its marks would not be made safe."""
    sources = [*Path(codegen.__file__).parent.glob("*.py")]
    assert len(sources) > 10
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "/*":
                assert node.value.count("/*") == node.value.count("*/"), f"{path.name}:{node.lineno}"
            if isinstance(node, ast.JoinedStr):
                fixed = [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
                assert not [part for part in fixed if "/*" in part or "*/" in part], f"{path.name}:{node.lineno}"


def test_the_manifest_says_which_of_its_text_is_the_models() -> None:
    """Any other text is of the code generator's making: a C name, a number, a word of a list."""
    own = {
        *("c_name", "dtype", "initial", "name", "whole", "function", "label", "schedule", "shape", "mtool_version"),
        *("model", "model_hash", "constants", "symbols", "functions", "graph", "template", "build_hash", "options"),
        *("firmware", "memory", "io", "interface_api", "operators_api", "executor", "builder", "transport", "moves"),
        *("calls", "dims", "symbol", "reshapes", "backend", "region", "levels", "constants_in", "section"),
        "program",  # a folder of the user's
    }
    schema = Manifest.model_json_schema()
    for title, record in schema["$defs"].items():
        own_of = {"kind"} if title == "Claim" else set()
        if title in (
            "Tensor",
            "SizeRange",
            "StateTensor",
            "Source",
            "Operand",
            "Operator",
            "PoolOfArena",
            "Project",
            "Claim",
            "Refusal",
        ):
            for key, kind in record["properties"].items():
                if '"string"' in json.dumps(kind) and key not in own | own_of:
                    of_model = {"output", "input", "tensor", "value", "parts", "origins", "count", "dimension"}
                    assert key in of_model | {"operator", "reason"}, (title, key)


@pytest.mark.slow
@settings(max_examples=amount.of(300, 30), deadline=None)
@given(st.lists(st.text() | st.sampled_from([*HOSTILE.values()]), min_size=1, max_size=4))
def test_a_comment_is_one_comment(lines: list[str]) -> None:
    assert c_tokens(f"{comment(*lines)} int after;") == ["int", "after", ";"]
    assert c_tokens(comment(*lines, apart=True) + "\nint after;") == ["\n", "int", "after", ";"]
    assert comment(*lines).count("\n") == len(lines) - 1
    assert "??" not in comment(*lines)  # compilers warn of a trigraph that joins lines, and of an open comment in one
    assert comment(*lines).count("/*") == 1 and not re.search(r"\\\s*$", comment(*lines, "end"), re.MULTILINE)


@settings(max_examples=amount.of(300, 30), deadline=None)
@given(st.text() | st.sampled_from([*HOSTILE.values()]))
def test_a_string_is_one_string(text: str) -> None:
    literal = c_string(text)
    assert literal.isascii() and c_tokens(f"{literal};") == ['""', ";"]
    octal = re.sub(r"\\([0-7]{3}|.)", lambda found: chr(int(found[1], 8)) if len(found[1]) == 3 else found[1], literal)
    assert octal[1:-1].encode("latin-1") == text.encode("utf-8", "surrogatepass")


@settings(max_examples=amount.of(300, 30), deadline=None)
@given(st.text(st.characters()) | st.sampled_from([*HOSTILE.values()]))
def test_shown_text_is_printable_and_short(text: str) -> None:
    assert visible(text).isprintable() and one_line(text, 100).isprintable() and len(one_line(text, 100)) <= 100
    assert not set(plain(text)) & set("\"'`$\\<>[]{}|#;&*%!?~^\n\r\t") and len(plain(text)) <= 80
    assert "/" not in file_name(text) and not file_name(text).startswith(".") and file_name(text)
    assert len(encodable(text).encode().decode()) == len(text)


def test_ordinary_text_stays() -> None:
    for text in ("serving_default_x:0", "stem/conv_1", "Größe 日本", "a.b-c (1), 2+3=5"):
        assert visible(text) == one_line(text) == text
        assert comment(text) == f"/* {text} */"
        assert file_name(text.replace("/", " ")) == text.replace("/", " ")
    assert one_line("x" * 100, 21) == "xxxxxxx…xxxxxxxxxxxxx"
