"""The site: it builds without warnings, its links work, it documents the code, and it can be read offline."""

import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pages
import pytest
from bs4 import BeautifulSoup
from pydantic import BaseModel

from mtool import boards, errors, manifest
from mtool.base.configuration import Configuration
from mtool.cli import app
from mtool.compiler.kernels import registry
from mtool.compiler.tuned import record
from mtool.project.template import Template

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(\S+?)["'\s>]|<link\b[^>]*\bhref=["']?(\S+?)["'\s>]"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", folder]
    done = subprocess.run(argv, cwd=pages.ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_repository_is_a_page_of_the_site(site: Path) -> None:
    for page in pages.PAGES:
        assert (site / page.relative_to(pages.ROOT).with_suffix(".html")).exists(), page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text()):
            target = found[1] or found[2]
            assert not re.match(r"https?:|//", target), f"{page.name}: {target}"
            assert target.startswith("data:") or (page.parent / target.split("#")[0].split("?")[0]).exists(), target


def read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(), "html.parser")


def part(site: Path, page: str, name: str) -> str:
    """Return the text of a page's section, or of another element with that id."""
    found = read(site / "docs" / page).find(id=name)
    assert found is not None, f"{page}#{name}"
    return found.get_text(" ")


def test_links_and_their_anchors_lead_somewhere(site: Path) -> None:
    soups = {page: read(page) for page in site.rglob("*.html")}
    ids = {page: {str(one["id"]) for one in soup.find_all(id=True)} for page, soup in soups.items()}
    for page, soup in soups.items():
        for link in soup.find_all("a", href=True):
            address, anchor = urldefrag(unquote(str(link["href"])))
            if not re.match(r"\w+:", address):
                target = (page.parent / address).resolve() if address else page
                assert target.exists(), f"{page.name}: {link['href']}"
                assert not anchor or target not in ids or anchor in ids[target], f"{page.name}: {link['href']}"


def test_every_option_stands_in_its_command(site: Path) -> None:
    soup = read(site / "docs" / "commands.html")
    of_every_command = soup.find(id="every-command").get_text(" ")
    for name in app.COMMANDS:
        shown = soup.find(id=f"mtool-{name}").get_text(" ")
        for parameter in app.command_of(name).params:
            if parameter.param_type_name == "option":
                assert all(re.search(rf"{one}\b", shown + of_every_command) for one in parameter.opts), (
                    f"{name} {parameter.opts}"
                )


def test_every_error_stands_there_with_its_exit_code(site: Path) -> None:
    soup = read(site / "docs" / "errors.html")
    for name in errors.__all__:
        assert soup.find(id=f"mtool.errors.{name}") is not None
        if "exit_code" in vars(getattr(errors, name)):
            shown = soup.find(id=f"mtool.errors.{name}.exit_code").get_text(" ")
            assert re.search(rf"= +{getattr(errors, name).exit_code}\b", shown)


def test_every_key_of_a_file_stands_there(site: Path) -> None:
    text = part(site, "files.html", "files")
    roots: list[type] = [Configuration, boards.Board, Template, manifest.Firmware, record.Measurement, record.WholePlan]
    found: list[object] = [*roots]
    for of in found:
        is_record = isinstance(of, type) and issubclass(of, BaseModel)
        inner = (*typing.get_args(of), *(typing.get_type_hints(of).values() if is_record or of in roots else ()))
        found += [one for one in inner if one not in found]
        for key in of.model_fields if is_record else ():
            assert re.search(rf"\b{key}\b", text), f"{of.__name__}.{key}"


def test_every_schedule_stands_there_with_its_knobs(site: Path) -> None:
    soup = read(site / "docs" / "schedules.html")
    for kernel in registry.KERNELS.values():
        for schedule in kernel.schedules:
            heading = next(one for one in soup.find_all("h3") if one.code and one.code.get_text() == schedule.name)
            shown = heading.parent.get_text(" ")
            assert "Supports: " in shown and len(shown.split()) > 12
            assert all(name in shown for name in schedule.knobs()), schedule.name


def test_every_public_name_of_the_runtime_stands_there(site: Path) -> None:
    folder = pages.ROOT / "crt" / "include"
    text = "".join((folder / name).read_text() for name in ("mtool.h", "mt_rpc.h"))
    header = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    shown = part(site, "c-api.html", "c-api")
    for name in {*re.findall(r"\b(?:mt_\w+(?=\(| \{)|MT_(?!STATUS|\w+_H\b)\w+)", header)}:
        assert re.search(rf"\b{name}\b", shown), name


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_search_finds_without_a_server(site: Path) -> None:
    shown = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"),
            f"file://{site}/search.html?q=requantize",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert re.search(r"\d+ page", shown)
