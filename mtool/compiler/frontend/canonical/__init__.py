"""Canonical forms: what ten years of opsets spell in many ways, the rest of mtool sees in one.

Each function takes a node as it stands in the file and emits the canonical one: axes, pads, shapes
and bounds as plain attributes, never negative; views of all kinds as `Reshape` of one input.
"""

from mtool.compiler.frontend.canonical.elementwise import ELEMENTWISE
from mtool.compiler.frontend.canonical.forms import Attrs, Canonical
from mtool.compiler.frontend.canonical.movement import MOVEMENT
from mtool.compiler.frontend.canonical.reductions import REDUCTIONS
from mtool.compiler.frontend.canonical.signals import SIGNALS, recurrent
from mtool.compiler.frontend.canonical.spatial import SPATIAL

__all__ = ["CANONICAL", "Attrs", "Canonical", "recurrent"]

CANONICAL: dict[str, Canonical] = {**ELEMENTWISE, **MOVEMENT, **REDUCTIONS, **SPATIAL, **SIGNALS}
"""The function for each operator's canonical form, by its name; others are canonical already, or expanded."""
