"""The passes, in order. Each is a pure function Graph -> Graph; the graph is verified after each."""

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.verification import verify_one_graph
from mtool.compiler.passes.clamp_indices import clamp_indices
from mtool.compiler.passes.control_flow import map_bodies, prune
from mtool.compiler.passes.copies import copy_constant_inputs, copy_outputs
from mtool.compiler.passes.dead_channels import remove_dead_channels
from mtool.compiler.passes.fold_batch_norm import fold_batch_norm
from mtool.compiler.passes.fold_constants import fold_bias, fold_constants
from mtool.compiler.passes.fold_pads import fold_pads
from mtool.compiler.passes.fuse import fuse, quantize_before_moves
from mtool.compiler.passes.hoist import hoist_broadcasts, hoist_loop_invariants
from mtool.compiler.passes.integer_math import use_fixed_point, use_integer_math
from mtool.compiler.passes.layout import simplify_layout, transposes_to_loops
from mtool.compiler.passes.lower import lower
from mtool.compiler.passes.name_nodes import name_nodes
from mtool.compiler.passes.one_window import windows_to_dense
from mtool.compiler.passes.quantization import propagate_quantization, use_signed_integers
from mtool.compiler.passes.signs import mark_signs
from mtool.compiler.passes.slide import slide, with_slides
from mtool.compiler.passes.state_layout import put_time_outermost

log = logging.getLogger(__name__)


def sequence(target: Target) -> Sequence[Callable[[Graph], Graph]]:
    """Return the passes for a target, in order."""
    return (
        put_time_outermost,  # states that are stream buffers
        fold_pads,  # padding into the windows that read it
        fold_batch_norm,  # BatchNormalization into the product before it
        partial(use_signed_integers, target=target),  # uint8 activations to int8, where SIMD schedules need them
        partial(lower, float_weights=target.has_mve),  # ONNX operators to kernels (NHWC) and loops; integers behind QDQ
        fold_constants,  # nodes with only constant inputs
        quantize_before_moves,  # so that moves move integers
        simplify_layout,  # transpositions and views cancel, or move to where they cost least
        fuse,  # elementwise loops into the kernel or loop before them
        fold_bias,  # constants that an epilogue adds, into the bias
        partial(use_integer_math, target=target),  # float arithmetic on integers to tables and requantization
        transposes_to_loops,  # the remaining transpositions
        fuse,
        partial(remove_dead_channels, target=target),  # constant and unread channels, into the bias of their readers
        partial(use_fixed_point, target=target),  # requantization without an FPU
        partial(hoist_loop_invariants, target=target),  # computation that is the same in all rounds, before the first
        hoist_broadcasts,  # computation that is the same for many elements, before them
        fold_constants,
        clamp_indices,  # indices that depend on data
        slide,  # windows that move: operators compute the new rows alone
        mark_signs,  # inputs that are signs
        partial(windows_to_dense, target=target),  # convolutions of one window
        copy_constant_inputs,  # kernels read variables
        copy_outputs,  # no two outputs are written by one operator
        name_nodes,  # stable names, in order
    )


def traits(target: Target) -> Hashable:
    """Return the target properties that the passes' results depend on, for a graph without bodies."""
    return target.features - {"simd"}, target.has_float


def run(graph: Graph, target: Target) -> Graph:
    """Transform an imported graph into kernels and loops with schedules, the graphs of control nodes first.

    Raises:
        ModelError: an operator can't be lowered.
    """
    graph = with_slides(graph)
    graph = _run(propagate_quantization(prune(graph), target), target, sequence(target))
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", graph.dump())
    return graph


def _run(graph: Graph, target: Target, passes: Sequence[Callable[[Graph], Graph]]) -> Graph:
    """Run the passes over inner graphs, then `passes` over the graph itself, so that each graph is visited once."""
    *unnamed, _ = sequence(target)  # the outer graph names the nodes of a body
    graph = prune(map_bodies(graph, partial(_run, target=target, passes=unnamed)), deep=False)
    for step in passes:
        graph = step(graph)
        verify_one_graph(graph)
    return graph
