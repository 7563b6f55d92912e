"""If, Loop and Scan: nodes with graphs, of which the run decides what is computed; or what is known, written out."""

from collections.abc import Callable

import onnx

from mtool.compiler.frontend.control.branches import import_if
from mtool.compiler.frontend.control.loops import import_loop
from mtool.compiler.frontend.control.scans import import_scan
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.scope import Bodies, Opsets

CONTROL: dict[str, Callable[[Importer, onnx.NodeProto, str, Opsets, Bodies], None]] = {
    "If": import_if,
    "Loop": import_loop,
    "Scan": import_scan,
}
"""What imports each."""
