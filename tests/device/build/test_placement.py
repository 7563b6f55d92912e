"""Where a firmware places the pools of a model's arena."""

from pathlib import Path

import pytest

import mtool
from mtool.base.errors import BuildError
from mtool.compiler.plan.pool import Pool
from mtool.device.build import size

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"


def test_a_section_of_ones_own_that_lies_in_flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = mtool.Options(pools=(Pool("mine", 1 << 13, section=".mine"),))
    manifest = mtool.compile(DIGITS, board="mps2_an386", options=options).render_project()[1]
    (pool,) = manifest.pools
    for address in (0x20000400, 0x21000000, 0x90000000):  # the last is none of the board's memories
        monkeypatch.setattr(size, "addresses", lambda elf, address=address: {pool.symbol: address})
        size.check(tmp_path, manifest)
    monkeypatch.setattr(size, "addresses", lambda elf: {pool.symbol: 0x1800})
    with pytest.raises(BuildError, match=r"the section \.mine is in ssram1") as raised:
        size.check(tmp_path, manifest)
    assert "0x00001800" in str(raised.value)


def test_hot_code_that_lies_in_flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = mtool.Options(schedules={"conv_2": "c99_patch:code=ram"})
    manifest = mtool.compile(DIGITS, board="mps2_an386", options=options).render_project()[1]
    assert manifest.hot_functions == ("digits_int8_conv_2",)
    monkeypatch.setattr(size, "addresses", lambda elf: {"digits_int8_conv_2": 0x01000000})
    size.check(tmp_path, manifest)
    monkeypatch.setattr(size, "addresses", lambda elf: {"digits_int8_conv_2": 0x1800})
    with pytest.raises(BuildError, match=r"the template baremetal does not place hot code in block_ram"):
        size.check(tmp_path, manifest)
