"""Rendering of the C templates, which lie beside the Python that fills them in."""

import math
from pathlib import Path
from typing import Any

import jinja2

from mtool.base.errors import ModelError
from mtool.compiler.kernels.template_cache import PycacheBytecode

_SYNTAX: dict[str, Any] = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": False,
    "autoescape": False,
}
_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parents[1]),
    undefined=jinja2.StrictUndefined,
    bytecode_cache=PycacheBytecode(repr(_SYNTAX)),
    **_SYNTAX,
)
_ENVIRONMENT.filters["product"] = math.prod


def template(name: str, **values: Any) -> str:
    """Render a C template, by its path within mtool, "kernels/conv2d/c99/im2col.c.j2", or by a whole path.

    Raises:
        ModelError: a template at a whole path, which is not mtool's, can't be read or rendered.
    """
    if not Path(name).is_absolute():
        return _ENVIRONMENT.get_template(name).render(**values)
    try:
        return _ENVIRONMENT.from_string(Path(name).read_text("utf-8")).render(**values)
    except Exception as failed:  # of a text that is not mtool's, and of the values that it was given
        raise ModelError(
            f"the C template {name} can't be rendered",
            details=[f"{type(failed).__name__}: {failed}"],
            hint="mend the package that it is of (docs/add-an-operator.md)",
        ) from failed
