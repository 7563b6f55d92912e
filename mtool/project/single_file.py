"""A model's C as one source and one header (`--single-file`): one translation unit, whose inner parts are static.

The headers of the runtime stand where they were included first. What other files name stays as it is: the entry points,
which the header declares, and what the descriptor for the RPC server, or a backend's C, calls.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from mtool.base.filetree import FileTree
from mtool.base.option_values import Level
from mtool.compiler.codegen import c_text

# What of generated C is inside of one source: it becomes static, and what nobody calls then is left out.


_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\w+|[.>]\s*\w+', re.DOTALL)
_STATIC = re.compile(r"^static [^;={(\n]*?\b(\w+)(?= ?[(\[;=])|^\} (\w+);$", re.MULTILINE)
_ATTRIBUTE = r"__attribute__\(\(\w+\(\d+\)\)\) "
# A declaration at the beginning of a line, as codegen writes it; a structure's name alone is none.
_DECLARED = re.compile(
    rf"^(?:/\*(?:(?!\*/).)*\*/\n)?(?:extern )?(?!struct \w+;)(?P<type>(?:{_ATTRIBUTE})?[A-Za-z_][\w ]*?[ *]+)"
    r"(?P<name>\w+)(?P<rest>\([^;{}]*?\)|(?:\[\w*\])*);\n",
    re.MULTILINE | re.DOTALL,
)
# The beginning of a definition: of a function the whole head, of anything else up to its name.
_DEFINED = re.compile(
    rf"^(?!static |extern |typedef |return |else |struct \w+ \{{)(?P<head>(?:{_ATTRIBUTE})?[A-Za-z_][\w ]*?[ *]+)"
    r"(?P<name>\w+)(?P<rest>\([^;{}]*?\)\n(?=\{)|(?=\[| = ))",
    re.MULTILINE,
)


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return {*_WORD.findall(text)}


def declared(text: str) -> set[str]:
    """Return the names that a header of the model declares."""
    return {found["name"] for found in _DECLARED.finditer(text)}


def only_named(text: str, named: Collection[str]) -> str:
    """Return a header's text without the declarations of what is not `named`."""
    return _DECLARED.sub(lambda found: found[0] if found["name"] in named else "", text)


def made_static(text: str, private: Collection[str]) -> str:
    """Return a source whose definitions of `private` names are static.

    Objects are defined before they are used, so that their declarations go; functions keep theirs. A function that is
    not called any more is left out.
    """
    defined = {found["name"]: bool(found["rest"]) for found in _DEFINED.finditer(text) if found["name"] in private}

    def declaration(found: re.Match[str]) -> str:
        if not defined.get(found["name"], True):
            return ""
        if found["name"] not in defined:
            return found[0]
        start = found.start("type") - found.start()
        return f"{found[0][:start]}static {_shifted(found[0][start:])}"

    def definition(found: re.Match[str]) -> str:
        return f"static {_shifted(found[0])}" if found["name"] in defined else found[0]

    text = _DEFINED.sub(definition, _DECLARED.sub(declaration, text))
    for name in [name for name, is_function in defined.items() if is_function]:
        text = _without_unused(text, name)
    return text


def _shifted(head: str) -> str:
    """Return a head of several lines, all but the first as far on as `static` makes it."""
    return head.replace("\n ", "\n" + " " * len(" static "))


def _without_unused(text: str, name: str) -> str:
    """Return a source without a static function that nothing calls, unless its declaration allows that."""
    uses = [*re.finditer(rf"\b{name}\b", text)]
    lines = [text[text.rfind("\n", 0, use.start()) + 1 : use.start()] for use in uses]
    if any(not line.startswith("static ") or "MT_ALONE" in line for line in lines):
        return text
    prototype = rf"(?:/\*(?:(?!\*/).)*\*/\n)?^static [\w *]+\b{name}\([^;{{}}]*?\);\n"
    function = rf"(?:/\*(?:(?!\*/).)*\*/\n)?^static [\w *]+\b{name}\([^;{{}}]*?\)\n\{{\n.*?^\}}\n"
    return re.sub(f"{function}|{prototype}", "", text, flags=re.MULTILINE | re.DOTALL)


