"""Rendering of the C templates, which are stored next to the Python code that fills them in."""

import contextlib
import importlib.util
import io
import math
import sys
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from mtool.base import files
from mtool.base.errors import ModelError, UsageError

# The C templates' Python bytecode, cached next to that of mtool's modules: most of rendering is their translation.


class PycacheBytecode(jinja2.BytecodeCache):
    """Caches a template's bytecode under the same rules as Python does for a module.

    It needs the same permissions as `mtool` itself; `PYTHONDONTWRITEBYTECODE` and `PYTHONPYCACHEPREFIX` apply.

    Args:
        settings: the settings that the bytecode depends on besides the template's text.
    """

    def __init__(self, settings: str) -> None:
        self.settings = settings

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of a template's bytecode file; "" if it is not cached."""
        tag = sys.implementation.cache_tag
        if filename is None or tag is None:
            return ""
        source = Path(filename)
        return str(Path(importlib.util.cache_from_source(filename)).with_name(f"{source.name}.{tag}.bytecode"))

    def get_source_checksum(self, source: str) -> str:
        """Return a hash of a template's text and of the settings."""
        return super().get_source_checksum(f"{self.settings}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template's bytecode; if it is missing or damaged, it is compiled again."""
        if not bucket.key:
            return
        try:
            data = Path(bucket.key).read_bytes()
        except OSError:
            return
        try:
            bucket.load_bytecode(io.BytesIO(data))
        except Exception:  # a truncated pickle may raise anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template's bytecode, if that is possible and enabled."""
        if bucket.key and not sys.dont_write_bytecode:
            with contextlib.suppress(UsageError):
                files.write(Path(bucket.key), bucket.bytecode_to_string())


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
    """Render a C template, given by its path within mtool, "kernels/conv2d/c99/im2col.c.j2", or an absolute path.

    Raises:
        ModelError: a template at an absolute path, which is not mtool's, can't be read or rendered.
    """
    if not Path(name).is_absolute():
        return _ENVIRONMENT.get_template(name).render(**values)
    try:
        return _ENVIRONMENT.from_string(Path(name).read_text("utf-8")).render(**values)
    except Exception as failed:  # the template and its values are not mtool's own
        raise ModelError(
            f"the C template {name} can't be rendered",
            details=[f"{type(failed).__name__}: {failed}"],
            hint="fix the package that contains it (docs/add-an-operator.md)",
        ) from failed
