"""The report: its figures, its page in a browser, and the memory map."""

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import model
from onnx import helper, save

import mtool
from mtool import boards
from mtool.cli import app
from mtool.commands.cost import Cost
from mtool.commands.reporting import Function, ModelReport, memory_map, ticks
from mtool.device.build.fit import Need, Part
from mtool.device.session.profile import OperatorTime, Profile
from mtool.verification.comparison import Tolerance, compare
from mtool.verification.layers import LayerComparison, LayerReport

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

A4_PX = 186 / 25.4 * 96  # the width of A4 within the margins
LAYOUT = """() => {
  const inside = chart => [...chart.querySelectorAll("rect")].every(mark => {
    const [box, frame] = [mark.getBoundingClientRect(), chart.getBoundingClientRect()];
    return box.width > 0 && box.height > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1
      && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
  });
  return {
    inside: [...document.querySelectorAll(".plot svg")].every(inside),
    levels: [...document.querySelectorAll("h1, h2, h3")].map(one => +one.tagName[1]),
    overflow: document.documentElement.scrollWidth - innerWidth,
    tables: Math.max(...[...document.querySelectorAll("table")].map(one => one.getBoundingClientRect().right)),
    paper: getComputedStyle(document.body).backgroundColor,
  };
}"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_memory_map_is_what_the_planner_laid_out() -> None:
    manifest = mtool.compile(DIGITS, board="host").manifest
    blocks = memory_map(manifest)
    assert {block.kind for block in blocks} >= {"input", "between", "output"}
    assert max(block.offset + block.bytes for block in blocks) <= manifest.arena_bytes
    live = [
        sum(block.bytes for block in blocks if block.first <= step <= block.last and block.kind != "scratch")
        for step in range(len(manifest.operators))
    ]
    assert max(live) <= manifest.arena_bytes * 2  # an operator may write over what it reads
    for one in blocks:
        for other in blocks:
            apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            # What lies at one place at one time: only where the later one is written as the earlier is last read.
            assert one is other or apart or one.last <= other.first or other.last <= one.first


@pytest.mark.parametrize(
    ("most", "factors", "expected"),
    [
        (0, (2, 2.5, 2), [0]),
        (5, (2, 2.5, 2), [0, 1, 2, 3, 4, 5]),
        (63, (2, 2.5, 2), [0, 20, 40, 60]),
        (725_000, (2, 2.5, 2), [0, 200_000, 400_000, 600_000]),
        (28_228, (2,), [0, 8192, 16384, 24576]),
    ],
)
def test_the_numbers_at_an_axis_are_round(most: int, factors: tuple[float, ...], expected: list[int]) -> None:
    assert ticks(most, factors) == expected


@pytest.mark.slow
def test_the_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert app.invoke(["report", str(DIGITS), "-o", "page.html", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["page"] == "page.html" and Path("page.html").stat().st_size > 10_000
    assert max(document["arena"]["used_bytes"]) <= document["arena"]["bytes"]
    assert {part["what"] for need in document["memories"] for part in need["parts"]} >= {"weights", "arena"}
    assert document["layers"]["ok"] and len(document["profile"]["operators"]) == len(document["layers"]["layers"])
    assert document["cost"]["macs"] == 230720 and len(document["fits"]) > 40
    assert sum(function["bytes"] for function in document["flash"]["functions"]) > 500


def test_a_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert app.invoke(["report", str(DIGITS), "-o", "file/page.html"]) == 2
    assert "can't be written" in capsys.readouterr().err


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("report")
    found = mtool.report(DIGITS, board="mps2_an386", deployment=mtool.Deployment(folder / "project"))
    (folder / "page.html").write_text(found.as_html())
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: mtool-mcu[slow]")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root has no sandbox
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, report_file: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens the report; at the end nothing was written to the console or loaded."""
    messages: list[str] = []
    pages = []

    def open_one(scheme: str = "light", width: int = 1200) -> Any:
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: request.url == report_file.as_uri() or messages.append(request.url))
        page.goto(report_file.as_uri())
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()
    assert messages == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_is_laid_out_well_and_accessible(scheme: str, width: int, open_page: Callable[..., Any]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(scheme, width)
    found = page.evaluate(LAYOUT)
    assert found["inside"] and found["overflow"] <= 0
    assert page.locator("#map [aria-label]").count() == len(
        memory_map(mtool.compile(DIGITS, board="mps2_an386").manifest)
    )
    assert found["levels"][0] == 1 and all(b - a <= 1 for a, b in itertools.pairwise(found["levels"]))
    red, green, blue = map(int, re.findall(r"\d+", found["paper"])[:3])
    assert (red + green + blue > 3 * 128) == (scheme == "light")
    violations = axe.Axe().run(page).response["violations"]
    serious = [one for one in violations if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]


@pytest.mark.slow
def test_tables_are_sorted_by_a_click_and_by_the_keyboard(open_page: Callable[..., Any]) -> None:
    page = open_page()
    heads = page.locator("#times thead th")
    column = heads.all_inner_texts().index("Instructions")
    button = heads.nth(column).locator("button")

    def values() -> list[int]:
        texts = page.locator(f"#times tbody tr > :nth-child({column + 1})").all_inner_texts()
        return [int(text.replace(",", "")) for text in texts]

    original = values()
    button.click()
    assert values() == sorted(original, reverse=True) != original
    assert heads.nth(column).get_attribute("aria-sort") == "descending"
    button.press("Enter")
    assert values() == sorted(original) and heads.nth(column).get_attribute("aria-sort") == "ascending"
    button.press("Enter")
    assert values() == original and page.locator("[aria-sort]").count() == 0
    page.locator("#fits thead button").first.click()
    names = page.locator("#fits tbody th").all_inner_texts()
    assert names[0] < names[-1] and len(names) > 40
    per_mac = page.locator("#times thead button", has_text="Per MAC")
    for _ in range(2):  # what has no value comes last, whichever way
        per_mac.click()
        assert page.locator("#times tbody tr").last.locator("td").nth(4).inner_text() == ""


@pytest.mark.slow
def test_the_values_of_a_chart_are_shown(open_page: Callable[..., Any]) -> None:
    page = open_page()
    tip = page.locator("#tip")
    marks = page.locator("#columns [tabindex]")
    assert tip.is_hidden()
    marks.nth(1).scroll_into_view_if_needed()
    box = marks.nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 20)  # above a low bar, too
    assert "max pool" in tip.inner_text() and "1,200 instructions" in tip.inner_text()
    page.locator("#map [aria-label]").first.hover()
    assert "bytes at offset" in tip.inner_text()
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    marks.first.focus()
    assert "0 conv2d" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "max pool" in tip.inner_text() and page.locator("#columns [tabindex='0']").count() == 1
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("End")
    assert "dense" in tip.inner_text()
    page.keyboard.press("Tab")
    assert tip.is_hidden()