def apart(parts: Sequence[tuple[str, str]], header: str) -> Iterator[str]:
    """Yield texts of several models, of which each is (model, text), so that no two have a static of one name.

    The names that they get are in none of the texts, nor in the header that all of them include.
    """
    statics = [{found[1] or found[2] for found in _STATIC.finditer(text)} for _, text in parts]
    owners: dict[str, set[str]] = {}
    for (model, _), names in zip(parts, statics, strict=True):
        for name in names:
            owners.setdefault(name, set()).add(model)
    taken = {name for name, models in owners.items() if len(models) > 1}
    known = words(header).union(*(words(text) for _, text in parts)) if taken else set()
    for (model, text), names in zip(parts, statics, strict=True):
        mine = {name: _free(f"{model}_{name}", known) for name in names & taken}
        yield _TOKEN.sub(lambda token, own=mine: own.get(token[0], token[0]), text) if mine else text  # type: ignore[misc]


def _free(name: str, known: Collection[str]) -> str:
    """Return a name that is not known yet: `kws_run` is the entry point's, and a static `run` gets `kws_run_`."""
    while name in known:
        name += "_"
    return name


_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)')
_BEGINS, _ENDS = re.compile(r"[ \t]*#[ \t]*if"), re.compile(r"[ \t]*#[ \t]*endif")
_BANNER = re.compile(r"\A/\* Generated by mtool [^\n]*\*/\n")
_MAP = re.compile(r"(?:(?<=\*/\n)|\A)/\* Arena, .*?\*/\n", re.DOTALL)
_GUARD = re.compile(r"\A#ifndef (?P<guard>\w+)\n#define (?P=guard)\n(?P<body>.*)#endif\n*\Z", re.DOTALL)
_FAR = re.compile(r"^#define MT_FLASH_FAR\b.*\n", re.MULTILINE)
_OPTIMIZE = re.compile(r"^#pragma GCC optimize.*\n", re.MULTILINE)
_GUARDED = re.compile(r"\s*(?:/\*.*?\*/\s*)*#ifndef (\w+)\n#define \1\b", re.DOTALL)
_C = (".c", ".h")
_POP = "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC pop_options\n#endif\n"
_CLANG = """#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* of the headers that stand in here */
#endif
"""
_LINKAGE = tuple("\n".join(lines) for lines in (c_text.BEGIN, c_text.END))


@dataclass(frozen=True, slots=True)
class Runtime:
    """What of the runtime is written out: headers where they are included, and sources, by their names.

    Headers that are none of these stay includes, as in a project, which has the runtime beside the model.
    """

    headers: Mapping[str, bytes]
    sources: Mapping[str, bytes] = field(default_factory=dict)


def single_file(files: FileTree, models: Sequence[str], name: str, runtime: Runtime) -> FileTree:
    """Return the same C with `<name>.c` and `<name>.h` in place of the models' own sources and headers.

    Args:
        files: what codegen made, and what backends added, which stays as it is.
        models: the models' names in C; those before another define what it has in common with them.
        name: the model's, or of several the firmware's.
        runtime: what is written out of it.
    """
    own = {path: files[path].decode() for path in files if _is_own(path, (*models, name))}
    outside = {path: files[path] for path in files if path not in own}
    descriptors = [path for path in own if path.endswith("_rpc.c")]
    public = list(dict.fromkeys(path for path in (f"{name}.h", *(f"{model}.h" for model in models)) if path in own))
    functions = [f"{model}_packed.h" for model in models if f"{model}_functions[" in own.get(f"{model}_packed.h", "")]
    private = {path: _bare(own[path]) for path in own if path.endswith(".h") and path not in (*public, *functions)}
    headers = {path: data.decode() for path, data in runtime.headers.items()} | {path: own[path] for path in functions}
    unit = _Unit({**headers, **own, **private})
    header = "".join(unit.written(path) for path in (public[0], *functions))
    elsewhere = [data.decode(errors="replace") for path, data in outside.items() if path.endswith(_C)]
    named = {word for text in (*elsewhere, *(own[path] for path in descriptors)) for word in words(text)}
    source = "".join(unit.source(text.decode()) for text in runtime.sources.values())
    parts = [(model, _model(unit, own, model)) for model in dict.fromkeys((name, *models))]
    source += "".join(apart(parts, header))
    inner = {one for text in private.values() for one in declared(text)} - named
    far = "".join(dict.fromkeys(_FAR.findall(source)))
    maps = "".join(found[0] for model in models if (found := _MAP.match(_BANNER.sub("", own[f"{model}.c"]))))
    text = (
        f'{_banner(own[public[0]])}{maps}{far}{_CLANG}#include "{name}.h"\n\n{made_static(_FAR.sub("", source), inner)}'
    )
    made = {f"{name}.h": header, f"{name}.c": text}
    for path in descriptors:
        kept = {inside: only_named(text, words(own[path])) for inside, text in private.items()}
        alone = _Unit(kept, dict.fromkeys((*public, *functions), f'#include "{name}.h"\n'))
        made[path] = _banner(own[path]) + alone.source(own[path])
    return FileTree({**outside, **{path: _spaced(text).encode() for path, text in made.items()}})


