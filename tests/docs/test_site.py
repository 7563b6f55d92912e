"""The site: it builds without warnings, its links and anchors work, and it can be read offline."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest

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
