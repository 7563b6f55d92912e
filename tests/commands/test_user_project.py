"""Users' own projects: created, built, run, updated; and steps in the wrong order."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from own import begin, line

from mtool import boards
from mtool.base import configuration, resources
from mtool.cli import app
from mtool.commands import new_project, user_project

Captured = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "p"
    assert begin(folder, line(folder.parent / "line.onnx"), "--option", "opt=-Os") == 0
    return folder


@pytest.fixture
def project(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a project, which is the working folder."""
    shutil.copytree(begun, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return tmp_path / "p"


@pytest.mark.slow
def test_the_program_is_the_users(project: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    main = project / "src" / "main.c"
    main.write_text(main.read_text().replace("0; /* element i", "(float)(i == 7); /* element i"))
    (project / "src" / "more.c").write_text("int more(void);\nint more(void) { return 1; }\n")
    assert app.invoke(["build"]) == 0
    capfdbinary.readouterr()
    assert app.invoke(["run"]) == 0
    assert capfdbinary.readouterr().out == b"y: largest at 7\n"
    main.write_text(main.read_text().replace("i == 7", "i == 3"))
    (project / "src" / "more.c").write_text("#error this file is the program's too\n")
    assert app.invoke(["run"]) == 5
    (project / "src" / "more.c").unlink()
    capfdbinary.readouterr()
    assert app.invoke(["run", "-q"]) == 0
    assert capfdbinary.readouterr().out == b"y: largest at 3\n"


@pytest.mark.product(2)
@pytest.mark.parametrize("board", ["netduinoplus2", "microbit"])
def test_a_program_ends_on_a_board_that_restarts(
    board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It restarted without end; a fault ends it as an error."""
    assert begin(tmp_path / "p", line(tmp_path / "line.onnx"), board=board) == 0
    monkeypatch.chdir(tmp_path / "p")
    capfdbinary.readouterr()
    assert app.invoke(["run", "-q"]) == 0
    assert capfdbinary.readouterr().out == b"y: largest at 0\n"
    main = tmp_path / "p" / "src" / "main.c"
    main.write_text(main.read_text().replace("0; /* element i", "0; __builtin_trap(); /* element i"))
    assert app.invoke(["run", "-q"]) != 0
    assert f"the program ended with a fault on {board}".encode() in capfdbinary.readouterr().err


def test_what_mtool_toml_says_holds_in_folders_below(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = user_project.require(project / "src")
    assert (found.board, found.type, found.model) == ("host", "standalone", project / "models" / "line.onnx")
    assert found.options_for("host").template_options == {"opt": "-Os"}
    assert found.options_for("mps2_an386").template_options == {}, "another template has other options"
    assert found.options_for("mps2_an386").program is None, "the program is for its board"
    monkeypatch.chdir(project / "src")
    assert app.invoke(["build", "--dry-run"]) == 0
    assert app.invoke(["build", str(project / "nothing.onnx")]) == 2, "a model that is given is the one"


def test_update_touches_nothing_of_the_users(project: Path, capsys: Captured) -> None:
    (project / "src" / "main.c").write_text("int main(void) { return 0; }\n")
    shutil.rmtree(project / "tests")
    line(project / "models" / "line.onnx", slope=3.0)
    before = {path: data for path, data in contents(project).items() if not path.startswith("generated/")}
    assert app.invoke(["update"]) == 0 and "updated" in capsys.readouterr().out
    assert {path: data for path, data in contents(project).items() if not path.startswith("generated/")} == before
    assert app.invoke(["update"]) == 0 and "up to date" in capsys.readouterr().out
    edited = project / "generated" / "model" / "line.c"
    edited.write_text("/* mine */\n")
    kept = contents(project)
    assert app.invoke(["update"]) == 2 and "model/line.c   edited" in capsys.readouterr().err
    assert contents(project) == kept
    assert app.invoke(["update", "--keep"]) == 0 and edited.read_text() == "/* mine */\n"
    assert app.invoke(["update", "--force"]) == 0 and edited.read_text() != "/* mine */\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "models/line.onnx"', 'model = "models/other.onnx"', "missing model"),
        ('board = "host"', 'bord = "host"', "did you mean board?"),
        ('board = "host"', "", "lacks board"),
        ('type = "standalone"', 'type = "sketch"', "type can't be 'sketch'"),
        ("[options]", "[options]\nopton = []", "did you mean option?"),
        ("[options]", "[options]\ndim = 3", "dim: expected a list, found 3"),
        ("[options]", '[options]\nio = "nowhere"', "'arena' or 'external'"),
    ],
)
def test_errors_in_mtool_toml_are_reported(project: Path, old: str, new: str, said: str, capsys: Captured) -> None:
    file = project / "mtool.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    before = contents(project)
    assert app.invoke(["update"]) == 2
    assert said in capsys.readouterr().err
    assert contents(project) == before


def test_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["update"], ["test"], ["mlperf", "--data", "x.npz"]):
        assert app.invoke(words) == 2
        assert "is not in a project of yours" in capsys.readouterr().err
    assert app.invoke(["build"]) == 2 and "missing argument 'MODEL...'" in capsys.readouterr().err
    assert app.invoke(["flash", "x.onnx"]) == 2 and "missing option '--board'" in capsys.readouterr().err


def test_new_writes_nothing_where_it_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = line(tmp_path / "line.onnx")
    there = tmp_path / "there"
    there.mkdir()
    (there / "README.md").write_text("mine")
    assert begin(there, model) == 2
    assert begin(tmp_path / "new", tmp_path / "nothing.onnx") == 2
    assert begin(tmp_path / "new", model, board="nothing") == 6
    assert begin(tmp_path / "new", model, "--option", "opt=-O9") == 2
    assert begin(tmp_path / "new", model, "--type", "mlperftiny", "--interface-api", "step", "--dim", "n") == 2
    assert contents(there) == {"README.md": b"mine"} and not (tmp_path / "new").exists()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:  # mtool's part can't be written, when the user's is there
        patched.setattr(new_project.CompiledModel, "render_project", full)
        assert begin(tmp_path / "new", model) == 2
        assert begin(there, model, "--keep") == 2
    assert contents(there) == {"README.md": b"mine"} and not (tmp_path / "new").exists()
    assert begin(there, model, "--keep") == 0
    assert (there / "README.md").read_text() == "mine" and (there / "src" / "main.c").is_file()
    assert begin(there, model, "--keep") == 2, "it is a project already"


def loose(workflow: str) -> list[str]:
    """Return the lines of a workflow that run something that its author can change afterwards."""
    used = re.compile(r"\s*- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    installed = re.compile(r".*pip install --require-hashes --requirement requirements\.txt")
    lines = workflow.splitlines()
    return [
        *(line for line in lines if "uses:" in line and not used.fullmatch(line)),
        *(line for line in lines if "pip install" in line and not installed.fullmatch(line)),
        *(line for line in lines if "pull_request_target" in line),
    ]


def test_every_workflow_names_actions_by_commit_and_packages_by_hash() -> None:
    roots = [resources.path("project_templates"), ROOT / ".github"]
    found = [path for root in roots for path in root.rglob("*.yml")]
    assert len(found) > 3
    assert {path.name: loose(path.read_text()) for path in found if loose(path.read_text())} == {}
    assert loose("- uses: actions/checkout@v4\n- run: pip install mtool-mcu\n") != []


@pytest.mark.product(3)
@pytest.mark.parametrize("board", ["host", "mps2_an386", "arduino_uno", "nucleo_l4r5zi"])
@pytest.mark.parametrize("kind", ["standalone", "host-driven", "mlperftiny"])
def test_each_kind_on_each_template(board: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "my project"
    more = ("--interface-api", "step") if kind == "standalone" else ()
    assert begin(folder, line(tmp_path / "line.onnx"), "--type", kind, *more, board=board) == 0
    files = contents(folder)
    read = tomllib.loads(files["mtool.toml"].decode())
    assert read["project"]["type"] == kind and read["options"] == (
        {"io": "external"} if kind == "mlperftiny" else {"interface-api": "step"} if more else {}
    )
    sources = {Path(name).name for name in files if name.startswith("src/")}
    main = {"main.cpp", "src.ino"} if board == "arduino_uno" else {"main.c"}
    own = {"standalone": main, "host-driven": set(), "mlperftiny": main | {"runner.c", "runner.h", "submitter.c"}}
    assert sources == own[kind]
    assert ("drive.py" in files) == (kind == "host-driven")
    is_attached = board in ("arduino_uno", "nucleo_l4r5zi")  # it is sold
    assert (".github/workflows/board.yml" in files) == is_attached
    for name, jobs in {
        ".github/workflows/mtool.yml": {"test"},
        ".github/workflows/release.yml": {"release"},
        ".github/workflows/board.yml": {"board"},
        ".gitlab-ci.yml": {"test", *(["board"] if is_attached else [])},
    }.items():
        if name in files:
            workflow = yaml.safe_load(files[name])
            assert jobs <= {*workflow.get("jobs", workflow)}
            assert b"://" not in files[name] and b"cookiecutter" not in files[name]
            assert loose(files[name].decode()) == []
    compile(files["tests/test_model.py"], "test_model.py", "exec")
    if kind == "host-driven":
        compile(files["drive.py"], "drive.py", "exec")
    if "src/main.c" in files and board == "mps2_an386":  # with what is on by default, its own code has no warnings
        headers = [f"-I{folder / 'generated' / name}" for name in ("model", "crt/include", "include")]
        for name in sources - {"runner.h"}:
            argv = ["cc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *headers, f"src/{name}"]
            assert subprocess.run(argv, cwd=folder, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an385", "arduino_mega2560"])
def test_a_path_is_not_a_pattern(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake's GLOB would read `*` and `?` of the folder, and take the sources of others or none."""
    other = tmp_path / "aXb c" / "project" / "src"
    other.mkdir(parents=True)
    (other / "other.c").write_text("int main(void) { return other; }\n")
    (tmp_path / "a*b ?").mkdir()
    monkeypatch.chdir(tmp_path / "a*b ?")
    assert begin(Path("project"), line(Path("line.onnx")), board=board) == 0
    monkeypatch.chdir("project")
    assert app.invoke(["build", "-q"]) == 0


def test_no_template_is_a_python_file_that_pip_would_compile() -> None:
    assert not [*resources.path("project_templates").rglob("*.py")]


def test_a_model_may_have_any_name(tmp_path: Path) -> None:
    model = line(tmp_path / 'a "b" \\ * 😀 \x7f.onnx')
    assert begin(tmp_path / "p", model) == 0
    assert user_project.require(tmp_path / "p").model.read_bytes() == model.read_bytes()


def test_limits_are_those_of_the_projects_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests run on an emulated one with other memories."""
    monkeypatch.chdir(tmp_path)
    model = line(tmp_path / "line.onnx", slope=1.0)
    assert begin(tmp_path / "p", model, "--board", "nucleo_l4r5zi", "--type", "host-driven") == 0
    (limits,) = tomllib.loads((tmp_path / "p" / "limits.toml").read_text()).values()
    memories = boards.get("nucleo_l4r5zi").memories
    assert (limits["flash_bytes"], limits["ram_bytes"]) == (memories["flash"].size, memories["sram"].size)


def test_an_emulated_board_with_the_same_processor_is_tested_on() -> None:
    named = {
        name: new_project.test_board_for(boards.get(name)) for name in ("nucleo_l4r5zi", "mps2_an386", "spresense")
    }
    assert all(board.emulator is not None and board.cpu == "cortex-m4" for board in named.values())
    assert named["mps2_an386"].name == "mps2_an386"
    assert new_project.test_board_for(boards.get("esp32s3_devkitc")).name == "host"


def test_a_board_of_the_working_folder_goes_with_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "here" / "boards").mkdir(parents=True)
    (tmp_path / "here" / "mtool.toml").write_text('board_root = "roots"\n')
    entries = yaml.safe_load(resources.path("boards.yaml").read_bytes())
    (tmp_path / "here" / "boards" / "mine.yaml").write_text(yaml.safe_dump({"my_board": entries["mps2_an386"]}))
    monkeypatch.chdir(tmp_path / "here")
    assert begin(tmp_path / "p", line(tmp_path / "line.onnx"), board="my_board") == 0
    monkeypatch.chdir(tmp_path / "p")
    assert boards.get("my_board").cpu == "cortex-m4" and user_project.require().test_board == "my_board"
    assert configuration.load().board_root == (tmp_path / "p" / "../here/roots",)
    assert app.invoke(["build", "--dry-run"]) == 0
