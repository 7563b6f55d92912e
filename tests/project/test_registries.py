"""Registries' requirements for packages: Arduino's Library Manager, the ESP Component Registry, CMSIS-Packs."""

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import packages
import pytest
import yaml

from mtool import commands
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.project import About
from tests.arduino import sine

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
ADA = About("Ada Lovelace <ada@example.org>", "https://ada.example.org/digits", "1.2.3", "Ada")


def properties_of(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines())


def broken_rules(folder: Path) -> Iterator[str]:
    """Yield the rules of arduino-lint 1.3 for a library that a folder breaks, "strict" and "submit" (LP.., LS.., LD..).

    After the library specification and arduino-lint's table of rules; those that ask the network are not here.
    """
    own = properties_of(folder)
    names = {path.name for path in folder.iterdir()}
    needed = ("name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures")
    yield from (f"LP: no {key}" for key in needed if not own.get(key))
    yield from (f"LP006 {key}" for key in {*own} - {*needed, "includes", "dot_a_linkage", "depends"})
    name = own["name"]
    checks = {
        "LS003 characters of the folder's name": re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", folder.name),
        "LS005 links": not [path for path in folder.rglob("*") if path.is_symlink()],
        "LS006 .development": ".development" not in names,
        "LS007 programs": not [*folder.rglob("*.exe")],
        "LS008 a header of the library's name": (folder / f"src/{name}.h").is_file(),
        "LS009 src": "src" in names,
        "LS010 utility": "utility" not in names,
        "LS011 extras": not {each for each in names if each.lower().startswith("extra")} - {"extras"},
        "LP009 length of the name": len(name) <= 63,
        "LP011 characters of the name": re.fullmatch(r"[a-zA-Z][a-zA-Z0-9 _.\-]*", name),
        "LP012 whose name it is": not re.match(r"arduino", name, re.IGNORECASE),
        "LP015 blanks": " " not in name,
        "LP021 version": re.fullmatch(r"\d+\.\d+\.\d+", own["version"]),
        "LP027 whose it is": not re.match(r"arduino", own["maintainer"], re.IGNORECASE),
        "LP036 the paragraph says more": own["sentence"] not in own["paragraph"],
        "LP038 category": own["category"] == "Data Processing",
        "LP041 url": re.fullmatch(r"https?://[^ ]+\.[^ ]+", own["url"]),
        "LP044 architectures": re.fullmatch(r"\*|[a-z0-9_]+(,[a-z0-9_]+)*", own["architectures"]),
        "LP052 includes": all((folder / "src" / each).is_file() for each in own["includes"].split(",")),
        "LC001 Arduino.h": "arduino.h" not in "".join(path.read_text() for path in folder.rglob("*.[ch]")),
        "LD001 readme": "README.md" in names,
        "LD002 license": "LICENSE" in names and "Apache License" in (folder / "LICENSE").read_text(),
        "LD003 sketches": {path.parent.parent.name for path in folder.rglob("*.ino")} == {"examples"},
        "LD004 examples": all(path.stem == path.parent.name for path in folder.rglob("*.ino")),
    }
    yield from (rule for rule, holds in checks.items() if not holds)
    for line in (folder / "keywords.txt").read_text().splitlines():
        if line and not re.fullmatch(r"#.*|[A-Za-z_]\w*\t(KEYWORD[12]|LITERAL1)", line):
            yield f"keywords.txt: {line}"


@pytest.mark.parametrize("board", ["mps2_an386", "arduino_mega2560", "nano_33_ble"])
def test_an_arduino_library_keeps_the_library_managers_rules(board: str, tmp_path: Path) -> None:
    model = tmp_path / "arduino_sine.onnx"
    sine.write(model)
    for path in (DIGITS, model):
        compiled = commands.compile(path, board=board)
        folder = packages.write(compiled, tmp_path / path.stem / "lib", form="arduino-lib", about=ADA)
        broken = [rule for rule in broken_rules(folder) if path is DIGITS or not rule.startswith("LS008")]
        assert not broken
    own = properties_of(tmp_path / "digits_int8/lib")
    assert own["author"] == ADA.author and own["url"] == ADA.url and own["version"] == "1.2.3"
    assert own["architectures"] != "*", "it is for one board"
    words = (tmp_path / "digits_int8/lib/keywords.txt").read_text()
    header = (tmp_path / "digits_int8/lib/src/digits_int8.h").read_text()
    assert all(word in header for word in re.findall(r"^(\w+)\t", words, re.MULTILINE))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = commands.compile(DIGITS, board="host")
    folder = packages.write(compiled, tmp_path_factory.mktemp("pack"), form="cmsis-pack", about=ADA)
    (path,) = folder.glob("*.pack")
    return path


