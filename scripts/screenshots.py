"""Take the screenshots of `mtool report` in docs/figures, in light and dark, with Debian's Chromium.

    .venv/bin/python scripts/screenshots.py         # or: make screenshots

The report is of the digits on mps2_an386, whose figures are the same on every machine. The text that a picture shows is
stored in it: tests/docs/test_screenshots.py compares it with the current report's.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

import mtool

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
WIDTH = 1120


def main() -> int:
    """Write report-light.png and report-dark.png."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 5
    from playwright.sync_api import sync_playwright  # of the extra "slow"

    with tempfile.TemporaryDirectory() as folder:
        deployment = mtool.Deployment(Path(folder) / "project")
        report = mtool.report(ROOT / "examples/digits/digits_int8.onnx", board="mps2_an386", deployment=deployment)
        page = Path(folder) / "report.html"
        page.write_text(report.as_html())
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                opened = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": 2000})
                opened.goto(page.as_uri())
                write(take(opened), text_of(opened), FIGURES / f"report-{scheme}.png")
    return 0


def text_of(page: Any) -> str:
    """Return the text in a screenshot."""
    return str(page.inner_text("body")).partition(page.inner_text("#times caption"))[0]


def take(page: Any) -> bytes:
    """Return a report from its top to the chart of the time as PNG, with the pointer at the arena's largest block."""
    chart = page.locator("#map")
    marks = chart.locator("[aria-label]")
    areas = [box["width"] * box["height"] for box in (mark.bounding_box() for mark in marks.all()) if box]
    marks.nth(areas.index(max(areas))).hover()
    end = page.locator("#times").bounding_box()
    return page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": end["y"] - 8})


def write(screenshot: bytes, text: str, path: Path) -> None:
    """Write a screenshot with at most 256 colors, and its text."""
    described = PngImagePlugin.PngInfo()
    described.add_itxt("Description", text)
    path.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        path, optimize=True, pnginfo=described
    )
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