@pytest.mark.slow
def test_the_page_on_paper(open_page: Callable[..., Any], tmp_path: Path) -> None:
    page = open_page("dark", round(A4_PX))
    page.emulate_media(media="print")
    found = page.evaluate(LAYOUT)
    assert found["tables"] <= A4_PX + 1 and found["overflow"] <= 0 and found["paper"] == "rgb(255, 255, 255)"
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf(format="A4", prefer_css_page_size=True))
    assert 3 <= len(pages) <= 6


class Tags(HTMLParser):
    """Every tag of a page, with the names of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


def report_of(name: str) -> ModelReport:
    """Return a report of a model that has the name wherever one stands in it; its figures are made up."""
    path = Path("m.onnx")
    save(model([helper.make_node("Relu", [name], ["y"], name=name)], {name: (np.float32, (2,))}, ["y"]), path)
    manifest = mtool.compile(path, board="host").manifest
    manifest = manifest.model_copy(update={"model_file": f"{name}.onnx"})
    (one,) = manifest.operators
    times = OperatorTime(0, one.name, one.label, one.shape, one.schedule, one.origins, 1.0, one.macs, 8)
    (output,) = (tensor.model_copy(update={"name": name}) for tensor in manifest.outputs)
    zeros = {name: np.zeros(2, np.float32)}
    (difference,) = compare([output], [zeros], [zeros], tolerance=Tolerance(), reference=name).outputs
    return ModelReport(
        manifest=manifest.model_copy(update={"outputs": (output,)}),
        board=boards.get("host"),
        cost=Cost("m", "host", None, 1.0, 0, 1, 0, 8, 8, 0, None),
        profile=Profile((times,), "ns", 1.0, 1),
        memory=memory_map(manifest),
        memories=(Need(name, 0, (Part("weights", 8),)),),
        functions=(Function(one.function, 1, (0,)),),
        other_code_bytes=0,
        layers=LayerReport(1, name, (LayerComparison(one, name, difference, 0),)),
        missing="",
        fits=(),
    )


def page_of(name: str) -> str:
    return report_of(name).as_html()


def test_the_page_says_that_the_firmware_has_several_models() -> None:
    alone = report_of("x")
    assert "models" not in alone.as_html()
    both = alone.manifest.model_copy(update={"firmware": (alone.manifest, alone.manifest)})
    assert "all of its 2 models" in dataclasses.replace(alone, manifest=both).as_html()


def test_names_of_the_model_are_text_on_the_page() -> None:
    name = '</title></script><script>evil()</script>" onload="evil() <!-- {{ 7 * 7 }} \x1b]0;\u202e\x00&lt;\''
    page = page_of(name)
    assert Tags(page).found == Tags(page_of("plain")).found
    assert page.count("&lt;script&gt;evil()") > 5 and page.replace("\n", "").isprintable() and "49" not in page
    assert len(page_of("x" * 50_000)) < 100_000
