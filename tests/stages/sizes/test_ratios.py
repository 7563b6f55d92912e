"""The bytes per token that scripts/sizes.py measures: of each schedule, and of the calling code."""

from types import SimpleNamespace

import pytest
from script import load

from mtool.compiler.codegen.c_text import function
from mtool.stages.sizes import c_source

SOURCE = (
    function(
        "MT_ALONE void net_loop_0(const float *input, float *output)",
        "    for (int32_t i = 0; i < 8; ++i)",
        "        net_neg_0(input + i, output + i);",
    ),
    function("MT_ALONE void net_neg_0(const float *input, float *output)", "    *output = -*input;"),
    function(
        "MT_INLINE void net_calls(const volatile int32_t *only)",
        "    OPERATOR(0) net_loop_0(a, b);",
        "    OPERATOR(1) net_loop_0(b, c);",
    ),
    function("int32_t net_operator(uint16_t number)", "    net_calls(&only);", "    return 0;"),
    function("int32_t net_run(void)", "    net_calls(NULL);", "    return 0;"),
)


def test_what_is_inlined_counts_where_it_stands() -> None:
    script = load("sizes")
    found = c_source.read(SOURCE)
    operator = SimpleNamespace(function="net_loop_0", schedule="control", calls={"net_neg_0": "c99_loop:opt=O3"})
    sizes = {"net_loop_0": 90, "net_neg_0": 60, "net_operator": 200, "net_run": 150}
    ratios = script.ratios_of(found, SimpleNamespace(operators=[operator]), sizes)
    tokens = {name: one.tokens + script.LEAST_TOKENS for name, one in found.functions.items()}
    assert ratios == {
        "control": pytest.approx(90 / tokens["net_loop_0"]),
        "c99_loop": pytest.approx(60 / tokens["net_neg_0"]),
        "calls": pytest.approx(350 / (tokens["net_calls"] + tokens["net_operator"] + tokens["net_run"])),
    }
