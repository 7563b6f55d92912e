"""Environments for networks: the host with several compilers, boards in QEMU, a big-endian machine."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mtool import boards
from mtool.base.errors import DeviceError
from mtool.compiler.compilation import target_of
from mtool.compiler.kernels.target import Target
from mtool.plugins.onnx_backend import batch, firmware
from mtool.plugins.onnx_backend.batch import Array, Batch, CModel

HOST = Target("host", frozenset({"fpu"}))


class Running(Protocol):
    """Models that were built together."""

    def run(self, number: int, inputs: Sequence[Array]) -> list[Array]:
        """Run one of them."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A way to build models and run them."""

    target: Target
    build: Callable[[Sequence[CModel], Path], Running]
    at_once: int = 40


class BigEndian:
    """A program for a big-endian machine, under an emulator of its instructions."""

    def __init__(self, built: Batch, emulator: str) -> None:
        self.built, self.emulator = built, emulator

    def run(self, number: int, inputs: Sequence[Array]) -> list[Array]:
        """Run one model.

        Raises:
            DeviceError: the program died.
        """
        model = self.built.models[number]
        if number in self.built.refused:
            raise DeviceError("the C compiler rejects the model", details=[self.built.refused[number]])
        pairs = zip(model.fed, model.manifest.inputs, strict=True)
        data = b"".join(_swapped(np.asarray(inputs[position]), tensor.stored) for position, tensor in pairs)
        request = number.to_bytes(4, "big") + data
        done = subprocess.run([self.emulator, str(self.built.program)], input=request, capture_output=True, timeout=120)
        if done.returncode or len(done.stdout) != sum(tensor.bytes for tensor in model.manifest.outputs):
            raise DeviceError(f"the program died with {done.returncode}", details=done.stderr.decode().splitlines()[:6])
        results, data = [], done.stdout
        for tensor in model.manifest.outputs:
            stored = np.frombuffer(data[: tensor.bytes], np.dtype(tensor.stored).newbyteorder(">"))
            results.append(stored.astype(np.dtype(tensor.dtype)).reshape(tensor.shape))
            data = data[tensor.bytes :]
        return results

    def close(self) -> None:
        """Do nothing: each run is a process."""


def _swapped(data: Array, stored: str) -> bytes:
    return data.astype(np.dtype(stored)).astype(np.dtype(stored).newbyteorder(">")).tobytes()


def _host(compiler: str, *flags: str) -> Environment:
    return Environment(HOST, lambda models, folder: batch.build(models, folder, compiler=compiler, flags=flags))


def _board(name: str, at_once: int = 40) -> Environment:
    board = boards.get(name)
    return Environment(target_of(board), lambda models, folder: firmware.build(models, folder, board), at_once)


def _powerpc(models: Sequence[CModel], folder: Path) -> Running:
    built = batch.build(models, folder, compiler="powerpc-linux-gnu-gcc", flags=("-O2", "-static"))
    return BigEndian(built, "qemu-ppc")


ENVIRONMENTS: dict[str, Callable[[], Environment]] = {
    "host": lambda: _host(
        "gcc", "-O0", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"
    ),
    "O0": lambda: _host("gcc", "-O0"),
    "O3": lambda: _host("gcc", "-O3", "-flto"),
    "clang": lambda: _host("clang", "-O2"),
    "powerpc": lambda: Environment(HOST, _powerpc),
    "m4": lambda: _board("mps2_an386"),
    "m55": lambda: _board("mps3_an547"),
    "m0plus": lambda: _board("mps2_an383"),
    "m3": lambda: _board("mps2_an385"),
    "riscv32": lambda: _board("qemu_riscv32"),
    "riscv32_v": lambda: _board("qemu_riscv32_v"),
}


def environment(name: str, at_once: int | None = None) -> Environment:
    """Return a place by its name."""
    found = ENVIRONMENTS[name]()
    return replace(found, at_once=at_once) if at_once else found


def named(outputs: Sequence[Array], model: CModel) -> dict[str, Any]:
    """Return outputs by their names."""
    return {tensor.name: data for tensor, data in zip(model.manifest.outputs, outputs, strict=True)}
