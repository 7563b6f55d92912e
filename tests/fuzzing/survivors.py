"""Build the C of compiled mutants into one program with the sanitizers, run it, compare it with the oracles."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx

from mtool.base.errors import BuildError, MtoolError
from mtool.plugins.onnx_backend.batch import CModel, build
from tests.fuzzing import forks, oracles
from tests.fuzzing.trial import Compiled

FLAGS = ("-O0", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
MOST_BYTES = 4 << 20
RUN_S = 30


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that mtool compiled, with the file that it was."""

    number: int
    path: Path
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a survivor: `kind` is counted, `words` says why."""

    number: int
    kind: str
    words: str = ""


def verdicts(survivors: Sequence[Survivor], folder: Path) -> list[Verdict]:
    """Return a verdict on each survivor."""
    fitting = [one for one in survivors if _bytes(one.compiled) <= MOST_BYTES]
    found = [Verdict(one.number, "too large to run") for one in survivors if one not in fitting]
    return found + _built(fitting, folder)


def _bytes(compiled: Compiled) -> int:
    manifest = compiled.manifest
    files = sum(len(compiled.files[name]) for name in compiled.files)
    return max(manifest.arena_bytes, files, sum(t.bytes for t in (*manifest.inputs, *manifest.outputs)))


def _built(survivors: Sequence[Survivor], folder: Path) -> list[Verdict]:
    if not survivors:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    models = [
        CModel(one.compiled.files, one.compiled.manifest, tuple(range(len(one.compiled.manifest.inputs))))
        for one in survivors
    ]
    try:
        batch = build(models, folder, flags=FLAGS)
    except MtoolError as failed:
        if len(survivors) == 1:
            return [Verdict(survivors[0].number, "C error", str(failed))]
        half = len(survivors) // 2
        return _built(survivors[:half], folder / "a") + _built(survivors[half:], folder / "b")
    found = []
    with batch:
        for place, one in enumerate(survivors):
            manifest = one.compiled.manifest
            inputs = oracles.drawn(manifest.inputs, one.number)
            try:
                with _in_time():
                    got = batch.run(place, inputs)
            except BuildError as refused:
                found.append(Verdict(one.number, "C error", str(refused)))
                continue
            except MtoolError as died:
                found.append(Verdict(one.number, "fault", str(died)))
                continue
            except TimeoutError:
                batch.close()
                found.append(Verdict(one.number, "too slow to run"))
                continue
            feeds = {tensor.name: data for tensor, data in zip(manifest.inputs, inputs, strict=True)}
            found.append(_compared(one, feeds, got))
    return found


def _compared(one: Survivor, feeds: dict[str, oracles.Array], got: list[oracles.Array]) -> Verdict:
    """Hold a survivor's outputs against every oracle that runs it."""
    names = [tensor.name for tensor in one.compiled.manifest.outputs]
    feeds = {**feeds, **one.compiled.constants}
    rounding = one.compiled.rounding
    reported = forks.call(lambda: oracles.answers(one.path, rounding, feeds, names), forks.Limits())
    if reported.ending != "done":
        return Verdict(one.number, "no oracle", f"{reported.ending}: {reported.words[:300]}")
    said = {name: answer for name, answer in reported.value.items() if not isinstance(answer, str)}
    if not said:
        return Verdict(one.number, "no oracle", str(reported.value)[:400])
    differences = {name: oracles.difference(answer, got) for name, answer in said.items()}
    if "" in differences.values():
        return Verdict(one.number, "equal")
    if "step" in differences.values():
        return Verdict(one.number, "a step", str(differences))
    several = list(said.values())
    if _data_shape(one, several, got):
        return Verdict(one.number, "data of another shape than declared", str(differences))
    if any(oracles.difference(several[0], other) for other in several[1:]):
        return Verdict(one.number, "the oracles differ", str(differences))
    if list(said) == ["onnx.reference"]:  # which checks little of what it is given
        return Verdict(one.number, "only onnx.reference differs", str(differences))
    return Verdict(one.number, "wrong", str(differences))


def _data_shape(one: Survivor, answers: Sequence[Sequence[oracles.Array]], got: Sequence[oracles.Array]) -> bool:
    """Tell whether data decide a shape and the one that the model declares is compiled.

    They do where an input can be axes or sizes, and where the file itself says that an output has the shape that we
    give it, against what each oracle finds in the data, such as of a Compress.
    """
    sizes = any(tensor.dtype in ("int32", "int64") for tensor in one.compiled.manifest.inputs)
    declared = _declared(one.path)
    return all(
        any(
            a.shape != b.shape and (sizes or declared.get(tensor.name) == b.shape)
            for tensor, a, b in zip(one.compiled.manifest.outputs, answer, got, strict=False)
        )
        for answer in answers
    )


def _declared(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs of an ONNX file, as it states them, where it states all sizes."""
    if path.suffix != ".onnx":
        return {}
    kinds = {value.name: value.type.tensor_type for value in onnx.load(path).graph.output}
    return {
        name: tuple(dim.dim_value for dim in kind.shape.dim)
        for name, kind in kinds.items()
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
    }


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise TimeoutError in what takes longer than RUN_S."""

    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(RUN_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
