"""The committed table docs/benchmarks.json still holds: no figure is worse by more than 1%."""

import json
from pathlib import Path

import models
import pytest
from script import load

from mtool import boards

ROOT = Path(__file__).parents[2]
SUBSET = [
    ("digits_int8", "mps2_an386"),
    ("kws_int8_qdq", "mps2_an386"),
    ("ic_int8_qdq", "mps2_an386"),
    ("ad_int8_qdq", "mps3_an547"),
    ("ad_float32", "mps2_an386"),
]


@pytest.mark.parametrize(("model", "board"), SUBSET)
@pytest.mark.product(2)
def test_no_figure_is_worse_than_the_committed_one(model: str, board: str) -> None:
    bench = load("bench")
    paths = {path.stem: path for path in bench.model_paths(models.FOLDER)}
    if model not in paths:
        pytest.skip("the shared models are not beside the checkout")
    committed = {(row["model"], row["board"]): row for row in json.loads(bench.RESULT.read_text())}
    row = bench.measure(paths[model], boards.get(board))
    for column in bench.COLUMNS:
        before = committed[model, board][column]
        assert row[column] <= 1.01 * before, (
            f"{column}: {row[column]:,}, committed {before:,}; see why, then `make bench`"
        )


def test_the_page_shows_the_committed_figures() -> None:
    bench = load("bench")
    assert bench.markdown(json.loads(bench.RESULT.read_text())) == bench.RESULT.with_suffix(".md").read_text()
