"""Many models in one host program: compiled to C one by one, built together, run over a pipe.

The program reads the number of a model (4 bytes) and the bytes of its inputs, and writes the bytes of
its outputs. A model that the C compiler rejects is identified and left out.
"""

import contextlib
import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import onnx
from numpy.typing import NDArray

from mtool.base import files, proc, resources
from mtool.base.errors import BuildError, DeviceError, UsageError
from mtool.base.filetree import FileTree
from mtool.base.proc import Answering, Closing
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan
from mtool.compiler.plan.for_time import PackingRoom
from mtool.device.session.tensors import array_of
from mtool.manifest import Manifest

Array = NDArray[Any]

HOST = Target("host", frozenset())
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow")
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TIMEOUT_S = 600.0
_GRACE_S = 10.0  # from the end of its output to its exit: a sanitizer writes its report
_WORDS, _WORDS_BYTES = 6, 1 << 14  # of its last output


@dataclass(frozen=True, slots=True)
class CModel:
    """One model as C: its files, its manifest, and the numbers of the proto's inputs that remain inputs."""

    files: FileTree
    manifest: Manifest
    fed: tuple[int, ...]


def to_c(model: onnx.ModelProto, name: str, options: ModelOptions = DEFAULTS, target: Target = HOST) -> CModel:
    """Compile a model in memory to C.

    Args:
        model: the model.
        name: the prefix of its C symbols.
        options: values for inputs that become constants and for symbolic dimensions, and the largest sizes of values
            whose size depends on data.
        target: the target to compile for.

    Raises:
        NeedsValues: the values of some inputs must be known; give them as constants.
        ModelError: the model can't be compiled.
    """
    graph = frontend.from_proto(model, name, options)
    plan = make_plan(passes.run(graph, target), target, packing_room=PackingRoom())
    files, manifest = codegen.generate(plan, f"{name}.onnx", "0" * 64)
    fed = (number for number, value in enumerate(input_names(model)) if value not in options.constants)
    return CModel(files, manifest, tuple(fed))


def input_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of a model's inputs that are not initializers."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in initialised]


class Built(Closing):
    """Models that are built together; `refused` has those that the C compiler rejects, with its message."""

    def __init__(self, models: Sequence[CModel], refused: Mapping[int, str] | None = None) -> None:
        self.models, self.refused = models, refused or {}

    def run(self, number: int, inputs: Sequence[Array]) -> list[Array]:
        """Run one model; `inputs` are those of the ONNX model, in its order, constants included.

        Raises:
            BuildError: the C compiler rejects the model.
            DeviceError: the model failed, or the program died; the message has its last output.
            CommunicationError: the board stopped answering.
        """
        if number in self.refused:
            raise BuildError("the C compiler rejects the model", details=self.refused[number].splitlines())
        model, results = self.models[number], list[Array]()
        data = self._ask(number.to_bytes(4, "little") + packed(model, inputs), model.manifest)
        for tensor in model.manifest.outputs:
            results.append(array_of(tensor, data[: tensor.bytes]))
            data = data[tensor.bytes :]
        return results

    @abstractmethod
    def _ask(self, request: bytes, model: Manifest) -> bytes:
        """Send a request, and return the bytes of the model's outputs."""


class Batch(Built):
    """A host program that contains the models."""

    def __init__(self, program: Path, models: Sequence[CModel], refused: Mapping[int, str] | None = None) -> None:
        super().__init__(models, refused)
        self.program = program
        self._running: Answering | None = None

    def _ask(self, request: bytes, model: Manifest) -> bytes:
        running = self._running = self._running or Answering([str(self.program)])
        with contextlib.suppress(BrokenPipeError):
            running.child.write(request)
        expected_bytes = sum(tensor.bytes for tensor in model.outputs)
        data = running.answers.read(expected_bytes)
        if len(data) == expected_bytes:
            return data
        code = running.child.wait(_GRACE_S)
        words = os.pread(running.errors.fileno(), _WORDS_BYTES, 0).decode(errors="replace")
        self.close()
        # the first lines, where a sanitizer reports what it found
        raise DeviceError(f"the program died with {code}", details=words.splitlines()[:_WORDS])

    def close(self) -> None:
        """End the program."""
        if self._running is not None:
            self._running.end()
            self._running = None


def packed(model: CModel, inputs: Sequence[Array]) -> bytes:
    """Return the bytes of all inputs of the ONNX model, in its order.

    Raises:
        UsageError: an input has another shape than the model was compiled for.
    """
    parts = []
    for index, tensor in zip(model.fed, model.manifest.inputs, strict=True):
        array = np.asarray(inputs[index])
        if array.shape != tensor.shape:
            raise UsageError(
                f"input {tensor.name!r} has another shape than the model was compiled for",
                details=[f"expected {list(tensor.shape)}", f"found    {list(array.shape)}"],
            )
        parts.append(array.astype(np.dtype(tensor.dtype)).astype(np.dtype(tensor.stored)).tobytes())
    return b"".join(parts)


def build(models: Sequence[CModel], folder: Path, *, compiler: str = "cc", flags: Sequence[str] = ("-O1",)) -> Batch:
    """Write the models' C and one program around them to `folder`, and compile it."""
    refusals: dict[int, str] = {}
    for model in models:
        for name in model.files:
            files.write(folder / name, model.files[name])
    include = resources.path("crt") / "include"
    while True:
        accepted = {number: model.manifest for number, model in enumerate(models) if number not in refusals}
        files.write(folder / "batch.c", rendered("batch.c.j2", models=accepted).encode())
        errors = ["-Werror"] if resources.warnings_are_errors() else []
        argv = [compiler, *STRICT, *errors, *flags, "-I", str(include), "batch.c", "-o", "batch", "-lm"]
        done = proc.run(argv, what="build of a batch", timeout_s=_TIMEOUT_S, cwd=folder, check=False)
        if done.returncode == 0:
            return Batch(folder / "batch", models, refusals)
        messages = refused(done.output, models)
        if not messages:
            raise BuildError("the batch can't be built", details=done.output.splitlines()[-20:])
        refusals.update(messages)


def refused(output: str, models: Sequence[CModel]) -> dict[int, str]:
    """Return the compiler's messages about models that it names, by the model's number."""
    numbers = {model.manifest.model: number for number, model in enumerate(models)}
    messages: dict[int, str] = {}
    for name, message in re.findall(
        r"^(?:.*[/\\])?(\w+?)(?:_weights)?\.(?:c|h|inc):\d+:\d+: (?:fatal )?error: (.*)$", output, re.MULTILINE
    ):
        if name in numbers:
            messages.setdefault(numbers[name], message)
    return messages


def rendered(template: str, **values: Any) -> str:
    """Return the C of a template in this folder."""
    return _TEMPLATES.get_template(template).render(**values)
