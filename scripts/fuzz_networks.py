#!/usr/bin/env python3
"""Generate random valid networks, run many of them in one firmware, and compare each with onnxruntime.

    scripts/fuzz_networks.py [--place NAME ...] [--count N | --seconds N] [--seed N] [--number N] [--state FOLDER]

Places: host (ASan and UBSan), O0, O3 (with -flto), clang, powerpc (big-endian, qemu-user), m0plus, m4, m55, m3,
riscv32, riscv32_v (QEMU).
Integers must be onnxruntime's own, but where the exact number lies within float32's own error of a half: each such tie
is shown in the state's folder. A campaign goes on where the last one stopped, and sums its figures. A network that
fails is made smaller and kept. Ends with exit code 1 if one of this run is wrong, breaks mtool, or is refused.
With --few-bits layers have weights of 8 to 1 bits, and some activations 16 bits.
With --slide the networks look at sliding windows; 50 hops of each are compared with whole windows on the same place.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections import Counter  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

from tests.fuzzing import compare, draw, environments, forks, shrink, slides  # noqa: E402
from tests.fuzzing.campaign import Tally  # noqa: E402

LIMITS = forks.Limits(cpu_s=3600, memory_bytes=None)


def chunk(name: str, numbers: range, base: int, state: Path, *, at_once: int, few_bits: bool) -> Tally:
    """Run a range of networks in one environment."""
    environment = environments.environment(name, at_once)
    tally, networks = Tally(numbers.stop), []
    for number in numbers:
        try:
            model = draw.network(number, base, few_bits=few_bits)[1]
            networks.append(compare.prepared(number, model, in_bodies=draw.in_bodies(number, model, base)))
        except ValueError:
            tally.counts["not valid"] += 1
    report = compare.run(networks, environment)
    tally.counts += Counter(report.counts)
    with (state / f"ties-{name}.txt").open("a") as file:
        file.writelines(f"{tie}\n" for tie in report.ties)
    by_number = {network.number: network for network in networks}
    for number, kind, words in report.finds:
        smaller = _shrunk(by_number[number], kind, name)
        label = f"{kind} {' '.join(sorted({node.op_type for node in smaller.model.graph.node}))}"
        slug = "".join(letter if letter.isalnum() else "_" for letter in label)[:90]
        _save(smaller, state / "finds" / f"{slug}.{name}{number}")
        (state / "finds" / f"{slug}.{name}{number}.txt").write_text(f"{name} {number} {kind}\n{words}\n")
        entry = {"number": number, "bytes": smaller.model.ByteSize(), "times": 1, "words": words[-1500:]}
        tally.add(Tally(causes={label: entry}))
    return tally


def windows(name: str, numbers: range, *, at_once: int) -> Tally:
    """Run a range of networks over sliding windows in one environment."""
    report = slides.run(numbers, environments.environment(name, at_once))
    tally = Tally(numbers.stop)
    tally.counts += Counter(report.counts)
    for number, kind, words in report.finds:
        tally.add(Tally(causes={f"{kind} hop": {"number": number, "bytes": 0, "times": 1, "words": words}}))
    return tally


def _shrunk(network: compare.Network, kind: str, name: str) -> compare.Network:
    """Return the network made smaller, by runs on the host where it fails there too."""
    for where in dict.fromkeys(["O0" if name not in ("host", "clang") else name, name]):

        def fails(smaller: compare.Network, where: str = where) -> bool:
            found = compare.run([smaller], environments.environment(where)).finds
            return any(other == kind for _, other, _ in found)

        if where in ("O0", "O3", "host", "clang", "powerpc") and fails(network):
            return shrink.shrunk(network, fails)
    return network


def _save(network: compare.Network, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(network.model, f"{path}.onnx")
    inputs, outputs = network.inputs.items(), network.outputs.values()
    arrays = {f"x{n}": data[None] for n, (_, data) in enumerate(inputs)}
    np.savez(f"{path}.npz", **arrays, **{f"y{n}": data[None] for n, data in enumerate(outputs)})


def main() -> int:
    """Run campaigns; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", nargs="+", choices=environments.ENVIRONMENTS, default=["host"])
    parser.add_argument("--count", type=int, help="networks in each environment")
    parser.add_argument("--seconds", type=int, default=300, help="without --count: how long")
    parser.add_argument("--seed", type=int, default=0, help="another one is another campaign")
    parser.add_argument("--number", type=int, help="only this network")
    parser.add_argument("--at-once", type=int, default=40, help="networks in a firmware")
    parser.add_argument("--few-bits", action="store_true", help="networks with weights of fewer bits by layers")
    parser.add_argument("--slide", action="store_true", help="networks over sliding windows")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "fuzz-networks")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    given.state.mkdir(parents=True, exist_ok=True)
    end, found = time.monotonic() + given.seconds, 0
    for name in given.place:
        kind = "-slide" if given.slide else "-few-bits" if given.few_bits else ""
        path = given.state / f"{name}{kind}-{given.seed}.json"
        tally = Tally.read(path)
        begun = stop = tally.next
        if given.number is not None:
            tally, begun, stop = Tally(given.number), given.number, given.number + 1
        elif given.count is not None:
            stop = begun + given.count
        while tally.next < stop or (given.count is None and given.number is None and time.monotonic() < end):
            last = tally.next + given.at_once
            numbers = range(tally.next, last if given.count is None and given.number is None else min(last, stop))
            if given.slide:
                work = forks.call(lambda n=name, r=numbers: windows(n, r, at_once=given.at_once), LIMITS)
            else:
                work = forks.call(
                    lambda n=name, r=numbers: chunk(
                        n, r, given.seed, given.state, at_once=given.at_once, few_bits=given.few_bits
                    ),
                    LIMITS,
                )
            if work.ending != "done":
                print(f"{name}, networks {numbers}: {work.ending}\n{work.words}", file=sys.stderr)
                return 1
            for cause in tally.add(work.value):
                print(f"{name}: {cause}   (number {tally.causes[cause]['number']})", file=sys.stderr, flush=True)
            found += sum(entry["times"] for entry in work.value.causes.values())
            tally.next = numbers.stop
            if given.number is None:
                tally.write(path)
        print(f"{name}: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(tally.counts.items())))
        for cause, entry in tally.causes.items():
            print(f"  {entry['times']:6,}  {cause}   (number {entry['number']})  {entry['words'][:300]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
