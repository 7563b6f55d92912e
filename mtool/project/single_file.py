"""A model's C as one source and one header (`--single-file`): one translation unit with static internals.

The runtime's headers are inserted where they were first included. Names that other files use are kept: the entry
points, which the header declares, and what the RPC server's descriptor or a backend's C calls.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Self

from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.compiler.codegen.c_text import Part, parts_of, renamed, words
from mtool.project.levels import APART

# Includes are resolved in the runtime's headers and in the model's alike, line by line.
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)')
_BEGINS, _ENDS = re.compile(r"[ \t]*#[ \t]*if"), re.compile(r"[ \t]*#[ \t]*endif")
_GUARDED = re.compile(r"\s*(?:/\*.*?\*/\s*)*#ifndef (\w+)\n#define \1\b", re.DOTALL)
_C = (".c", ".h")
_OPTIMIZE = '\n#pragma GCC optimize ("'
_PUSH = "\n#pragma GCC push_options"
_POP = "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC pop_options\n#endif\n"
_CLANG = """#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* of the headers that stand in here */
#endif
"""
_SOURCES = ("_weights", *APART, "", "_packed", "_graph")
"""A model's sources: the constants first, so that they need no declarations."""


@frozen
class Runtime:
    """The part of the runtime that is inlined: headers where they are included, and sources, by name.

    Other headers stay includes, as in a project, which has the runtime beside the model.
    """

    headers: Mapping[str, bytes]
    sources: Mapping[str, bytes] = field(default_factory=dict)


def single_file(files: FileTree, models: Sequence[str], name: str, runtime: Runtime) -> FileTree:
    """Return the same C with `<name>.c` and `<name>.h` in place of the models' own sources and headers.

    Args:
        files: the generated files, and those of backends, which are not changed.
        models: the models' names in C; earlier ones define what later ones share with them.
        name: the model's name, or with several models the firmware's.
        runtime: the part of the runtime to inline.
    """
    parsed = {path: parts_of(files, path) for path in files if path in files.outline}
    outside = {path: files[path] for path in files if path not in parsed}
    descriptors = [path for path in parsed if path.endswith("_rpc.c")]
    public = list(dict.fromkeys(path for path in (f"{name}.h", *(f"{model}.h" for model in models)) if path in parsed))
    functions = [
        f"{model}_packed.h"
        for model in models
        if any(part.name == f"{model}_functions" for part in parsed.get(f"{model}_packed.h", ()))
    ]
    private = {path: parsed[path] for path in parsed if path.endswith(".h") and path not in (*public, *functions)}
    sources = {
        model: {path: parsed[path] for end in _SOURCES if (path := f"{model}{end}.c") in parsed}
        for model in dict.fromkeys((name, *models))
    }
    parts = [part for group in (private, *sources.values()) for inside in group.values() for part in inside]
    public_words = words(part for path in descriptors for part in parsed[path])
    public_words |= words(data.decode(errors="replace") for path, data in outside.items() if path.endswith(_C))
    inner = _Inner.of({part.name for inside in private.values() for part in inside} - public_words - {""}, parts)
    headers = {path: data.decode() for path, data in runtime.headers.items()}
    headers |= {path: "\n".join(parsed[path]) for path in (*public, *functions)}
    unit = _Unit({**headers, **{path: inner.text(inside) for path, inside in private.items()}})
    header = "".join(unit.written(path) for path in (public[0], *functions))
    source = "".join(unit.expanded(text.decode()) for text in runtime.sources.values())
    new_names = _new_names(sources, header)
    for model, inside in sources.items():
        for own_parts in inside.values():
            written = unit.expanded(renamed(inner.text(own_parts), new_names[model]))
            written = f"\n{written}".replace(_OPTIMIZE, f"{_PUSH}{_OPTIMIZE}").removeprefix("\n")
            source += f"{written}{_POP * (_OPTIMIZE in written)}\n"
    maps = "".join(f"{part}\n" for model in models for part in parsed[f"{model}.c"] if part.kind == "map")
    far = "".join(dict.fromkeys(f"{part}\n" for part in parts if part.kind == "far"))
    text = f'{parsed[public[0]][0]}\n{maps}{far}{_CLANG}#include "{name}.h"\n\n{source}'
    texts = {f"{name}.h": header, f"{name}.c": text}
    for path in descriptors:
        used = words(parsed[path])
        declarations = {
            inside: _text(part for part in private[inside] if part.kind != "declaration" or part.name in used)
            for inside in private
        }
        alone = _Unit(declarations, dict.fromkeys((*public, *functions), f'#include "{name}.h"\n'))
        texts[path] = f"{parsed[path][0]}\n{alone.expanded(_text(parsed[path]))}"
    return FileTree({**outside, **{path: _spaced(text).encode() for path, text in texts.items()}})