def test_a_pack_is_named_and_described_as_the_standard_says(pack: Path, tmp_path: Path) -> None:
    assert pack.name == "Ada.digits_int8.1.2.3.pack"
    with zipfile.ZipFile(pack) as archive:
        members = archive.namelist()
        assert members.count("Ada.digits_int8.pdsc") == 1 and "/" not in "Ada.digits_int8.pdsc"
        described = archive.read("Ada.digits_int8.pdsc")
    package = ElementTree.fromstring(described)
    assert [child.tag for child in package] == [
        *("vendor", "name", "description", "url", "license", "releases", "keywords", "taxonomy", "conditions"),
        "components",
    ]
    assert package.findtext("vendor") == "Ada" and package.findtext("name") == "digits_int8"
    assert package.findtext("license") in members
    release = package.find("releases/release")
    assert release is not None and release.get("version") == "1.2.3"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", release.get("date", ""))
    (component,) = package.findall("components/component")
    assert component.get("condition") in [each.get("id") for each in package.findall("conditions/condition")]
    files = component.findall("files/file")
    named = [file.get("name", "") for file in files]
    assert {name for name in members if name.endswith(".c")} == {name for name in named if name.endswith(".c")}
    assert len({Path(name).name for name in named}) == len(named), "tools put all objects into one folder"
    for file in files:
        name = file.get("name", "")
        is_there = any(each.startswith(name) for each in members) if name.endswith("/") else name in members
        assert is_there and file.get("category") in ("doc", "include", "header", "source")


@pytest.mark.skipif("PACK_XSD" not in os.environ, reason="PACK_XSD names no schema of Open-CMSIS-Pack")
def test_a_pack_is_valid_against_the_schema(pack: Path, tmp_path: Path) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    shutil.unpack_archive(pack, tmp_path, "zip")
    xmlschema.XMLSchema(os.environ["PACK_XSD"]).validate(tmp_path / "Ada.digits_int8.pdsc")


def test_a_component_of_esp_idf_builds_and_its_example_runs(tmp_path: Path) -> None:
    for program in ("cmake", "ninja", "cc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    compiled = commands.compile(DIGITS, board="host")
    folder = packages.write(compiled, tmp_path / "digits_int8", form="idf-component", about=ADA)
    described = yaml.safe_load((folder / "idf_component.yml").read_text())
    assert described["version"] == "1.2.3" and described["maintainers"] == [ADA.author]
    assert len(described["description"]) <= 255 and described["url"] == ADA.url
    idf = tmp_path / "idf/tools/cmake"
    idf.mkdir(parents=True)
    shutil.copyfile(Path(__file__).parent / "idf.cmake", idf / "project.cmake")
    project = folder / "examples/digits_int8_example"
    environment = {**os.environ, "IDF_PATH": str(tmp_path / "idf")}
    for argv in (["cmake", "-G", "Ninja", "-S", project, "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(argv, cwd=tmp_path, env=environment, check=True, capture_output=True)
    said = subprocess.run([tmp_path / "build/app"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[:2] for line in said] == [["scores", str(index)] for index in range(10)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ulr=https://x.org", "did you mean url?"),
        ("version=1.0", "three numbers: 1.0.0"),
        ("url=x.org", "an address that begins with"),
        ('author=A"B', "without"),
        ("vendor=A B", "letters, digits"),
    ],
)
def test_what_no_registry_takes_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        About.of([text])
    assert says in str(caught.value)


def test_two_models_of_one_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["compile", str(DIGITS), str(DIGITS), "--emit", "arduino-lib"]) == 2
    assert "same name" in capsys.readouterr().err
