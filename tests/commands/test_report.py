"""The report: its figures, its page in a browser, and the memory map."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from graphs import model
from onnx import helper, save

import mtool
from mtool import boards
from mtool.cli import app
from mtool.commands.cost import Cost
from mtool.commands.reporting import Function, ModelReport, memory_map
from mtool.device.session.profile import OperatorTime, Profile
from mtool.verification.comparison import Tolerance, compare
from mtool.verification.layers import LayerComparison, LayerReport

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# What only a layout can tell, written where --dump-dom shows it.
PROBE = """<script>addEventListener("load", () => {
  const map = document.getElementById("arena"), frame = map.getBoundingClientRect();
  const inside = [...map.querySelectorAll("rect")].every(rect => {
    const box = rect.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1
      && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
  });
  const bars = [...document.querySelectorAll("#time .bar")].map(bar => bar.getBoundingClientRect().width);
  document.title = JSON.stringify({
    inside, blocks: map.querySelectorAll("rect").length, longest: Math.max(...bars), shortest: Math.min(...bars),
    overflow: document.documentElement.scrollWidth - innerWidth,
    requests: performance.getEntriesByType("resource").length,
  });
});</script>"""


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


@pytest.mark.slow
def test_the_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert app.invoke(["report", str(DIGITS), "-o", "page.html", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["page"] == "page.html" and Path("page.html").stat().st_size > 10_000
    assert document["layers"]["ok"] and len(document["profile"]["operators"]) == len(document["layers"]["layers"])
    assert document["cost"]["macs"] == 230720 and len(document["fits"]) > 40
    assert sum(function["bytes"] for function in document["flash"]["functions"]) > 500


def test_a_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert app.invoke(["report", str(DIGITS), "-o", "file/page.html"]) == 2
    assert "can't be written" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_in_a_browser(width: int, tmp_path: Path) -> None:
    found = mtool.report(DIGITS, board="host", deployment=mtool.Deployment(tmp_path / "project"))
    page = tmp_path / "page.html"
    page.write_text(found.as_html().replace("</body>", PROBE + "</body>"))
    # A profile of its own: runs at the same time would share one. Root has no sandbox.
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000", "--virtual-time-budget=2000"]
    done = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    title = done.stdout.split("<title>")[1].split("</title>")[0]
    laid_out = json.loads(title.replace("&amp;", "&"))
    assert laid_out["blocks"] == len(found.memory) and laid_out["inside"]
    assert laid_out["longest"] > 50 and laid_out["shortest"] >= 0
    assert laid_out["overflow"] <= 0 and laid_out["requests"] == 0


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


def page_of(name: str) -> str:
    """Return the report of a model that has the name wherever one stands in it; its figures are made up."""
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
        functions=(Function(one.function, 1, (0,)),),
        other_code_bytes=0,
        layers=LayerReport(1, name, (LayerComparison(one, name, difference, 0),)),
        missing="",
        fits=(),
    ).as_html()


def test_names_of_the_model_are_text_on_the_page() -> None:
    name = '</title></script><script>evil()</script>" onload="evil() <!-- {{ 7 * 7 }} \x1b]0;\u202e\x00&lt;\''
    page = page_of(name)
    assert Tags(page).found == Tags(page_of("plain")).found
    assert page.count("&lt;script&gt;evil()") > 5 and page.replace("\n", "").isprintable() and "49" not in page
    assert len(page_of("x" * 50_000)) < 100_000
