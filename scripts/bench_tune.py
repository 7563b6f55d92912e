"""Tune MLPerf Tiny's models and some generated ones on emulated boards, and write docs/tune-gains.md.

    scripts/bench_tune.py [--models DIR] [--work DIR] [--trials N] [--only MODEL-BOARD ...]

The models of MLPerf Tiny come from DIR (default: ../shared/models), ours from scripts/tune_models.py. Logs and projects
stay in the work folder, so that a run which was stopped goes on. A plan that is slower than the default is an error.
"""

import argparse
import json
import logging
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tune_models

import mtool
from mtool.base.option_values import Objective

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "tune-gains.md"
MODELS = ("kws", "ad", "ic", "vww")
BOARDS: dict[str, Objective] = {
    "mps2_an386": "cycles",
    "mps2_an385": "instructions",
    "mps3_an547": "instructions",
    "qemu_riscv32": "instructions",
    "mps2_an500": "cycles",
}
TRIALS = 160
HEAD = """# What tuning gives

How much [tuning](tune.md) saves, for the int8 (QDQ) models of MLPerf Tiny and three models of
`scripts/tune_models.py`: residual blocks in int8, and an LSTM followed by a GRU and separable layers in float32.
`make bench-tune` writes this page.

The boards are emulated: [estimated cycles](cycles.md) on a Cortex-M4 and M7, instructions elsewhere. *default* is the
cost model's choice; *tuned* is the fastest plan measured for the whole model, with the same outputs. A row with two
firmwares also tried other optimization levels (`-O3`, `-Os`); a row with one was measured before mtool supported them.
*CPU s* is the time of mtool, compiler and emulator.

| model | board | counts | tasks | candidates tried | failed | firmwares | default | tuned | saved | arena | CPU s |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""


@dataclass(frozen=True)
class Row:
    """One model on one board."""

    model: str
    board: str
    unit: str
    tasks: int
    candidates: int
    tried: int
    failed: int
    firmwares: int
    default: float
    tuned: float
    default_arena: int
    arena: int
    cpu_s: float

    def line(self) -> str:
        """Return it as a row of the table."""
        if not self.tasks:
            return f"| {self.model} | `{self.board}` | {self.unit} | no choice | | | | | | | | {self.cpu_s:,.0f} |"
        saved = 1 - self.tuned / self.default
        tried = f"all {self.tried:,}" if self.tried == self.candidates else f"{self.tried:,} of {self.candidates:,}"
        arena = f"{self.arena:,}" if self.arena == self.default_arena else f"{self.default_arena:,} -> {self.arena:,}"
        return (
            f"| {self.model} | `{self.board}` | {self.unit} | {self.tasks} | {tried} | {self.failed} | "
            f"{self.firmwares} | {self.default:,.0f} | {self.tuned:,.0f} | {saved:.1%} | {arena} | {self.cpu_s:,.0f} |"
        )


def tuned(model: str, path: Path, board: str, objective: Objective, work: Path, trials: int) -> Row:
    """Tune one model on one board."""
    log = work / f"{path.stem}-{board}.jsonl"
    before = cpu_seconds()
    found = mtool.tune(
        path,
        board=board,
        output=log,
        objective=objective,
        trials=trials,
        deployment=mtool.Deployment(work / f"{path.stem}-{board}"),
    )
    if found.whole is None:  # no operator has a choice there
        return Row(model, board, found.setup.unit, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, cpu_seconds() - before)
    best, default = found.whole.best, found.whole.default
    progress = found.progress
    return Row(
        model,
        board,
        found.setup.unit,
        len(progress.rows),
        progress.total,
        progress.tried,
        progress.failed,
        progress.firmwares,
        default.median,
        best.median,
        default.arena_bytes,
        best.arena_bytes,
        cpu_seconds() - before,
    )


def cpu_seconds() -> float:
    """Return the time that this process and those that it has started have worked."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> int:
    """Tune the requested models, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench-tune")
    parser.add_argument("--trials", type=int, default=TRIALS, help="candidates to measure at most; 0: all")
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    given.work.mkdir(parents=True, exist_ok=True)
    kept = given.work / "rows.json"
    rows = {name: Row(**row) for name, row in (json.loads(kept.read_text()) if kept.exists() else {}).items()}
    paths = {model: given.models / model / f"{model}_int8_qdq.onnx" for model in MODELS}
    paths |= tune_models.write(given.work / "models")
    wanted = [(model, board) for model in paths for board in BOARDS]
    for model, board in wanted:
        name = f"{model}-{board}"
        if name in rows or (given.only and name not in given.only):
            continue
        rows[name] = tuned(model, paths[model], board, BOARDS[board], given.work, given.trials)
        print(rows[name].line(), flush=True)
        kept.write_text(json.dumps({each: asdict(row) for each, row in rows.items()}, indent=1))
        found = [rows[f"{one}-{where}"] for one, where in wanted if f"{one}-{where}" in rows]
        missing = ", ".join(f"{one} on `{where}`" for one, where in wanted if f"{one}-{where}" not in rows)
        total = f"\nAll of it takes {sum(row.cpu_s for row in found) / 60:.0f} CPU minutes.\n"
        total += f"Not measured yet: {missing}.\n" if missing else ""
        RESULT.write_text(HEAD + "\n".join(row.line() for row in found) + "\n" + total)
    slower = [name for name, row in rows.items() if row.tuned > row.default]
    if slower:
        print(f"slower than the default: {', '.join(slower)}", file=sys.stderr)
        return 1
    print(RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
