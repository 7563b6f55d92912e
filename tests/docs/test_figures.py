"""The figures of docs/figures: what they show is as it was when they were drawn; `make figures` draws them again."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pages
import pytest
import script

FILES = sorted((pages.ROOT / "docs" / "figures").glob("*.svg"))
SHOWN = re.compile(r"!\[([^\]]*)\]\((?:[\w./-]*/)?figures/([\w-]+)\.svg\)")
TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")
FROM_PAGES = ("benchmarks", "bytecode", "estimates", "executors", "farm", "forms", "risc-v")
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc", "qemu-system-riscv32")


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    pytest.importorskip("matplotlib")
    sys.path.append(str(script.FOLDER))
    return script.load("figures").ALL  # type: ignore[no-any-return]


def test_each_is_in_a_page_with_a_text_that_describes_it() -> None:
    found: dict[str, str] = {}
    for page in pages.PAGES:
        found |= {name: alternative for alternative, name in SHOWN.findall(page.read_text())}
    assert sorted(found) == sorted(path.stem for path in FILES)
    assert [name for name, alternative in found.items() if len(alternative) < 20] == []


def test_each_page_of_explanation_has_one() -> None:
    docs = pages.ROOT / "docs"
    explained = re.findall(
        r":caption: Explanation\n:maxdepth: 1\n\n(.*?)\n```", (docs / "index.md").read_text(), re.DOTALL
    )
    assert [name for name in explained[0].split() if not SHOWN.search((docs / f"{name}.md").read_text())] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_has_a_title_and_a_description_and_loads_nothing(path: Path) -> None:
    text = path.read_text()
    assert '<title id="title">' in text and '<desc id="desc">' in text
    assert not re.search(r"(?:href|src)=\"(?!#)|url\((?!#)|@import|@font-face", text)
    assert path.stat().st_size < 120_000


@pytest.mark.slow
def test_each_file_is_drawn_by_the_script(drawn: dict[str, Any]) -> None:
    assert sorted(drawn) == sorted(path.stem for path in FILES)


@pytest.mark.parametrize("name", FROM_PAGES)
def test_the_numbers_of_pages_are_still_so(name: str, drawn: dict[str, Any]) -> None:
    found = drawn[name].current_data()
    assert found == sys.modules["pictures.style"].data_in(drawn[name].path), "run `make figures`"


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_data_are_still_so(path: Path, drawn: dict[str, Any]) -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    one, style = drawn[path.stem], sys.modules["pictures.style"]
    kept, found = style.data_in(path), one.current_data()
    assert one.is_same(kept, found), f"run `make figures`: {path.name} shows\n{kept}\nand now it is\n{found}"
    again = one.svg(kept)
    assert TEXT.findall(again) == TEXT.findall(path.read_text()), f"run `make figures`: {path.name} is drawn otherwise"
