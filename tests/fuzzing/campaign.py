"""Mutants by number: the same number gives the same mutant, so that a campaign can be resumed."""

import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzzing import forks, survivors, trial

FINDS = ("traceback", "slow", "big", "crash", "C error", "fault", "wrong")


@dataclass(frozen=True, slots=True)
class Form:
    """A format: the suffix of its files, its seeds by name, and how a seed is mutated."""

    suffix: str
    seeds: Sequence[tuple[str, Any]]
    mutate: Callable[[Any, random.Random, Path], bytes]


@dataclass(slots=True)
class Tally:
    """What is known so far: the next number, counts by what happened, and one mutant for each cause."""

    next: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    causes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Tally":
        """Return what a file holds; nothing if there is none."""
        if not path.is_file():
            return cls()
        data = json.loads(path.read_text())
        return cls(data["next"], Counter(data["counts"]), data["causes"])

    def write(self, path: Path) -> None:
        """Write a file, all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"next": self.next, "counts": self.counts, "causes": self.causes}, indent=1)
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)

    def add(self, other: "Tally") -> list[str]:
        """Add another's figures; return the causes that are new."""
        self.counts.update(other.counts)
        fresh = [cause for cause in other.causes if cause not in self.causes]
        for cause, entry in other.causes.items():
            mine = self.causes.setdefault(cause, {**entry, "times": 0})
            times = mine["times"] + entry["times"]
            if entry["bytes"] < mine["bytes"]:
                mine.update(entry)
            mine["times"] = times
        return fresh

    def found(self) -> int:
        """Return how many mutants broke something."""
        return sum(self.counts[kind] for kind in FINDS)


def name_of(form: Form, number: int) -> str:
    """Return the file name of a mutant."""
    return f"m{number}{form.suffix}"


def make(form: Form, number: int, base: int, folder: Path) -> Path:
    """Write a mutant into a folder of its own."""
    rng = random.Random(f"{base}:{number}")
    path = folder / name_of(form, number)
    path.write_bytes(form.mutate(rng.choice(form.seeds)[1], rng, folder))
    return path


def chunk(form: Form, numbers: range, base: int, finds: Path, *, run: bool) -> Tally:
    """Try a range of mutants; those that break something are kept in `finds`, the smallest of each cause."""
    tally = Tally(numbers.stop)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        alive = []
        for number in numbers:
            folder = Path(scratch) / str(number)
            folder.mkdir()
            result = forks.call(lambda f=folder, n=number: _work(form, n, base, f), forks.Limits())
            tally.counts["mutants"] += 1
            path = folder / name_of(form, number)
            if result.ending != "done":
                tally.counts[result.ending] += 1
                _keep(tally, f"{result.ending} {forks.cause(result.words)}", number, path, result.words, finds)
            elif isinstance(result.value, str):
                tally.counts["refused"] += 1
            else:
                tally.counts["compiled"] += 1
                alive.append(survivors.Survivor(number, path, result.value))
        for start in range(0, len(alive) if run else 0, 50):
            part = alive[start : start + 50]
            for verdict in survivors.verdicts(part, Path(scratch) / f"build{start}"):
                tally.counts[verdict.kind] += 1
                if verdict.kind in FINDS or verdict.kind == "a step":
                    path = next(one.path for one in part if one.number == verdict.number)
                    label = f"{verdict.kind} {_subject(verdict.words)}"
                    _keep(tally, label if verdict.kind != "a step" else "", verdict.number, path, verdict.words, finds)
    return tally


def _work(form: Form, number: int, base: int, folder: Path) -> trial.Compiled | str:
    path = make(form, number, base, folder)
    return trial.compiled(path, random.Random(number))


def _subject(words: str) -> str:
    """Return what is alike in the words on mutants of one cause."""
    fault = re.search(r"(AddressSanitizer: [\w-]+|runtime error: [^\n]*)", words)
    if fault is not None:
        where = re.search(r" in m\d+_(\w+?)(?:_\d+)? ", words)
        words = f"{fault.group(1)} {where.group(1) if where else ''}"
    return "".join(letter for letter in words[:160] if letter.isalpha() or letter in " -:,").strip()


def _keep(tally: Tally, cause: str, number: int, path: Path, words: str, finds: Path) -> None:
    size = path.stat().st_size if path.is_file() else 0
    slug = "".join(letter if letter.isalnum() else "_" for letter in cause)[:100]
    entry = {"number": number, "bytes": size, "times": 1, "file": f"{slug}{path.suffix}", "words": words[-3000:]}
    if not cause:
        return
    other = Tally(causes={cause: entry})
    if cause not in tally.causes or size < tally.causes[cause]["bytes"]:
        finds.mkdir(parents=True, exist_ok=True)
        old = finds / entry["file"]
        if path.is_file() and (not old.is_file() or old.stat().st_size > size):
            shutil.copy(path, old)
            old.with_suffix(".txt").write_text(f"number {number}\n{words}")
    tally.add(other)


def figures(tallies: Mapping[str, Tally]) -> list[str]:
    """Return the figures as lines of text."""
    lines = []
    for name, tally in tallies.items():
        order = ["mutants", "refused", "compiled", "traceback", "slow", "big", "crash"]
        rest = [kind for kind in sorted(tally.counts) if kind not in order]
        lines.append(f"{name}: " + ", ".join(f"{tally.counts[kind]:,} {kind}" for kind in [*order, *rest]))
        by_times = sorted(tally.causes.items(), key=lambda pair: -pair[1]["times"])
        lines += [f"  {entry['times']:6,}  {cause}   (number {entry['number']})" for cause, entry in by_times]
    return lines
