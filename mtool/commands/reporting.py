"""A one-page report on a model on a board: memory, time, verification, and the boards that it fits."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np

from mtool.base import checked, locks
from mtool.base.errors import BuildError, ModelError, UsageError
from mtool.base.escaping import one_line
from mtool.boards import Board, load_all
from mtool.commands.cost import Cost, cost_of, kinds_to_measure
from mtool.device.build import measure
from mtool.device.build.fit import Need, Part, needs_of
from mtool.device.build.size import Size
from mtool.device.session import Readings
from mtool.device.session.profile import Profile
from mtool.manifest import Manifest
from mtool.quantization.evaluation import Evaluation, Labelled, run
from mtool.quantization.metrics import Scoring, rows
from mtool.quantization.recipes import Recipe, of_model, table
from mtool.stages import formatting
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.fitting import Fit, check
from mtool.stages.job import Job
from mtool.stages.options import Options
from mtool.verification.layers import LayerReport, compare_layers
from mtool.version import __version__

_TEMPLATE = Path(__file__).with_name("report.html.j2")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the arena and the operators during which it is in use.

    Attributes:
        label: its contents.
        kind: an input, an output, a state, a result of an operator for a later one, or an operator's scratch.
        offset: the offset from the arena's start, in bytes; pools follow each other.
        bytes: its size.
        first: the operator that writes it; -1: the caller.
        last: the last operator that reads it; the number of operators: the caller.
    """

    label: str
    kind: Literal["input", "output", "state", "between", "scratch"]
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Function:
    """A C function of the model: its code size, and the operators that it computes."""

    name: str
    bytes: int
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A model on a board.

    Attributes:
        manifest: the model, with its project.
        board: the board, with the roles of its memories.
        cost: one inference, and the firmware's sizes.
        profile: the time of each operator.
        memory: the contents of the arena over time.
        memories: what the firmware puts into each memory, and the limits; a limit of 0: unknown.
        functions: the model's C functions, the largest first.
        other_code_bytes: the code of everything else.
        layers: the comparison of each operator with the reference; None: there is nothing to compare with.
        missing: why not.
        fits: the boards that it fits.
        accuracy: the metrics on labelled samples, if there are some: of this model, then of the firmware's others.
        recipe: how the bits of the model's layers were chosen, if its recipe is beside its file.
    """

    manifest: Manifest
    board: Board
    cost: Cost
    profile: Profile
    memory: tuple[Block, ...]
    memories: tuple[Need, ...]
    functions: tuple[Function, ...]
    other_code_bytes: int
    layers: LayerReport | None
    missing: str
    fits: tuple[Fit, ...]
    accuracy: tuple[Evaluation, ...] = ()
    recipe: Recipe | None = None

    @property
    def here(self) -> Fit | None:
        """What the firmware needs of this board, with the estimated time; None: it is not among the boards."""
        return next((fit for fit in self.fits if fit.board == self.board.name), None)

    @property
    def used_bytes(self) -> tuple[int, ...]:
        """The bytes of the arena that are in use during each operator."""
        return tuple(_used(self.memory, step) for step in range(len(self.manifest.operators)))

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "mtool_version": __version__,
            "model": self.manifest.model,
            "board": self.board.name,
            "cost": self.cost.as_json(),
            "profile": self.profile.as_json(),
            "arena": {
                "bytes": self.manifest.arena_bytes,
                "bound_bytes": self.manifest.arena_bound_bytes,
                "pools": [pool.model_dump() for pool in self.manifest.pools],
                "blocks": [dataclasses.asdict(block) for block in self.memory],
                "used_bytes": self.used_bytes,
            },
            "memories": [dataclasses.asdict(need) for need in self.memories],
            "flash": {
                "functions": [dataclasses.asdict(function) for function in self.functions],
                "other_code_bytes": self.other_code_bytes,
                "constants": {operator.name: operator.constant_bytes for operator in self.manifest.operators},
                "pools": [pool.model_dump() for pool in self.manifest.constant_pools],
            },
            "layers": None if self.layers is None else self.layers.as_json(),
            "accuracy": [figures.as_json() for figures in self.accuracy],
            "front": [row.model_dump() for row in self.recipe.front] if self.recipe else [],
            "fits": [fit.as_json() for fit in self.fits],
        }

    def as_html(self) -> str:
        """Return the report as one self-contained page."""

        def shown(value: object) -> object:  # printable text only; HTML escaping follows
            return one_line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

        environment = jinja2.Environment(
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
        )
        environment.filters |= {
            "kilobytes": formatting.kilobytes,
            "amount": formatting.amount,
            "joules": formatting.joules,
            "ticks": ticks,
            "metrics": rows,
            "models": table,
        }
        return environment.from_string(_TEMPLATE.read_text()).render(
            report=self, version=__version__, emulators={name for name, one in load_all().items() if one.is_emulator}
        )


@locks.keep_locks()
def report(
    path: str | Path,
    *,
    board: str | Board,
    samples: checked.Count = 4,
    seed: checked.Natural = 0,
    repeat: checked.Count = 3,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    data: str | Path | None = None,
    labels: str | Path | None = None,
) -> ModelReport:
    """Compile, build, run, profile and compare a model on a board, and determine which boards it fits.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        samples: the number of inputs to compare the operators on.
        seed: the seed of these inputs.
        repeat: the number of inferences for the median of each time.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        data: labelled samples, as for `evaluate`; None: the accuracy is not measured.
        labels: a file with the labels; default: `labels` in the data.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    if labels is not None and data is None:
        raise UsageError("--labels needs --data", hint="add --data X.npz")
    labelled = None if data is None else Labelled(Path(data), None if labels is None else Path(labels))
    job = Job.of(path, board, options, deployment, samples=samples, seed=seed)
    model = job.compile()
    compared = [model, *(other for other in deployment.models if other is not model)]
    read = [(model, labelled.read(model.manifest)) for model in compared] if labelled is not None else []
    prepared = job.build(model, kinds_to_measure(model))
    manifest = prepared.manifest
    layers, missing = None, ""
    with deployment.open(prepared) as device:
        inputs = job.filled(manifest)
        cost = cost_of(prepared, device, inputs, Readings(repeat=repeat))
        profile = device.profile(inputs, repeat=repeat)
        try:
            layers = compare_layers(device, model, job.inputs(manifest))
        except (BuildError, ModelError) as absent:  # the reference is not installed, or can't run the model
            missing = absent.what
    accuracy = [run(model, deployment.build(model), data, Scoring(), deployment) for model, data in read]
    size = measure(prepared.built.firmware[cost.firmware], manifest)
    users: dict[str, list[int]] = {}
    for operator in manifest.operators:
        users.setdefault(operator.function, []).append(operator.index)
    functions = [Function(name, size.functions.get(name, 0), tuple(numbers)) for name, numbers in users.items()]
    code_bytes = sum(function.bytes for function in functions)
    return ModelReport(
        manifest=manifest,
        board=prepared.board,
        cost=cost,
        profile=profile,
        memory=memory_map(manifest),
        memories=_memories(size, cost, manifest, code_bytes),
        functions=tuple(sorted(functions, key=lambda function: -function.bytes)),
        other_code_bytes=max(cost.flash_code_bytes - code_bytes, 0),
        layers=layers,
        missing=missing,
        fits=check(
            path, options=replace(job.options, template="", template_options={}, schedules={}, pools=())
        ).by_time,
        accuracy=tuple(accuracy),
        recipe=of_model(Path(path)),
    )


