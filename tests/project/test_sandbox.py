"""Rendering a user's template runs only Jinja, unless its author is trusted."""

import json
from pathlib import Path

import pytest
import toy

from mtool import boards, project
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree

MODEL, MANIFEST = toy.compiled()
ENTRY = "description: d\nbuilder: host\ntransport: process\nfirmware: {standalone: build/app}\n"
ROOT = "{{cookiecutter.folder}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The least template."""
    (tmp_path / "mine" / ROOT).mkdir(parents=True)
    (tmp_path / "mine" / "template.yaml").write_text(ENTRY)
    return tmp_path / "mine"


def render(folder: Path, *, trust: bool = False) -> FileTree:
    return project.render(MODEL, MANIFEST, boards.get("host"), template=str(folder), trust=trust)[0]


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        render(folder)
    return str(caught.value)


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cookiecutter.__class__.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ '{0.__class__.__base__}'.format(1) }}",
    "{{ ('%c' * 9) | attr('__class__') }}{{ [] | map(attribute='__class__') | list }}",
    "{{ random_ascii_string.__globals__ }}",
    "{{ ('{0.__class__.__base__}' | attr('format'))(1) }}",  # which Jinja 3.1.5 let through (CVE-2025-27516)
    "{{ ('{x.__class__.__base__}' | attr('format_map'))({'x': 1}) }}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_pythons_internals_are_out_of_reach(text: str, folder: Path) -> None:
    (folder / ROOT / "a.c").write_text(text)
    reported = refused(folder)
    assert "accesses Python's internals" in reported and "a.c" in reported and "--trust-template" in reported


@pytest.mark.parametrize("line", ["{{ ''.__class__.__mro__ }}", "{{ cookiecutter.board.__class__.__base__ }}"])
def test_nor_are_they_in_reach_of_a_files_name_or_of_template_yaml(line: str, folder: Path) -> None:
    (folder / ROOT / line).write_text("")
    assert "accesses Python's internals" in refused(folder)
    (folder / ROOT / line).unlink()
    (folder / "template.yaml").write_text(ENTRY.replace("build/app", f'"build/{line}"'))
    assert "accesses Python's internals" in refused(folder)


def test_an_extension_is_python_code(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_by_a_template.py").write_text(
        "from jinja2.ext import Extension\n"
        "class Loud(Extension):\n"
        "    def __init__(self, env):\n        super().__init__(env)\n        env.globals['loud'] = str.upper\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (folder / "cookiecutter.json").write_text('{"_extensions": ["loaded_by_a_template.Loud"]}')
    (folder / ROOT / "a.c").write_text("{{ loud('x') }}")
    reported = refused(folder)
    assert (
        "loads Python code into Jinja" in reported
        and "loaded_by_a_template.Loud" in reported
        and "--trust-template" in reported
    )
    assert render(folder, trust=True).text("a.c") == "X"
    (folder / "cookiecutter.json").write_text('{"_extensions": ["not.there"]}')
    with pytest.raises(UsageError, match="can't be used"):
        render(folder, trust=True)


def test_hooks_are_never_run(folder: Path) -> None:
    (folder / "hooks").mkdir()
    (folder / "hooks" / "pre_gen_project.py").write_text("raise SystemExit(1)\n")
    (folder / ROOT / "a.c").write_text("x")
    assert render(folder).text("a.c") == render(folder, trust=True).text("a.c") == "x"


@pytest.mark.parametrize("settings", [{"loader": "x"}, {"extensions": ["jinja2.ext.do"]}, {"finalize": "print"}, ["x"]])
def test_jinja_is_set_only_in_how_it_reads(settings: object, folder: Path) -> None:
    (folder / "cookiecutter.json").write_text(json.dumps({"_jinja2_env_vars": settings}))
    assert "has settings that are not allowed" in refused(folder)


def test_settings_that_are_none_of_jinjas(folder: Path) -> None:
    (folder / "cookiecutter.json").write_text(json.dumps({"_jinja2_env_vars": {"newline_sequence": "x"}}))
    assert "can't be used" in refused(folder)
    (folder / "cookiecutter.json").write_text("{")
    assert "is not JSON" in refused(folder)
    (folder / "cookiecutter.json").write_text("[]")
    assert "is not a JSON object" in refused(folder)


def test_no_other_file_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / ROOT / "a.c").write_text("{% include '../../secret' %}")
    assert "lacks ../../secret" in refused(folder)
    (folder / ROOT / "a.c").unlink()
    for link in (folder / ROOT / "a.c", folder / "templates"):
        link.symlink_to(tmp_path / "secret" if link.suffix else tmp_path)
        assert "is a link that leads out of the template" in refused(folder)
        link.unlink()
    (folder / ROOT / "b.c").write_text("b")
    (folder / ROOT / "a.c").symlink_to("b.c")
    assert render(folder).text("a.c") == "b"


@pytest.mark.parametrize(
    "path", ["../a", "a/../../b", "/a", "build/app", ".git/hooks/post-checkout", ".mtool/x", "a//b"]
)
def test_no_file_lands_outside_of_the_project(path: str, folder: Path) -> None:
    (folder / "cookiecutter.json").write_text(json.dumps({"place": path}))
    (folder / ROOT / "{{ cookiecutter.place }}").write_text("x")
    assert "has a file outside the project's own files" in refused(folder)


@pytest.mark.parametrize("firmware", ["build/../../app", "build/{{ '..' }}/{{ '..' }}/app", "/build/app", "build//app"])
def test_nor_does_a_firmware(firmware: str, folder: Path) -> None:
    (folder / "template.yaml").write_text(ENTRY.replace("build/app", f'"{firmware}"'))
    assert "outside build/" in (reported := refused(folder)) or "does not match the schema" in reported


@pytest.mark.parametrize("line", ["folders: {model: ../x}", "folders: {headers: /x}", "folder: /x", "name: host"])
def test_template_yaml_names_places_in_the_project_only(line: str, folder: Path) -> None:
    (folder / "template.yaml").write_text(ENTRY + line + "\n")
    assert "does not match the schema" in refused(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{% if %}", "a.c:1"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 'x' | nothing }}", "nothing"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "range"),
        ("{{ [] + 1 }}", "TypeError"),
    ],
)
def test_what_is_wrong_in_a_text_is_reported_with_its_file(text: str, says: str, folder: Path) -> None:
    (folder / ROOT / "a.c").write_text(text)
    reported = refused(folder)
    assert "can't be rendered" in reported and "a.c" in reported and says in reported


def test_a_file_that_is_not_text_is_reported(folder: Path) -> None:
    (folder / ROOT / "logo.png").write_bytes(b"\x89PNG\xff")
    assert "logo.png: UnicodeDecodeError" in refused(folder)
    (folder / "cookiecutter.json").write_text('{"_copy_without_render": ["*.png"]}')
    assert render(folder)["logo.png"] == b"\x89PNG\xff"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 5000, b"a: &a [*a]\n", b"- 1\n", b""])
def test_a_template_yaml_that_is_none(content: bytes, folder: Path) -> None:
    (folder / "template.yaml").write_bytes(content)
    assert str(folder) in refused(folder)
