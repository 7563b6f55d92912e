"""The screenshots of the documentation show what the report says now."""

import shutil
from pathlib import Path

import pages
import pytest

import mtool

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = sorted((pages.ROOT / "docs" / "figures").glob("report-*.png"))


def test_screenshots_are_small() -> None:
    assert [path.stem for path in SCREENSHOTS] == ["report-dark", "report-light"]
    assert all(path.stat().st_size < 150_000 for path in SCREENSHOTS)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_screenshots_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: mtool-mcu[slow]")
    image = pytest.importorskip("PIL.Image")
    monkeypatch.syspath_prepend(pages.ROOT / "scripts")
    import screenshots

    digits = pages.ROOT / "examples/digits/digits_int8.onnx"
    report = mtool.report(digits, board="mps2_an386", deployment=mtool.Deployment(tmp_path / "project"))
    (tmp_path / "page.html").write_text(report.as_html())
    with playwright.sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        page.goto((tmp_path / "page.html").as_uri())
        text = screenshots.text_of(page)
    for path in SCREENSHOTS:
        assert image.open(path).text["Description"] == text, "make screenshots"
