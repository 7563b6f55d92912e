"""Rendering of the C templates, which lie beside the Python that fills them in."""

import math
from pathlib import Path
from typing import Any

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parents[1]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    autoescape=False,
)


_ENVIRONMENT.filters["product"] = math.prod


def template(name: str, **values: Any) -> str:
    """Render a C template, by its path within mtool, "ops/conv2d/c99/im2col.c.j2", or by a whole path."""
    if Path(name).is_absolute():
        return _ENVIRONMENT.from_string(Path(name).read_text("utf-8")).render(**values)
    return _ENVIRONMENT.get_template(name).render(**values)
