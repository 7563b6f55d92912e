"""Rendering of the C templates, which lie beside the Python that fills them in."""

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

# The C templates as Python's bytecode, beside that of mtool's own modules: most of rendering is their translation.


class PycacheBytecode(jinja2.BytecodeCache):
    """Keeps a template's bytecode where Python keeps a module's, and leaves it out where Python would.

    So it needs the same rights as `mtool` itself, and `PYTHONDONTWRITEBYTECODE` and `PYTHONPYCACHEPREFIX` hold for it.

    Args:
        settings: what the bytecode depends on besides the template's text.
    """

    def __init__(self, settings: str) -> None:
        self.settings = settings

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the file that the bytecode of a template lies in; "" if it lies in none."""
        tag = sys.implementation.cache_tag
        if filename is None or tag is None:
            return ""
        source = Path(filename)
        return str(Path(importlib.util.cache_from_source(filename)).with_name(f"{source.name}.{tag}.bytecode"))

    def get_source_checksum(self, source: str) -> str:
        """Return a hash of a template's text and of the settings."""
        return super().get_source_checksum(f"{self.settings}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template's bytecode; what is missing or damaged is made anew."""
        if not bucket.key:
            return
        try:
            data = Path(bucket.key).read_bytes()
        except OSError:
            return
        try:
            bucket.load_bytecode(io.BytesIO(data))
        except Exception:  # of a pickled checksum that was cut: anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template's bytecode, if that is possible and wanted."""
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
