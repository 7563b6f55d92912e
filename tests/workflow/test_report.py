"""The report: its figures, its page in a browser, and the memory map."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import mtool
from mtool.cli import app
from mtool.workflow.reporting import memory_map

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


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_in_a_browser(width: int, tmp_path: Path) -> None:
    found = mtool.report(DIGITS, board="host", place=mtool.Place(tmp_path / "project"))
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
