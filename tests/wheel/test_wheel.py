"""The wheel in its own environment: it contains all that mtool needs, whatever the working folder."""

import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from mtool.base import distribution
from mtool.version import __version__

ROOT = Path(__file__).parents[2]
# A hint that would install a stranger's package: mtool is another's name on PyPI.
STRANGER = re.compile(r"\bmtool\[[a-z]|pip install (-U )?['\"]?mtool\b(?!-)")
TEXTS = ("*.py", "*.md", "*.yaml", "*.toml", "*.sh")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a bare environment with the wheel, and with its dependencies from this one."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(distribution.NAME.replace("-", "_") + f"-{__version__}-")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(
        [*install, "--no-compile", "--disable-pip-version-check"], check=True, capture_output=True, timeout=120
    )
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (own / "dependencies.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # a path alone: what is editable there is not
    return python


def run(python: Path, *arguments: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [str(python), *arguments]
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_runs_from_any_folder(python: Path, tmp_path: Path) -> None:
    found = json.loads(run(python, "-m", "mtool", "demo", "--board", "host", "--json", cwd=tmp_path))
    assert found["boards"]["host"]["accuracy"] > 0.95
    assert (tmp_path / "build" / "digits-host" / "mtool.json").is_file()


def test_it_has_its_own_data_and_its_version(python: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.metadata, json, mtool; from mtool import boards, project; from mtool.base import resources; "
        f"print(json.dumps([mtool.__file__, importlib.metadata.version({distribution.NAME!r}), "
        "[str(resources.path(n)) for n in ('boards.yaml', 'crt', 'project_templates', 'examples/digits')], "
        "len(boards.load_all()), [e.value for e in importlib.metadata.distribution('mtool-mcu').entry_points]]))"
    )
    file, version, data, count, entries = json.loads(run(python, "-c", code, cwd=tmp_path))
    inside = Path(file).parent
    assert python.parents[1] in inside.parents
    assert version == __version__
    assert (inside / "py.typed").is_file()
    assert all(inside / "data" in Path(path).parents for path in data)
    assert count > 40 and "mtool.cli:main" in entries


TYPED = """
import mtool

def fits(path: str) -> bool:
    options = mtool.Options(
        conventions=mtool.conventions("packed"), backends=(mtool.BackendSpec("cmsis_nn", options={"path": "x"}),)
    )
    try:
        reveal_type(mtool.compile(path, board="host", options=options))
    except (mtool.FitError, mtool.errors.UsageError) as error:
        reveal_type(error.exit_code)
    return mtool.compile(path, board=3)
"""


@pytest.mark.slow
def test_the_wheel_contains_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(TYPED)
    argv = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(python),
        "--cache-dir",
        "cache",
        "user.py",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert 'Revealed type is "mtool.stages.compiling.CompiledModel"' in done.stdout
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.int", "int")
    assert 'Argument "board" to "compile" has incompatible type "int"' in done.stdout
    assert 'got "CompiledModel", expected "bool"' in done.stdout and "Found 2 errors in 1 file" in done.stdout, (
        done.stdout
    )


def test_no_hint_installs_a_strangers_package() -> None:
    folders = [ROOT / name for name in ("mtool", "docs", "examples", "project_templates", "tests", "scripts")]
    files = [path for folder in folders for text in TEXTS for path in folder.rglob(text)]
    files += [*ROOT.glob("*.md"), ROOT / "scripts" / "setup"]
    found = [f"{path}: {match[0]}" for path in files if (match := STRANGER.search(path.read_text(encoding="utf-8")))]
    assert not found
    assert len(files) > 500
    assert distribution.install("verify") == "pip install 'mtool-mcu[verify]'"


# The first version that no published advisory names.
MENDED = {
    "cryptography": "46.0.5", "filelock": "3.20.3", "jinja2": "3.1.6", "onnx": "1.21.0", "pillow": "12.2.0",
    "protobuf": "6.33.5", "distributed": "2026.1.0", "pytest": "9.0.3", "numpy": "1.22.2", "pydantic": "2.4.0",
    "pyyaml": "5.4", "cookiecutter": "2.1.1", "scikit-learn": "1.5.0",
}  # fmt: skip


def test_each_dependency_has_a_least_version_without_a_known_hole() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = described["optional-dependencies"].values()
    for line in itertools.chain(described["dependencies"], *extras):
        needed = Requirement(line)
        least = [Version(one.version) for one in needed.specifier if one.operator in (">=", "==")]
        assert least and least[0] >= Version(MENDED.get(needed.name.lower(), "0.dev0")), line
