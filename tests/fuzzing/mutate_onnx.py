"""Structure-aware mutations of ONNX models, and their frequency."""

import random
from collections.abc import Callable
from pathlib import Path

from onnx import ModelProto

from tests.fuzzing.mutate_nodes import (
    add_attribute,
    change_attribute,
    change_operator,
    copy_node,
    drop_attribute,
    remove_node,
    rename_node,
    rename_output,
    retype_attribute,
    rewire_input,
    swap_nodes,
)
from tests.fuzzing.mutate_structure import (
    change_versions,
    flip_bytes,
    grow,
    insert_operator,
    quantize_value,
    rename_value,
    wrap,
)
from tests.fuzzing.mutate_tensors import (
    change_constant,
    change_interface,
    change_type,
    constant_or_input,
    make_sparse,
    resize_everywhere,
)

Mutation = Callable[[ModelProto, random.Random, Path], None]

MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (change_attribute, 14), (drop_attribute, 3), (add_attribute, 7), (retype_attribute, 2), (change_operator, 7),
    (remove_node, 2), (copy_node, 4), (swap_nodes, 2), (rename_node, 3), (rewire_input, 9), (rename_output, 4),
    (rename_value, 4), (change_type, 10), (resize_everywhere, 6), (change_interface, 6), (change_constant, 14),
    (constant_or_input, 6), (make_sparse, 1), (change_versions, 4), (quantize_value, 7), (insert_operator, 9),
    (grow, 3), (wrap, 6), (flip_bytes, 1),
)  # fmt: skip


def mutate(seed: ModelProto, rng: random.Random, folder: Path) -> bytes:
    """Return the file of a mutant of a model; files that it reads are written into `folder`."""
    model = ModelProto()
    model.CopyFrom(seed)
    kinds, weights = zip(*MUTATIONS, strict=True)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        try:
            rng.choices(kinds, weights)[0](model, rng, folder)
        except (
            IndexError,
            ValueError,
            TypeError,
            KeyError,
            OverflowError,
            StopIteration,
            UnicodeError,
            NotImplementedError,
        ):
            continue  # there was nothing to change, or protobuf can't hold it
    raw = folder / "raw"
    return raw.read_bytes() if raw.is_file() else model.SerializeToString()
