"""Shared functions of operators count with their measured size, others as the largest of their kind."""

from types import SimpleNamespace
from typing import Any

import pytest

from mtool.compiler.codegen.c_text import Part
from mtool.stages.sizes.c_source import read
from mtool.stages.sizes.estimate import code_of

ENTRY: dict[str, Any] = {
    "bytes_per_token": {"calls": 1.0},
    "executors": {},
    "functions": {
        "mt_dsp_rows_exact4_16": 500,
        "mt_dsp_rows_8": 300,
        "mt_dsp_rows8_exact4_16": 900,
        "mt_json_read": 70,
    },
}


@pytest.mark.parametrize(
    ("made", "called", "size"),
    [
        ("mt_dsp_rows_8", "mt_dsp_rows_8", 300),
        ("mt_dsp_rows_once_12", "mt_dsp_rows_once_12", 500),
        ("mt_dsp_rows8_exact1_32", "mt_dsp_rows8_exact1_32", 900),
        ("mt_dsp_rows_8", "mt_dsp_rows_copied", 0),  # inlined
        ("mt_json_write", "mt_json_write", 0),
    ],
)
def test_what_was_not_measured_is_the_largest_of_its_kind(made: str, called: str, size: int) -> None:
    source = read([Part(f"MT_DSP_ROWS({made}, 8)\nstatic const int32_t *x = {called}(0);", "text")])
    nothing: Any = SimpleNamespace(models=())
    assert source.macros == {made}
    assert code_of(source, nothing, ENTRY) == size
