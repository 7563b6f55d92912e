import ast
import functools
import shutil
from pathlib import Path

import pytest
import toy

from mtool import boards, manifest, project
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree

pytestmark = pytest.mark.long

MODEL, MANIFEST = toy.compiled()
PAIRS = [(board, template) for board in boards.load_all().values() for template in board.templates]


@functools.cache
def rendered(board: str, template: str) -> tuple[FileTree, manifest.Manifest]:
    return project.render(MODEL, MANIFEST, boards.get(board), template=template)


@pytest.mark.product(2)
@pytest.mark.parametrize(("board", "template"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_a_project_is_whole_and_the_same_each_time(board: boards.Board, template: str) -> None:
    first, described = rendered(board.name, template)
    again, _ = project.render(MODEL, MANIFEST, board, template=template)
    assert first.files == again.files
    assert {"mtool.json", "README.md"} <= set(first)
    (build_header,) = [path for path in first if path.endswith("/mt_build.h")]
    assert {"toy.c", "toy.h", "mt_server.c", "mtool.h"} <= {Path(path).name for path in first}
    (read,) = manifest.Firmware.model_validate_json(first["mtool.json"]).manifests()
    assert read == described
    written = described.project
    assert written is not None
    assert written.board.model_dump() == board.placed_by(template).model_dump()
    assert written.template == template
    assert f'"{written.build_hash}"' in first.text(build_header)
    assert set(written.firmware) == {"host_driven", "standalone"}
    for path in first:
        assert "cookiecutter" not in first.text(path), path


@pytest.mark.parametrize(("board", "template"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_a_project_has_the_headers_of_the_runtime_that_it_includes(board: boards.Board, template: str) -> None:
    tree, _ = rendered(board.name, template)
    own = {path.name for path in (resources.path("crt") / "include").iterdir()}
    present = {Path(path).name for path in tree} & own
    includes = {line.strip() for path in tree for line in tree.text(path).splitlines() if "#include" in line}
    wanted = {name for line in includes for name in own if is_included(name, line)}
    assert present == wanted
    assert not [name for name in present if name.startswith(("mt_mve", "mt_dsp", "mt_f32"))]


def is_included(name: str, line: str) -> bool:
    return line.strip().startswith("#include") and name in line


def test_a_template_of_ones_own_gets_the_headers_that_it_includes(tmp_path: Path) -> None:
    shutil.copytree(resources.path("project_templates") / "host", tmp_path / "mine")
    main = tmp_path / "mine/{{cookiecutter.folder}}/src/extra.cpp"
    main.write_text("# include <crt/include/mt_mve_int16.h>\n")
    tree, _ = project.render(MODEL, MANIFEST, boards.get("host"), template=str(tmp_path / "mine"))
    assert {path for path in tree if "/mt_mve" in path} == {"crt/include/mt_mve_int16.h", "crt/include/mt_mve.h"}


@pytest.mark.slow
def test_mains_and_ports_are_short() -> None:
    for board, template in PAIRS:
        tree, _ = project.render(MODEL, MANIFEST, board, template=template)
        own = [path for path in tree if Path(path).stem in ("main", "port") and not path.startswith("standalone/")]
        assert len(own) == 2, own
        assert len("".join(tree.text(path) for path in own).splitlines()) <= 150, template


@pytest.mark.slow
def test_what_a_board_adds_to_a_zephyr_project_is_short() -> None:
    for board, template in PAIRS:
        own = "\n".join(str(board.port[key]) for key in ("overlay", "conf") if key in board.port)
        assert len(own.splitlines()) <= 20, board.name
        if template == "zephyr":
            tree, _ = project.render(MODEL, MANIFEST, board, template=template)
            assert ("app.overlay" in tree) == ("overlay" in board.port), board.name


def test_no_board_is_named_in_a_template_or_compared_with_in_the_code() -> None:
    names = set(boards.load_all()) - {"host"}  # "host" is a template and a builder too
    for path in resources.path("project_templates").rglob("*"):
        assert not path.is_file() or not [name for name in names if name in path.read_text()], path
    for path in resources.path("mtool").rglob("*.py"):
        text = path.read_text()
        if any(name in text for name in names):
            conditions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare)]
            assert not [name for name in names for node in conditions if name in ast.unparse(node)], path


def test_the_build_hash_is_over_model_and_options() -> None:
    board = boards.get("host")

    def build_hash(files: FileTree, **options: str) -> str:
        _, described = project.render(files, MANIFEST, board, options=options)
        assert described.project is not None
        return described.project.build_hash

    other = FileTree({**MODEL.files, "toy.c": MODEL["toy.c"] + b"\n"})
    hashes = {build_hash(MODEL), build_hash(other), build_hash(MODEL, opt="-O3"), build_hash(MODEL, opt="-Os")}
    assert len(hashes) == 4
    assert build_hash(MODEL, opt="-O2") == build_hash(MODEL)


def test_an_option_reaches_the_project_and_the_manifest() -> None:
    options = {"stack_bytes": "1024", "opt": "-O3"}
    tree, described = project.render(MODEL, MANIFEST, boards.get("mps2_an386"), options=options)
    assert ". += 1024;" in tree.text("src/linker.ld")
    assert "-O3" in tree.text("CMakeLists.txt")
    assert described.project is not None
    expected = {"opt": "-O3", "stack_bytes": "1024", "rpc_buffer_bytes": "4096"}
    assert described.project.options.items() >= expected.items()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"optimise": "-O3"}, "has no option 'optimise'"),
        ({"modules": "signed"}, "does not support modules"),
        ({"opt": "-O9"}, "one of -O2, -O3, -Os"),
        ({"rpc_buffer_bytes": "16"}, "a number of at least"),
        ({"rpc_buffer_bytes": "many"}, "a number of at least"),
    ],
)
def test_a_wrong_option_names_what_would_be_right(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        project.render(MODEL, MANIFEST, boards.get("host"), options=options)
    assert says in str(caught.value)


def test_an_unknown_template_names_those_that_are_there() -> None:
    with pytest.raises(UsageError, match="no template 'yocto'") as caught:
        project.render(MODEL, MANIFEST, boards.get("host"), template="yocto")
    assert "baremetal, host" in str(caught.value)


@pytest.mark.parametrize(
    ("board", "template"), [("host", "arduino"), ("mps2_an386", "host"), ("arduino_uno", "zephyr")]
)
def test_a_template_that_does_not_know_the_board_is_refused(board: str, template: str) -> None:
    with pytest.raises(UsageError, match=f"{board} has no template {template}") as caught:
        project.render(MODEL, MANIFEST, boards.get(board), template=template)
    assert caught.value.details[0].startswith("it has: ")


def test_a_template_says_what_the_board_does_not_have() -> None:
    board = boards.get("mps2_an386").model_copy(update={"timer": None})
    with pytest.raises(UsageError, match="needs a value that the board does not have"):
        project.render(MODEL, MANIFEST, board)
    board = boards.get("mps2_an386").model_copy(update={"port": {"startup": "z80"}})
    with pytest.raises(UsageError, match=r"lacks startup/z80\.c") as caught:
        project.render(MODEL, MANIFEST, board)
    assert "templates/startup/cortex_m.c" in caught.value.details


def test_a_users_own_folder_is_a_template(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "{{cookiecutter.folder}}").mkdir(parents=True)
    entry = "description: d\nbuilder: host\ntransport: process\nfirmware: {standalone: build/app}\n"
    (folder / "template.yaml").write_text(entry)
    name = "{{cookiecutter.folder}}/{{cookiecutter.model}}_app.c"
    (folder / name).write_text('// {{ cookiecutter.sources.model | join(" ") }}\n{% include "shared/standalone.c" %}')
    tree, _ = project.render(MODEL, MANIFEST, boards.get("host"), template=str(folder))
    assert tree.text("toy_app.c").startswith("// model/toy.c model/toy_weights.c\n")
    assert "toy_run(&toy_arena_inputs" in tree.text("toy_app.c")
    (folder / "template.yaml").write_text(entry + "speed: fast\n")
    with pytest.raises(UsageError, match="does not match the schema") as caught:
        project.render(MODEL, MANIFEST, boards.get("host"), template=str(folder))
    assert "speed" in caught.value.details[0]
    (folder / "template.yaml").write_text(entry.replace("build/app", "out/app"))
    with pytest.raises(UsageError, match="does not match the schema") as caught:
        project.render(MODEL, MANIFEST, boards.get("host"), template=str(folder))
    assert "firmware.standalone" in caught.value.details[0]


def test_external_tensors_are_the_standalone_programs_own() -> None:
    outside = {
        "io": "external",
        "inputs": tuple(tensor.model_copy(update={"arena_offset": None}) for tensor in MANIFEST.inputs),
    }
    tree, _ = project.render(MODEL, MANIFEST.model_copy(update=outside), boards.get("host"))
    assert "static uint32_t output_y[4];" in tree.text("src/standalone.c")
    assert "toy_run(&inputs, &outputs)" in tree.text("src/standalone.c")