class _Unit:
    """Texts in which includes are replaced by what they include, where that is not there already."""

    def __init__(self, texts: Mapping[str, str], instead: Mapping[str, str] | None = None) -> None:
        self.texts, self.instead = texts, instead or {}
        self.seen: set[str] = set()

    def written(self, path: str) -> str:
        """Return a header with what it includes; nothing if it has been included."""
        if path in self.seen:
            return ""
        self.seen.add(path)
        return self._expanded(self.texts[path])

    def source(self, text: str) -> str:
        """Return a source with what it includes."""
        return self._expanded(_BANNER.sub("", text))

    def _expanded(self, text: str) -> str:
        lines, depth = [], -1 if _GUARDED.match(text) else 0
        for line in text.splitlines(keepends=True):
            include = _INCLUDE.match(line)
            if include is None:
                depth += bool(_BEGINS.match(line)) - bool(_ENDS.match(line))
                lines.append(line)
            else:
                lines.append(self._included(line, include[1], include[2], is_conditional=depth > 0))
        return "".join(lines)

    def _included(self, line: str, own: str | None, library: str | None, *, is_conditional: bool) -> str:
        line = self.instead.get(own or "", line)
        key = line if own in self.instead else own or str(library)
        if key in self.seen:
            return ""
        if not is_conditional:
            self.seen.add(key)
        if own in self.texts and own is not None:
            return f"/* {own} */\n{self._expanded(self.texts[own])}\n"
        return line


def _is_own(path: str, names: Sequence[str]) -> bool:
    """Whether a file is C that codegen wrote for a model."""
    return path.endswith(_C) and path.startswith(tuple(f"{name}{mark}" for name in names for mark in "._"))


def _model(unit: _Unit, own: Mapping[str, str], model: str) -> str:
    """Return a model's sources, one behind the other: the constants first, as they have no declarations then."""
    levels = [f"_{level}" for level in get_args(Level)]
    parts = []
    for end in ("_weights", *levels, "", "_packed", "_graph"):
        text = own.get(f"{model}{end}.c")
        if text is not None:
            written = unit.source(_MAP.sub("", text, 1))
            written = _OPTIMIZE.sub(lambda found: f"#pragma GCC push_options\n{found[0]}", written)
            parts.append(f"{written}{_POP * (end in levels)}\n")
    return "".join(parts)


def _bare(text: str) -> str:
    """Return a header of the model's own as a part of a source: without its banner, its guard and C++."""
    text = _BANNER.sub("", text)
    guarded = _GUARD.match(text)
    text = guarded["body"] if guarded else text
    for lines in _LINKAGE:
        text = text.replace(lines, "")
    return text


def _banner(text: str) -> str:
    found = _BANNER.match(text)
    return found[0] if found else ""


def _spaced(text: str) -> str:
    """Return a text without more than one empty line in a row."""
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"
