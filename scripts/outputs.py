"""Run the commands that the documentation shows as `$ mtool …`, and compare their output with the pages.

scripts/outputs.py [--update] [PAGE …]

Each page is run in a folder of its own with the example's model and, where they are there, MLPerf Tiny's; `$ cd FOLDER`
in a block changes the folder. A line `...` stands for lines that are left out. Times, versions, hashes and paths are
not compared. A block below a line `<!-- not run: REASON -->` is not run. --update writes what was printed into the
pages.
"""

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DIGITS = ROOT / "examples" / "digits"
MODELS = ROOT.parent / "shared" / "models"
GAP = "..."
_MARK = re.compile(r"<!-- not run: (.+) -->")
_QUICK = ("check", "compile")  # that need no compiler
_FILES = (".onnx", ".tflite", ".npz", ".toml", ".jsonl")
_FEW = 3  # lines that are shown sooner than left out, in a block that leaves out none
_LIKE = 0.6  # what a line has in common with one that takes its place, at least


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of a page: its line there, its indent, its words behind `$`, what the page shows, why it is not run."""

    page: Path
    number: int
    indent: str
    words: tuple[str, ...]
    output: tuple[str, ...]
    not_run: str = ""

    @property
    def is_mtool(self) -> bool:
        """Whether it is a command of mtool whose output the page shows."""
        return self.words[:1] == ("mtool",) and any(line.strip() for line in self.output)

    @property
    def is_quick(self) -> bool:
        """Whether it needs no compiler."""
        return self.words[1] in _QUICK and "--emit" not in self.words


def shown_in(page: Path) -> Iterator[Shown]:
    """Yield the commands of a page's blocks."""
    lines = page.read_text().splitlines()
    number, mark = 0, ""
    while number < len(lines):
        line = lines[number]
        if found := _MARK.fullmatch(line.strip()):
            mark = found[1]
        start = re.match(r"( *)\$ (.*)", line)
        if start is None:
            if line.strip() and not line.startswith(("```", "    ")) and not _MARK.fullmatch(line.strip()):
                mark = ""
            number += 1
            continue
        end = number + 1
        while end < len(lines) and not lines[end].strip().startswith(("$ ", "```")):
            if start[1] and lines[end].strip() and not lines[end].startswith(start[1]):
                break
            end += 1
        output = [one[len(start[1]) :].rstrip() for one in lines[number + 1 : end]]
        while output and not output[-1]:
            output.pop()
        yield Shown(page, number, start[1], tuple(shlex.split(start[2], comments=True)), tuple(output), mark)
        number = end


