"""The results as a Markdown page: a table of the models that load, and of those refused, with reasons."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.base.plural import count
from tests.zoo.names import Origin
from tests.zoo.results import Found, Row, summary
from tests.zoo.trial import HOST, MOST_MACS, MOST_MACS_ELSEWHERE, STEPS_ELSEWHERE

HEAD = """# Public models

Which published models load without changes, whether their outputs are correct, and what they cost. To test your own
`.onnx` and `.tflite` files, run `make model-zoo ARGS=FOLDER`; `scripts/model_zoo.py --help` lists the options, and
`--table` writes this page.

Each model runs on three random inputs, a model with states on a sequence of 60. The outputs are compared with LiteRT's
or onnxruntime's:

- *equal*: every element of every output is equal.
- *within*: differences are within [`verify`'s tolerance](verify.md#what-is-allowed), or have a note, if every operator
  by itself is correct except for ties and roundings.

Sizes are in bytes."""
BOARD = """
The figures are for one inference of the standalone image on the emulated board `{board}`. *code* is the whole image
without the model's constants. A model that does not run there has only the host's arena.

Each model is also built for {boards},
and run there on one sample, or on {steps} steps of a sequence. Models with more than {most:,} MACs (on
`{board}` {most_here:,}) are only built. *too large* means that the board does not have enough memory. With
`--rounding tflite`, models run only on the host."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A model file, where it is from, its size, and its row in each rounding."""

    origin: Origin
    size: int
    rows: dict[str, Row]


def page(models: Sequence[Tried], names: Sequence[str]) -> str:
    """Return the page; `names` are the boards, the host first."""
    emulated = [name for name in names if name != HOST]
    board = emulated[0] if emulated else ""
    roundings = list(dict.fromkeys(rounding for model in models for rounding in model.rows))
    others = ", ".join(f"`{name}`" for name in emulated[1:])
    limits = {"steps": STEPS_ELSEWHERE, "most": MOST_MACS_ELSEWHERE, "most_here": MOST_MACS}
    lines = [HEAD, BOARD.format(board=board, boards=others, **limits) if board else "", "", "## Summary", ""]
    lines += [f"- `--rounding {line.replace(':', '`:', 1)}" for line in figures(models)]
    shown = [f"result, `--rounding {rounding}`" for rounding in roundings]
    heads = ["repository", "file", "size", "MACs", *shown, "instructions", "per MAC", "arena", "code", "constants"]
    right = ["---" if head in ("repository", "file", *shown) else "--:" for head in heads]
    lines += ["", "## Models that load", "", f"| {' | '.join(heads)} |", f"|{'|'.join(right)}|"]
    loading = [model for model in models if any(row.loads for row in model.rows.values())]
    lines += [f"| {' | '.join(_cells(model, roundings, board))} |" for model in loading]
    lines += _on_boards(loading, emulated)
    optional = [(model, row) for model in loading for row in list(model.rows.values())[:1] if row.options]
    if optional:
        lines += ["", "Models that need options, which mtool suggests:", ""]
        lines += [f"- {_text(model.origin.path)}: `{row.options}`" for model, row in optional]
    lines += _section("Models with different outputs", models, lambda row: row.outcome == "differs", _difference)
    lines += _section("Models without a reference", models, lambda row: row.outcome == "not compared", _notes)
    lines += _section("Models that fail", models, lambda row: row.outcome == "failed" or bool(row.stopped), _notes)
    lines += _section("Refused models", models, lambda row: bool(row.refused), _reason)
    return "\n".join(lines) + "\n"


def figures(models: Sequence[Tried]) -> list[str]:
    """Return the summary, a line a rounding."""
    return summary((rounding, row) for model in models for rounding, row in model.rows.items())


def _cells(model: Tried, roundings: Sequence[str], board: str) -> list[str]:
    row = next(row for row in model.rows.values() if row.loads)
    host, on_board = row.boards.get(HOST), row.boards.get(board)
    cells = [_text(model.origin.repository), _text(model.origin.path), f"{model.size:,}", f"{row.macs:,}"]
    cells += [_result(model.rows[rounding]) if rounding in model.rows else "" for rounding in roundings]
    if on_board is not None and on_board.arena_bytes is not None:
        each = f"{on_board.instructions / row.macs:.2f}" if on_board.instructions and row.macs else ""
        sizes = [on_board.arena_bytes, on_board.code_bytes, on_board.const_bytes]
        return [*cells, _number(on_board.instructions), each, *map(_number, sizes)]
    where = on_board.outcome if on_board is not None else ""
    return [*cells, where, "", _number(host.arena_bytes if host is not None else None), "", ""]


def _on_boards(models: Sequence[Tried], names: Sequence[str]) -> list[str]:
    """Return a table of how each model fares on each board, and above it how many do."""
    rows = [(model, next(row for row in model.rows.values() if row.loads)) for model in models]
    rows = [(model, row) for model, row in rows if any(name in row.boards for name in names)]
    if not rows:
        return []
    lines = ["", "## On boards", ""]
    for name in names:
        outcomes = Counter(row.boards[name].outcome for _, row in rows if name in row.boards)
        reported = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
        lines.append(f"- `{name}`: {reported}")
    lines += ["", f"| file | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for model, row in rows:
        cells = [_on_board(row.boards.get(name)) for name in names]
        lines.append(f"| {_text(model.origin.repository)}: {_text(model.origin.path)} | {' | '.join(cells)} |")
    return lines


def _on_board(found: Found | None) -> str:
    if found is None:
        return "not tried"
    note = found.note if found.outcome in ("too large", "differs", "failed") else ""
    if found.outcome == "too large":  # the memories that are
        note = "; ".join(part for part in note.split("; ") if " too many" in part) or note
    return _text(f"{found.outcome}: {note}" if note else found.outcome)


def _number(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"


def _result(row: Row) -> str:
    found = [each for each in row.boards.values() if each.outcome == row.outcome]
    note = next((each.note for each in found if each.note), "") if row.outcome in ("within", "differs") else ""
    steps = f", {count(row.states, 'state')}" if row.states else ""
    return _text(f"{row.outcome}{steps}" + (f": {note}" if note else ""))


def _section(title: str, models: Sequence[Tried], chosen, words) -> list[str]:
    """Return a list of the files of which this is so, those with the same words in both roundings once."""
    lines = []
    for model in models:
        reported: dict[str, list[str]] = {}
        for rounding, row in model.rows.items():
            if chosen(row):
                reported.setdefault(words(row), []).append(rounding)
        for text, roundings in reported.items():
            only = "" if len(roundings) == len(model.rows) else f" (`--rounding {roundings[0]}`)"
            where = ": ".join(filter(None, [model.origin.repository, model.origin.path]))
            lines.append(f"- {_text(where)}{only}: {_text(text)}")
    return ["", f"## {title}", "", *lines] if lines else []


def _reason(row: Row) -> str:
    return "; ".join([row.refused, *(" ".join(detail.split()) for detail in row.details[:3])])


def _difference(row: Row) -> str:
    return "; ".join(f"{name}: {found.note}" for name, found in row.boards.items() if found.outcome == "differs")


def _notes(row: Row) -> str:
    def notes(found: Found) -> str:
        return found.note

    return "; ".join(dict.fromkeys([*filter(None, [row.stopped]), *filter(None, map(notes, row.boards.values()))]))


def _text(words: str) -> str:
    """Return what a file may say as a cell of a table."""
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
