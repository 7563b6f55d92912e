"""Compare the cycle estimate with published MLPerf Tiny results whose code is also published.

    scripts/bench_cycles.py FOLDER     # writes the table of docs/cycles.md

FOLDER has clones of github.com/mlcommons/tiny_results_v1.0 and tiny_results_v1.1 and of ARM-software/CMSIS_5 under
these names. The C that ran is compiled with the flags of its own build, or the image of flash that ran is taken as it
is; either is counted in the emulator of a Cortex-M4, and put beside the median that the submitter measured. Nothing is
fitted to it.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from published_runs.counting import COUNTED, Source, count
from published_runs.images import Image, count_image
from published_runs.microtvm import checked_out, microtvm
from published_runs.onnc import onnc

from mtool import boards
from mtool.boards import Cache, Reads
from mtool.commands.cost import clocks
from mtool.device.cycles import Clock

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cycles.md"
BEGIN, END = "<!-- comparison -->", "<!-- end of comparison -->"
MODELS = ("kws", "vww", "ic", "ad")
OCTOML, SKYMIZER = "tiny_results_v1.0/closed/OctoML", "tiny_results_v1.1/closed/Skymizer"
BOSCH = "tiny_results_v1.1/closed/bosch"
CMSIS_OF_TVM = "51263182d16c92649a48144ba56c0945f9fce60e"  # as the submissions' system files have them
CMSIS_OF_ONNC = "b9667965e0c41d7ee0c63983beccc9b8cd6b0f7f"


def _boards_only_here() -> dict[str, Clock]:
    """Return what is known of boards that boards.yaml does not have."""
    g0 = Reads(
        source="RM0444 rev 5, 3.3.1 (64 bits), 3.3.4; stm32g0xx_ll_utils.c (wait states, range 1)",
        wait_states={24: 0, 48: 1, 64: 2},
        width=8,
        line=8,
        code=Cache(lines=2),
        data=Cache(lines=1),
        prefetch=True,
    )
    h7a3 = Reads(
        source="stm32h7xx_ll_utils.c, device 480h (wait states, VOS0); RM0455 (128 bits); DDI 0489 (lines, ways)",
        wait_states={44: 0, 88: 1, 132: 2, 176: 3, 220: 4, 264: 5, 280: 6},
        width=16,
        line=32,
        code=Cache(lines=512, ways=2),
        data=Cache(lines=512, ways=4),
    )
    return {
        "NUCLEO_G0B1RE": Clock("nucleo_g0b1re", "cortex-m0plus", 64_000_000, g0),
        "NUCLEO_H7A3ZI": Clock("nucleo_h7a3zi_q", "cortex-m7", 280_000_000, h7a3),
    }


# Of each board: the one in boards.yaml, and the image of each model with the address of the model's function.
IMAGES = {
    "NUCLEO_L4R5ZI": (
        "nucleo_l4r5zi@120MHz",
        {
            "kws": ("kws/Release/l4r5_kws.bin", 0x8005CA0),
            "vww": ("vww/Release/l4r5_vww.bin", 0x80096BC),
            "ic": ("ic/Release/l4r5_ic.bin", 0x800D9DC),
            "ad": ("ad/Release/l4r5_ad.bin", 0x8005E50),
        },
    ),
    "NUCLEO_U575ZI": (
        "nucleo_u575zi@160MHz",
        {
            "kws": ("kws/Release/m33_kws.bin", 0x8009584),
            "vww": ("vww/Release/m33_vww.bin", 0x800CFC0),
            "ic": ("ic/Release/m33_ic.bin", 0x8011208),
            "ad": ("ad/Release/m33_ad2.bin", 0x8009718),
        },
    ),
    "DISCO_F746NG": (
        "stm32f746g_disco@216MHz",
        {
            "kws": ("kws/BUILD/DISCO_F746NG/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8025BA4),
            "vww": ("vww/BUILD/DISCO_F746NG/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8029AFC),
            "ic": ("ic/BUILD/DISCO_F746NG/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x802EFB8),
            "ad": ("ad/BUILD/DISCO_F746NG/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8007CF8),
        },
    ),
    "NUCLEO_H7A3ZI": (
        "",
        {
            "kws": ("kws/BUILD/NUCLEO_H7A3ZI_Q/GCC_ARM-CUSTOM_PROFILE/code_application.bin", 0x802BB4C),
            "vww": ("vww/Release/h7a3_vww.bin", 0x800B00C),
            "ic": ("ic/BUILD/NUCLEO_H7A3ZI_Q/GCC_ARM-CUSTOM_PROFILE/code_application.bin", 0x8034B90),
            "ad": ("ad/h7_a3_ml_perf/Release/h7_a3_ml_perf.bin", 0x80077CC),
        },
    ),
    "NUCLEO_G0B1RE": (
        "",
        {
            "kws": ("kws/BUILD/NUCLEO_G0B1RE/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8023C58),
            "vww": ("vww/BUILD/NUCLEO_G0B1RE/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8027F08),
            "ic": ("ic/BUILD/NUCLEO_G0B1RE/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x802B43C),
            "ad": ("ad/BUILD/NUCLEO_G0B1RE/GCC_ARM-CUSTOM_PROFILE/code.bin", 0x8023B44),
        },
    ),
}


@dataclass(frozen=True)
class Run:
    """A published run.

    Attributes:
        what: the submission.
        model: its model.
        clock: the board that it ran on.
        results: the folder of its results.
        source: its code.
    """

    what: str
    model: str
    clock: Clock
    results: Path
    source: Source | Image

    @property
    def measured(self) -> float:
        """Milliseconds of an inference."""
        results = self.results / self.model / "performance" / "results.txt"
        found = re.search(r"Median throughput is\s+([\d.]+)", results.read_text())
        if found is None:
            sys.exit(f"{results}: no median")
        return 1e3 / float(found[1])


@dataclass(frozen=True)
class Row:
    """A run: what was measured, and the estimate, in ms."""

    run: Run
    estimated: float

    @property
    def error(self) -> float:
        """The estimate's, as a share of the measurement."""
        return self.estimated / self.run.measured - 1


