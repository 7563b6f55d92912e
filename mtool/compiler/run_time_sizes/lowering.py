"""A model at several values of its run-time sizes, imported, lowered and joined."""

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mtool.base.errors import ModelError, UsageError
from mtool.base.formulas import Point
from mtool.base.identifiers import tensor_names
from mtool.compiler import frontend, passes
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import Graph
from mtool.compiler.ir.parametric import DifferError, Joined, Joiner
from mtool.compiler.kernels.target import Target
from mtool.compiler.run_time_sizes.inputs import check, with_sizes
from mtool.compiler.run_time_sizes.least import following
from mtool.compiler.run_time_sizes.moves import check_mirrors, with_open_moves
from mtool.compiler.run_time_sizes.outputs import varying_outputs, with_counts
from mtool.compiler.run_time_sizes.points import (
    MORE_STRUCTURE,
    STRUCTURE,
    emitted_points,
    is_within,
    small_points,
    smallest_sizes,
    structural_points,
    with_size,
)
from mtool.compiler.run_time_sizes.refusals import Refusals, operator_of, outline
from mtool.compiler.run_time_sizes.tables import sharing, with_large_tables

_MOST_SIZES = 2


def lowered(path: Path, target: Target, options: ModelOptions, maxima: Mapping[str, int]) -> tuple[Graph, Graph]:
    """Read a model whose dimensions `maxima` are sizes known at run time, and bring it to kernels and loops.

    Returns:
        The graph at the largest sizes, as it is imported; the graph for all sizes, lowered.

    Raises:
        UsageError: a largest size is no positive number.
        ModelError: the model can't be compiled at all sizes, or depends on them in a way that no formula tells.
    """
    if len(maxima) > _MOST_SIZES:
        raise UsageError(f"--max is given for {len(maxima)} dimensions of inputs; {_MOST_SIZES} can be open")
    of_data = {name: most for name, most in options.maxima.items() if name not in maxima}
    names = tuple(maxima)
    symbols = tuple(f"{name}_" if keyword.iskeyword(name) else name for name in tensor_names(names))
    model = _Model(path, replace(options, maxima=of_data, keeps_rounds=True), names, tuple(maxima.values()), symbols)
    imported, least = following(*model.imports(), model)
    graphs, joined = model.lowered(imported, least, target)
    points = [point for point in emitted_points(graphs, least, model.top) if model.is_known(joined, point)]
    samples = [(point, model.at(joined, point)) for point in points]
    graph = dict(samples)[model.top]
    model.check_outputs(imported, joined)
    check(graph, samples, model.refusals)
    ranges = dict(zip(names, zip(least, model.top, strict=True), strict=True))
    return imported[model.top], with_sizes(graph, samples, symbols, ranges)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of run-time sizes: their names in the model, their largest values, their names in formulas."""

    path: Path
    options: ModelOptions
    names: tuple[str, ...]
    top: Point
    symbols: tuple[str, ...]

    @property
    def refusals(self) -> Refusals:
        """The errors for this model."""
        return Refusals(self.path.name, self.names)

    def imports(self) -> tuple[dict[Point, Graph], Point]:
        """Import the model at several points; return the graphs, and the smallest sizes that it takes."""
        imported = {self.top: self.load(self.top)}
        least = self.smallest(imported)
        self.structural(least, imported)
        for point in small_points(self.top, least):
            self.add(point, imported)
        return imported, least

    def structural(self, least: Point, imported: dict[Point, Graph], count: int = STRUCTURE) -> list[Point]:
        """Return at which points the graph is brought to kernels, the largest first; they are imported."""
        taken = {size for kind in imported[self.top].types.values() for size in kind.shape}
        found = [point for point in structural_points(self.top, least, taken, count) if self.add(point, imported)]
        return list(dict.fromkeys([self.top, *found]))

    def lowered(self, imported: dict[Point, Graph], least: Point, target: Target) -> tuple[dict[Point, Graph], Joined]:
        """Bring the graph to kernels at some sizes, more if those are too few; return them, and that at any."""
        graphs: dict[Point, Graph] = {}
        for count in (STRUCTURE, MORE_STRUCTURE):
            structural = self.structural(least, imported, count)
            outputs = varying_outputs(imported.values())
            moved = with_open_moves({point: imported[point] for point in structural})
            for point, graph in moved.items():
                if point not in graphs:
                    graphs[point] = with_counts(passes.run(graph, target), outputs)
            try:
                return graphs, self.joined(graphs)
            except ModelError:
                if count == MORE_STRUCTURE:
                    raise
        raise AssertionError

    def load(self, point: Point) -> Graph:
        """Return the graph at some sizes."""
        dims = {**self.options.dims, **dict(zip(self.names, point, strict=True))}
        return frontend.load(self.path, replace(self.options, dims=dims))

    def add(self, point: Point, imported: dict[Point, Graph]) -> bool:
        """Import the model at some sizes, which it may refuse beyond the largest that are asked for."""
        if point in imported:
            return True
        try:
            imported[point] = sharing(self.load(point), imported[self.top])
        except ModelError as refused:
            if is_within(point, self.top):
                reason = f"it can't be compiled for {self.refusals.text_of(point)}"
                raise self.refusals.error(reason, [refused.what, *refused.details]) from None
            return False
        return True

    def smallest(self, imported: dict[Point, Graph]) -> Point:
        """Return the smallest sizes that the model takes, with which it is imported, each size on its own."""
        least = []
        structure = [outline(node) for node in imported[self.top].nodes]
        for index, most in enumerate(self.top):
            for size in smallest_sizes(most):
                point = with_size(self.top, index, size)
                try:
                    graph = imported.get(point) or sharing(self.load(point), imported[self.top])
                except ModelError:
                    continue
                if size == most or [outline(node) for node in graph.nodes] == structure:
                    imported[point] = graph
                    least.append(size)
                    break
        return tuple(least)

    def check_imports(self, imported: Mapping[Point, Graph]) -> None:
        """Check that what is imported is of one structure, and that its sizes follow formulas, small ones too."""
        points, graphs = tuple(imported), list(imported.values())
        joiner = Joiner(self.symbols, points)
        try:
            if len({len(graph.nodes) for graph in graphs}) > 1:
                raise DifferError("there are more operators at some sizes than at others")
            for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
                joiner.join(nodes, f"{nodes[0].op} {', '.join(nodes[0].origins[:3]) or nodes[0].name}")
            check_mirrors(graphs)
        except DifferError as found:
            raise self.refusals.other_structure(graphs, points, found) from None
        read = {value for node in graphs[0].nodes for value in node.inputs} | {*graphs[0].outputs}
        for name in (name for name in graphs[0].constants if name in read):
            try:
                joiner.join([graph.constants[name] for graph in graphs], name)
            except (DifferError, KeyError) as found:
                raise self.refusals.error("a constant depends on its sizes", [str(found)]) from None
        for value, kind in graphs[0].types.items():
            kinds = [graph.types.get(value, kind) for graph in graphs]
            try:
                joiner.join(kinds, value)
            except DifferError:
                raise self.refusals.error(
                    f"the shape of {value!r} does not follow its sizes by a formula",
                    [
                        f"{self.refusals.text_of(point)}: {shape}"
                        for point, shape in zip(points[:5], kinds, strict=False)
                    ],
                ) from None

    def joined(self, graphs: Mapping[Point, Graph]) -> Joined:
        """Return the lowered graph at any sizes."""
        failed: DifferError | None = None
        others = tuple(point for point in graphs if point != self.top)
        beyond = any(is_within(self.top, point) for point in others)
        for points in (tuple(graphs), *([others] if beyond else [])):  # the largest may meet another dimension's
            chosen = with_large_tables([graphs[point] for point in points])
            try:
                return Joiner(self.symbols, points, scales=chosen[0].scales).join(chosen)
            except DifferError as found:
                failed = failed or found
        details = [*operator_of(next(iter(graphs.values())), str(failed)), str(failed)]
        raise self.refusals.error("an operator depends on its sizes in a way that no formula tells", details)

    def check_outputs(self, imported: Mapping[Point, Graph], joined: Joined) -> None:
        """Check that the outputs of the joined graph have the shapes that the model gives them by itself."""
        for point, graph in imported.items():
            if not is_within(point, self.top):
                continue
            found = self.at(joined, point)
            for label, value in zip(graph.output_names, graph.outputs, strict=True):
                own = dict(zip(found.output_names, found.outputs, strict=True))[label]
                if graph.types[value].shape != found.types[own].shape:
                    raise self.refusals.error(
                        f"the shape of {label!r} does not follow its sizes by a formula",
                        [f"{self.refusals.text_of(point)}: {graph.types[value]}, by the formula {found.types[own]}"],
                    )

    def at(self, joined: Joined, point: Point) -> Graph:
        """Return the lowered graph at some sizes."""
        try:
            graph: Graph = joined.at(dict(zip(self.symbols, point, strict=True)))
        except DifferError as found:
            raise self.refusals.error("a constant depends on its sizes", [str(found)]) from None
        return graph

    def is_known(self, joined: Joined, point: Point) -> bool:
        """Return whether the graph is known at some sizes: tables may end where the largest need no more."""
        if is_within(point, self.top):
            return True
        try:
            joined.at(dict(zip(self.symbols, point, strict=True)))
        except DifferError:
            return False
        return True