def _memories(size: Size, cost: Cost, manifest: Manifest, code_bytes: int) -> tuple[Need, ...]:
    """Return the contents of each memory; `code_bytes`: the model's part of the code."""
    needs = needs_of(size, manifest) or (  # an operating system places things
        Need("code and constants", 0, (Part("weights", cost.flash_const_bytes), Part("code", cost.flash_code_bytes))),
        Need("RAM", 0, (Part("arena", cost.arena_bytes), Part("data", cost.ram_static_bytes))),
    )

    def split(part: Part) -> list[Part]:
        if part.what != "code":
            return [part]
        model_bytes = min(code_bytes, part.bytes)
        return [Part("the model's code", model_bytes), Part("other code", part.bytes - model_bytes)]

    pairs = ((need, tuple(piece for part in need.parts for piece in split(part) if piece.bytes)) for need in needs)
    return tuple(replace(need, parts=parts) for need, parts in pairs if parts)


def _used(blocks: Sequence[Block], step: int) -> int:
    """Return the number of bytes that blocks cover at a step; some lie over others."""
    covered = end = 0
    for block in sorted(blocks, key=lambda block: block.offset):
        if block.first <= step <= block.last:
            covered += max(block.offset + block.bytes - max(block.offset, end), 0)
            end = max(end, block.offset + block.bytes)
    return covered


def ticks(most: float, factors: Sequence[float] = (2, 2.5, 2)) -> list[int]:
    """Return up to six round numbers from 0 to `most` for an axis; `factors` lead from one step size to the next."""
    step = 1
    for factor in itertools.cycle(factors):
        if most <= 5 * step:
            break
        step = int(step * factor)
    return list(range(0, int(most) + 1, step))


def memory_map(manifest: Manifest) -> tuple[Block, ...]:
    """Return the contents of the arena over time, from the operators' operands."""
    end = len(manifest.operators)
    state_places = {manifest.flat(state.pool, state.arena_offset) for state in manifest.states}
    blocks: list[Block] = []
    owner = np.full(manifest.arena_bytes, -1)  # for each byte the block that was last written there

    def held(offset: int, size: int) -> list[int]:
        return [int(number) for number in np.unique(owner[offset : offset + size]) if number >= 0]

    def begin(block: Block) -> None:
        owner[block.offset : block.offset + block.bytes] = len(blocks)
        blocks.append(block)

    for tensor in manifest.inputs:
        if tensor.arena_offset is not None:
            begin(Block(tensor.name, "input", manifest.flat(tensor.pool, tensor.arena_offset), tensor.bytes, -1, -1))
    for state in manifest.states:
        blocks.append(Block(state.input, "state", manifest.flat(state.pool, state.arena_offset), state.bytes, -1, end))
    for operator in manifest.operators:
        for operand in operator.reads:
            if operand.memory == "arena":
                for number in held(manifest.flat(operand.index, operand.offset), operand.bytes):
                    blocks[number] = dataclasses.replace(blocks[number], last=operator.index)
        if operator.scratch_bytes:
            at = manifest.flat(operator.scratch_pool, operator.scratch_offset)
            scratch = (at, operator.scratch_bytes, operator.index, operator.index)
            blocks.append(Block(f"scratch of {operator.name}", "scratch", *scratch))
        for operand in operator.writes:
            at = manifest.flat(operand.index, operand.offset) if operand.memory == "arena" else -1
            if at >= 0 and at not in state_places:
                label = f"{operator.name}: {operand.dtype}[{','.join(map(str, operand.shape))}]"
                begin(Block(label, "between", at, operand.bytes, operator.index, operator.index))
    for tensor in manifest.outputs:
        if tensor.arena_offset is not None:
            for number in held(manifest.flat(tensor.pool, tensor.arena_offset), tensor.bytes):
                blocks[number] = dataclasses.replace(blocks[number], kind="output", label=tensor.name, last=end)
    return tuple(blocks)
