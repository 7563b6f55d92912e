"""Mutated bytecode is refused, or runs within its arena."""

import subprocess
from pathlib import Path

import amount
import networks
import pytest
import sanitized
from networks import imported

from mtool.compiler import passes
from mtool.compiler.bytecode.call import KERNELS, SHARED, kernels_of
from mtool.compiler.bytecode.model import encode, plan_bytecode
from tests.compiler.bytecode import host, small

CASES = amount.of(100_000, 1_000)
REDUCED = 3  # of the random quantized networks one that has a reduction
FLOATS = 15  # of the random networks of float32 one that has a convolution, a pool and a softmax


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutate")
    flags = [*host.FLAGS, "-D_GNU_SOURCE", f"-I{host.CRT / 'include'}"]
    return sanitized.build([*host.SOURCES, Path(__file__).parent / "mutate.c"], folder / "mutate", flags)


def _images(folder: Path) -> list[Path]:
    """Write modules that call all kernels; return their paths."""
    protos = [small.network(), networks.integers(REDUCED), networks.floats(FLOATS)]
    made, kernels = [], set[str]()
    for number, proto in enumerate(protos):
        image = encode(plan_bytecode(passes.run(imported(proto), SHARED)))
        kernels |= {*kernels_of(image.data)}
        made.append(folder / f"{number}.bin")
        made[-1].write_bytes(image.data)
    assert kernels == {*KERNELS}, {*KERNELS} - kernels
    return made


@pytest.mark.slow
def test_changed_modules_are_refused_or_stay_inside(program: Path, tmp_path: Path) -> None:
    asked = [program, str(CASES), "1", *_images(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, ran, same = map(int, done.stdout.split())
    assert refused + ran >= CASES - 3 and same < CASES / 10
    assert ran > CASES / 50 and refused > CASES / 10  # both are tried
