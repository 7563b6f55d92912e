"""Templates' bytecode, kept while the process runs: tuning and tests render one template for many projects."""

import functools
from types import CodeType

import jinja2
from jinja2.bccache import Bucket


class _Translated(jinja2.BytecodeCache):
    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            self._code[bucket.key, bucket.checksum] = bucket.code


@functools.cache
def translated(environment: str, settings: str) -> jinja2.BytecodeCache:
    """Return the bytecode of the templates that one kind of Jinja's environment with one group of settings made.

    A template is known by its place and its text: what a sandbox made is never what runs outside of it.
    """
    return _Translated()