@frozen
class _Inner:
    """The internals of the source: the definitions that become static, by name, and those that are never called."""

    definitions: Mapping[str, Part]
    unused: frozenset[str]

    @classmethod
    def of(cls, names: Collection[str], parts: Sequence[Part]) -> Self:
        """Return the internals of a source; a function whose declaration allows it to be unused stays."""
        definitions = {
            part.name: part for part in parts if part.name in names and part.kind in ("function", "object", "table")
        }
        uses = [(part.name, words([part])) for part in parts if part.kind != "table"]
        unused = set[str]()
        for name, part in definitions.items():
            is_called = any(name in inside and of not in {name, *unused} for of, inside in uses)
            if part.kind == "function" and not is_called and not part.startswith("MT_ALONE "):
                unused.add(name)
        return cls(definitions, frozenset(unused))

    def text(self, parts: Iterable[Part]) -> str:
        """Return parts of the source as text.

        Objects are defined before they are used, so that their declarations go; functions keep theirs.
        """
        result = []
        for part in parts:
            definition = self.definitions.get(part.name)
            if definition is None:
                result.append(part)
            elif part.name not in self.unused and (part.kind != "declaration" or definition.kind == "function"):
                result.append(part.static)
        return _text(result)


def _text(parts: Iterable[Part]) -> str:
    """Return parts as text without a banner, a guard, C++ linkage, and what belongs at the source's beginning."""
    left_out = ("banner", "map", "guard", "far")
    return "\n".join("" if part.kind == "linkage" else part for part in parts if part.kind not in left_out)


def _new_names(sources: Mapping[str, Mapping[str, Sequence[Part]]], header: str) -> dict[str, dict[str, str]]:
    """Return new names for the statics of each model whose names another one uses too.

    The new names occur in none of the texts, nor in the header that all of them include: `kws_run` is the entry
    point's, and a static `run` becomes `kws_run_`.
    """
    parts = {model: [part for inside in files.values() for part in inside] for model, files in sources.items()}
    statics = {model: {part.name for part in group if part.is_static} for model, group in parts.items()}
    counts = Counter(name for names in statics.values() for name in names)
    used = words(part for group in parts.values() for part in group if part.kind != "table") | words([header])
    result: dict[str, dict[str, str]] = {model: {} for model in sources}
    for model, names in statics.items():
        for name in names:
            if counts[name] > 1:
                free = f"{model}_{name}"
                while free in used:
                    free += "_"
                result[model][name] = free
    return result


class _Unit:
    """Texts whose includes are replaced by the included text, each only once."""

    def __init__(self, texts: Mapping[str, str], instead: Mapping[str, str] | None = None) -> None:
        self.texts, self.instead = texts, instead or {}
        self.seen: set[str] = set()

    def written(self, path: str) -> str:
        """Return a header with its includes expanded; empty if it has been included."""
        if path in self.seen:
            return ""
        self.seen.add(path)
        return self.expanded(self.texts[path])

    def expanded(self, text: str) -> str:
        """Return a text with its includes expanded."""
        lines, depth = [], -1 if _GUARDED.match(text) else 0
        for line in text.splitlines(keepends=True):
            include = _INCLUDE.match(line)
            if include is None:
                depth += bool(_BEGINS.match(line)) - bool(_ENDS.match(line))
                lines.append(line)
            else:
                lines.append(self._included(line, include[1], include[2], is_conditional=depth > 0))
        return "".join(lines)

    def _included(self, line: str, quoted: str | None, system: str | None, *, is_conditional: bool) -> str:
        line = self.instead.get(quoted or "", line)
        key = line if quoted in self.instead else quoted or str(system)
        if key in self.seen:
            return ""
        if not is_conditional:
            self.seen.add(key)
        if quoted in self.texts and quoted is not None:
            return f"/* {quoted} */\n{self.expanded(self.texts[quoted])}\n"
        return line


def _spaced(text: str) -> str:
    """Return a text with at most one empty line in a row."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip("\n") + "\n"
