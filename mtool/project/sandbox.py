"""The Jinja of templates: cookiecutter's, without access to Python unless the user trusts the template.

A user's own template may come from anywhere. Rendering it only runs Jinja: no extension is loaded, no attribute that
leads to Python's internals can be read, no hook is run, and nothing outside its folder is included. Its output is code
nevertheless, which a build compiles and runs: SECURITY.md.
"""

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import jinja2
from cookiecutter.environment import ExtensionLoaderMixin, StrictEnvironment
from cookiecutter.exceptions import NonTemplatedInputDirException, UnknownExtension
from jinja2.bccache import Bucket
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

from mtool.base.errors import MtoolError, UsageError

# Templates' bytecode, kept while the process runs: tuning and tests render one template for many projects.


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
    """Return the bytecode cache of one kind of Jinja environment with one group of settings.

    So bytecode compiled in the sandbox is never run outside of it. A template's key is its path and its text.
    """
    return _Translated()


DEFAULTS = "cookiecutter.json"
_TRUST = "if you trust its author with your account, add --trust-template"
# The Jinja settings allowed in cookiecutter.json: how a text is read, nothing that is called.
_SETTINGS = frozenset(
    f"{kind}_{end}_string" for kind in ("block", "variable", "comment") for end in ("start", "end")
) | {"line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence"}


class _Sandbox(ExtensionLoaderMixin, SandboxedEnvironment):  # type: ignore[misc]  # the mixin has no types
    """cookiecutter's environment on top of Jinja's sandbox."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, **settings)


def defaults(folder: Path) -> dict[str, Any]:
    """Return the contents of a template's cookiecutter.json; empty if there is none.

    Raises:
        UsageError: it is not a JSON object.
    """
    path = folder / DEFAULTS
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as wrong:
        raise UsageError(f"{path} is not JSON", details=[str(wrong)]) from None
    if not isinstance(read, dict):
        raise UsageError(f"{path} is not a JSON object")
    return read


def environment(variables: Mapping[str, Any], folder: Path, *, trust: bool) -> jinja2.Environment:
    """Return the Jinja environment that renders a template's texts.

    Args:
        variables: the variables of a text; `cookiecutter` has Jinja's settings too.
        folder: the template's folder, for messages.
        trust: its extensions may be loaded, and its texts may use all of Python.

    Raises:
        UsageError: it needs a feature that requires trust, or has unknown settings.
    """
    context = variables["cookiecutter"]
    settings, extensions = context.get("_jinja2_env_vars", {}), context.get("_extensions", [])
    if extensions and not trust:
        details = [f"_extensions: {json.dumps(extensions)}"]
        raise UsageError(f"{folder / DEFAULTS} loads Python code into Jinja", details=details, hint=_TRUST)
    wrong = [name for name in settings if name not in _SETTINGS] if isinstance(settings, dict) else ["not an object"]
    if wrong:
        details = [f"_jinja2_env_vars: {', '.join(wrong)}", f"known: {', '.join(sorted(_SETTINGS))}"]
        raise UsageError(f"{folder / DEFAULTS} has settings that are not allowed", details=details)
    kind = StrictEnvironment if trust else _Sandbox
    try:
        env: jinja2.Environment = kind(context=variables, keep_trailing_newline=True, **settings)
        env.bytecode_cache = translated(kind.__name__, json.dumps([settings, extensions], sort_keys=True))
    except (UnknownExtension, AssertionError, TypeError) as refused:
        raise UsageError(f"{folder / DEFAULTS} can't be used", details=[str(refused)]) from None
    return env


def check_links(folder: Path) -> None:
    """Refuse links that lead out of a template: they would copy other files into a project.

    Raises:
        UsageError: there is one.
    """
    inside = folder.resolve()
    for root, folders, names in os.walk(folder):
        for path in (Path(root, name) for name in [*folders, *names]):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
                raise UsageError(
                    f"{path} is a link that leads out of the template", details=[f"to {path.readlink()}"], hint=_TRUST
                )


@contextmanager
def reporting(name: str, folder: Path, text: str) -> Iterator[None]:
    """Turn whatever rendering a template's text raises into a UsageError.

    Args:
        name: the template's name.
        folder: the template's folder.
        text: the text's path, or "firmware" in template.yaml.

    Raises:
        UsageError: it can't be rendered.
    """
    try:
        yield
    except (MtoolError, KeyboardInterrupt):
        raise
    except NonTemplatedInputDirException:
        details = ["expected: a folder named {{cookiecutter.folder}}"]
        raise UsageError(f"the template {folder} has no folder to render", details=details) from None
    except jinja2.TemplateNotFound as missing:
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.glob("templates/*/*"))
        what = f"the template {name} lacks {missing.name}, which the board needs"
        raise UsageError(what, details=paths) from None
    except SecurityError as refused:
        raise UsageError(
            f"the template {name} accesses Python's internals", details=[f"{text}: {refused.message}"], hint=_TRUST
        ) from None
    except jinja2.UndefinedError as undefined:
        raise _undefined(undefined, name, text) from None
    except jinja2.TemplateSyntaxError as wrong:
        where = f"{wrong.name or text}:{wrong.lineno}"
        raise UsageError(f"the template {name} can't be rendered", details=[f"{where}: {wrong.message}"]) from None
    except Exception as wrong:  # whatever a template's expressions can raise: division by zero, no memory, wrong types
        raise UsageError(
            f"the template {name} can't be rendered", details=[f"{text}: {type(wrong).__name__}: {wrong}"]
        ) from wrong


def _undefined(undefined: jinja2.UndefinedError, name: str, text: str) -> UsageError:
    """Return the error for an undefined name, in terms for the template's author."""
    message = undefined.message or ""
    match = re.search(r"has no attribute '([^']*)'", message) or re.search(r"'([^']*)' is undefined", message)
    what = f"{match[1]!r} is not defined" if match else message
    details = [f"{text}: {what}"]
    hint = "check its spelling (docs/add-a-template.md lists all names), or add it to the board's entry"
    return UsageError(f"the template {name} needs a value that the board does not have", details=details, hint=hint)
