"""The site: it is built without a warning, its links and anchors lead somewhere, and it reads without a network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import amount
import pages
import pytest

CHROMIUM = shutil.which("chromium")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(\S+?)["'\s>]|<link\b[^>]*\bhref=["']?(\S+?)["'\s>]"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=pages.ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_of_the_repository_is_a_page_of_the_site(site: Path) -> None:
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    for page in pages.PAGES:
        place = page.relative_to(pages.ROOT).as_posix().removeprefix("docs/")
        place = (
            place.replace("/README.md", ".md") if place.startswith("examples/") else place.replace("README", "index")
        )
        assert place.replace(".md", ".html") in made, place


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text()):
            target = found[1] or found[2]
            assert not re.match(r"https?:|//", target), f"{page.name}: {target}"
            if page.name == "404.html":  # which only a server shows, from its root
                continue
            assert target.startswith("data:") or (page.parent / target.split("#")[0].split("?")[0]).exists(), target


@pytest.mark.skipif(CHROMIUM is None or not amount.IS_ALL, reason="needs Chromium, and MTOOL_TESTS=all")
def test_the_search_finds_without_a_server(site: Path) -> None:
    shown = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"),
            f"file://{site}/index.html?q=requantise",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert re.search(r"\d+ matching documents", shown)
