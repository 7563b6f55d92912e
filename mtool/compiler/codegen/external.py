"""The files of backends, next to the model's own."""

from mtool.base.errors import BuildError
from mtool.base.escaping import comment, short_name
from mtool.compiler.kernels.external import External, MemoryPiece
from mtool.compiler.plan import Plan
from mtool.compiler.plan.whole import plans_in


def check_alignment(plan: Plan) -> None:
    """Check that the tensors of regions lie as their devices need them.

    Raises:
        BuildError: a tensor is misaligned: the caller keeps it, or it lies within another tensor.
    """
    for inner, step in ((part, step) for part in plans_in(plan) for step in part.steps):
        attrs = step.node.attrs
        if not isinstance(attrs, External) or attrs.tensor_alignment == 1:
            continue
        for value in (*step.node.inputs, *step.node.outputs):
            kind = inner.graph.types[value]
            if value in inner.graph.constants or kind.dtype.size % attrs.tensor_alignment == 0:
                continue
            offset = inner.offsets.get(value)
            if offset is None or offset % attrs.tensor_alignment:
                source = inner.graph.sources.get(value)
                outside = "is kept by the caller" if inner is plan else "lies outside of the branch or loop"
                raise BuildError(
                    f"the backend {attrs.backend} needs tensors aligned to {attrs.tensor_alignment} B",
                    details=[
                        f"{short_name(source.tensor if source else value)} of {step.node.name} "
                        + (outside if offset is None else "lies within another tensor"),
                        f"nodes {', '.join(map(short_name, step.node.origins[:5]))}",
                    ],
                    hint="compile with --io arena"
                    if offset is None and inner is plan
                    else "leave that node to C with skip=NODE",
                )


def external_files(plan: Plan) -> dict[str, bytes]:
    """Return the files that the regions of a plan need, by path in the model's folder.

    Raises:
        BuildError: two regions have different files with the same name, or one has a name of the model's own files.
    """
    model, files = f"{plan.graph.name}", dict[str, bytes]()
    for step in (step for part in plans_in(plan) for step in part.steps):
        if not isinstance(step.node.attrs, External):
            continue
        for path, data in step.node.attrs.files.items():
            is_own = path.startswith((f"{model}.", f"{model}_")) or path == "mtool.json"
            if is_own or files.setdefault(path, data) != data:
                raise BuildError(
                    f"the backend {step.node.attrs.backend} has a file {path}, but "
                    f"{'so does the model itself' if is_own else 'another region has one with other contents'}",
                    details=[f"for {step.node.name}"],
                )
    return files


# Board memories that backends' regions request by name, besides the arena: one piece of each for the model.


def device_buffer_bytes(plan: Plan) -> dict[str, int]:
    """Return the bytes of each memory that a plan's regions use; they use them one after another."""
    sizes: dict[str, int] = {}
    for piece in _pieces(plan):
        sizes[piece.memory] = max(sizes.get(piece.memory, 0), piece.offset + piece.bytes)
    return sizes


def device_buffers(plan: Plan) -> list[str]:
    """Return the C that defines them."""
    lines = []
    for memory, size in device_buffer_bytes(plan).items():
        alignment = max(piece.alignment for piece in _pieces(plan) if piece.memory == memory)
        lines += [
            comment(f"The part of the board's memory {memory} that regions use while they are computed."),
            f"MT_IN_MEMORY({memory}, {alignment}) uint8_t {plan.graph.name}_{memory}[{size}];",
            "",
        ]
    return lines


def _pieces(plan: Plan) -> list[MemoryPiece]:
    steps = [step for part in plans_in(plan) for step in part.steps]
    return [piece for step in steps if isinstance(step.node.attrs, External) for piece in step.node.attrs.memory_pieces]