def main() -> None:
    """Count each model and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="runs whose name has this; the page is not written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-cycles-") as temporary:
        rows = []
        for run in runs(arguments.folder, Path(temporary)):
            if arguments.only.casefold() in f"{run.what} {run.model} {run.clock.name}".casefold():
                rows.append(compare(run))
                sys.stdout.write(_line(rows[-1]) + "\n")
                sys.stdout.flush()
    if not arguments.only:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + table(rows) + END + rest.split(END)[1])


def runs(folder: Path, temporary: Path) -> Iterator[Run]:
    """Yield the runs."""
    octoml, skymizer = folder / OCTOML, folder / SKYMIZER
    cmsis = checked_out(folder / "CMSIS_5", CMSIS_OF_TVM, temporary / "cmsis")
    old = checked_out(folder / "CMSIS_5", CMSIS_OF_ONNC, temporary / "old_cmsis")
    (board,) = clocks(["nucleo_l4r5zi@120MHz"], boards.get(COUNTED))
    for kind, what, library in (
        ("microtvm_native", "microTVM", None),
        ("microtvm_cmsis_nn", "microTVM with CMSIS-NN", cmsis),
    ):
        for model in MODELS:
            source = microtvm(octoml / "code" / kind / "NUCLEO_L4R5ZI" / model, library)
            yield Run(what, model, board, octoml / "results" / kind / "NUCLEO_L4R5ZI", source)
    for model in MODELS:
        source = onnc(skymizer / "code" / "NUCLEO_L4R5ZI-mbed_os" / model, old, temporary)
        yield Run("ONNC with CMSIS-NN", model, board, skymizer / "results" / "NUCLEO_L4R5ZI-mbed_os", source)
    for name, (known, images) in IMAGES.items():
        clock = clocks([known], boards.get(COUNTED))[0] if known else _boards_only_here()[name]
        for model, (image, entry) in images.items():
            path = folder / BOSCH / "code" / name / image
            yield Run("HALE", model, clock, folder / BOSCH / "results" / name, Image(path, entry))


def compare(run: Run) -> Row:
    """Count a run's code."""
    clock = run.clock
    estimate = count_image(run.source, clock) if isinstance(run.source, Image) else count(run.source, clock)
    return Row(run, estimate.milliseconds(clock))


def table(rows: list[Row]) -> str:
    """Return the table, with the greatest error under it."""
    titles = ["code", "board", *(model.upper() for model in MODELS)]
    lines = [f"| {' | '.join(titles)} |", "|---|---|" + "--:|" * len(MODELS)]
    for (what, board), group in groupby(rows, lambda row: (row.run.what, _board(row.run))):
        cells = {row.run.model: f"{row.run.measured:.2f} ({row.error:+.1%})" for row in group}
        lines.append(f"| {' | '.join([what, board, *(cells.get(model, '') for model in MODELS)])} |")
    worst = max(abs(row.error) for row in rows)
    return "\n".join(lines) + f"\n\nThe greatest error is {worst:.1%}.\n"


def _board(run: Run) -> str:
    return f"{run.clock.name.partition('@')[0]}, {run.clock.hz / 1e6:g} MHz"


def _line(row: Row) -> str:
    run = row.run
    return f"{run.what}, {run.model.upper()}, {_board(run)}: {run.measured:.2f} ms, estimated {row.estimated:.2f}"


if __name__ == "__main__":
    main()