def compared(line: str) -> str:
    """Return a line without what differs between two runs or computers: times, versions, hashes, paths, padding."""
    line = re.sub(r"\d[\d,.]* ?(s|ms|µs)\b", r"# \1", line.replace(", from the cache", ""))
    line = re.sub(r"\b\d+\.\d+\.\d+\b", "#", line)
    line = re.sub(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b", "#", line)
    line = re.sub(r"/\S*/(?=mtool-outputs|build/|examples/)", "/", line)
    return re.sub(r"\s+", " ", re.sub(r"={3,}", "=", line)).strip()


def _rough(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "#", compared(line))


def is_shown(output: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether a page's lines match the output; `...` stands for any lines."""
    shown, reported = [compared(line) for line in output], [compared(line) for line in printed if line.strip()]
    parts: list[list[str]] = [[]]
    for line in filter(None, shown):
        if line == GAP:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return parts[0] == reported
    at = 0
    for number, part in enumerate(parts):
        places = range(at, len(reported) - len(part) + 1)
        if number == 0:
            places = places[:1]
        if number == len(parts) - 1:
            places = places[-1:] if part else places[:1]
        place = next((place for place in places if reported[place : place + len(part)] == part), None)
        if place is None:
            return False
        at = place + len(part)
    return True


def brought_up_to_date(output: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return what a page is to show: of what was printed the lines that come nearest to those that it shows."""
    whole = [line.rstrip() for line in printed]
    while whole and not whole[0]:
        whole.pop(0)
    while whole and not whole[-1]:
        whole.pop()
    has_gaps = GAP in (line.strip() for line in output)
    kept: list[int] = []
    for line in output:
        if not line.strip() or line.strip() == GAP:
            continue
        at = kept[-1] + 1 if kept else 0
        rough = [_rough(one) for one in whole]
        same = next((place for place in range(at, len(whole)) if rough[place] == _rough(line)), None)
        if same is None:
            alike = [(difflib.SequenceMatcher(None, rough[place], _rough(line)).ratio(), -place)
                     for place in range(at, len(whole))]  # fmt: skip
            best, place = max(alike, default=(0.0, 0))
            same = -place if best >= _LIKE else None
        if same is not None:
            kept.append(same)
    found: list[str] = []
    for before, place in zip([-1, *kept], [*kept, len(whole)], strict=True):
        between = whole[before + 1 : place]
        found += [GAP] if any(between) and (has_gaps or len(between) > _FEW) else between
        found += whole[place : place + 1]
    return found


class _Both(io.StringIO):
    """A stream that also writes to another, and may claim to be a terminal."""

    def __init__(self, merged: io.StringIO, is_terminal: bool = False) -> None:
        super().__init__()
        self.merged, self.is_terminal = merged, is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.merged.write(text)
        return super().write(text)


def printed_by(words: Sequence[str], *, is_terminal: bool = False) -> tuple[int, list[str], list[str]]:
    """Run mtool; return its exit code, the lines of standard output, and those together with standard error's."""
    if words[1] == "test":  # another program prints
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), (done.stdout + done.stderr).splitlines()
    merged = io.StringIO()
    out, err = _Both(merged, is_terminal), _Both(merged, is_terminal)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = app.invoke(list(words[1:]))
    return code, out.getvalue().splitlines(), merged.getvalue().splitlines()


def run_page(page: Path, folder: Path, takes: Callable[[Shown], bool]) -> Iterator[tuple[Shown, int, list[str]]]:
    """Run a page's commands in a folder; yield each that shows an output, its exit code and what it printed of that.

    `takes` says which of them are run.
    """
    place = folder
    shutil.copytree(DIGITS, folder / "examples" / "digits")
    for path in (*DIGITS.glob("*.onnx"), *DIGITS.glob("*.npz"), *MODELS.glob("*/*.onnx"), *MODELS.glob("*/*.tflite")):
        shutil.copy(path, folder / path.name)
    for shown in shown_in(page):
        if not place.is_dir():  # the command that makes it was not taken
            return
        with contextlib.chdir(place):
            if shown.words[:1] == ("cd",):
                place = (place / shown.words[1]).resolve()
                continue
            if not shown.is_mtool or shown.not_run or not takes(shown):
                continue
            if not all(Path(word).exists() for word in shown.words if Path(word).suffix in _FILES):
                continue
            code, out, merged = printed_by(shown.words)
        only_out = {_rough(line) for line in out}
        reported = {_rough(line) for line in merged} - only_out
        yield shown, code, merged if any(_rough(line) in reported for line in shown.output if line.strip()) else out


def main() -> int:
    """Check or update the pages; return how many blocks differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("page", nargs="*", type=Path)
    arguments = parser.parse_args()
    os.environ.pop("COLUMNS", None)
    wrong = 0
    for page in arguments.page or PAGES:
        page = page.resolve()
        lines, shift = page.read_text().splitlines(), 0
        with tempfile.TemporaryDirectory(prefix="mtool-outputs") as folder:
            os.environ["MTOOL_CACHE"] = str(Path(folder) / "cache")
            (work := Path(folder) / "work").mkdir()
            for shown, _, printed in run_page(page, work, lambda _: True):
                if is_shown(shown.output, printed):
                    continue
                wrong += 1
                sys.stdout.write(f"{page.name}:{shown.number + 1}: {' '.join(shown.words)}\n")
                new = brought_up_to_date(shown.output, printed)
                diff = difflib.unified_diff(shown.output, new if arguments.update else printed, lineterm="", n=0)
                sys.stdout.write("".join(f"  {line}\n" for line in diff))
                at = shown.number + 1 + shift
                lines[at : at + len(shown.output)] = [f"{shown.indent}{line}".rstrip() for line in new]
                shift += len(new) - len(shown.output)
        if arguments.update:
            page.write_text("\n".join(lines) + "\n")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
