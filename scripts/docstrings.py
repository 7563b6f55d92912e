"""Docstrings and signatures as Markdown, for the pages that are written from the code."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

_ARRAY_LIKE = re.compile(r"Union\[_Buffer, .*?complex \| bytes \| str\]\]")  # as NumPy writes it out
_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):$")
_ITEM = re.compile(r"^(\*{0,2}[A-Za-z_][\w.]*(?:, [A-Za-z_]\w*)*): (.*)$")


def markdown(of: object) -> list[str]:
    """Return a docstring's lines as Markdown: its sections' entries are items of a list."""
    lines: list[str] = []
    section = False
    items = False
    for line in escaped(inspect.getdoc(of) or "").splitlines():
        if _SECTION.match(line):
            lines += [line, ""] if line != "Args:" else []
            section, items = True, False
            continue
        section = section and (not line or line.startswith(" "))
        entry = _ITEM.match(line[4:] if section else line)
        begins = items or not lines or not lines[-1]
        if entry is not None and (not line.startswith("     ") if section else entry[1].islower() and begins):
            if not items and lines and lines[-1]:
                lines.append("")
            lines.append(f"- {_names(entry[1])}: {entry[2]}")
            items = True
        elif items and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            items = False
            lines.append(line.strip() if section else line)
    return lines


def _names(text: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in text.split(","))


def signature(name: str, of: Callable[..., Any] | type) -> list[str]:
    """Return the lines of a definition: `def` or `class`, with its parameters, their types and defaults."""
    own = inspect.signature(of)
    parameters = [one for one in own.parameters.values() if one.name != "self"]
    texts: list[str] = []
    for before, one in zip([None, *parameters], parameters, strict=False):
        if one.kind is one.KEYWORD_ONLY and (before is None or before.kind is not one.KEYWORD_ONLY):
            texts.append("*")
        texts.append(_parameter(one))
    returns = own.return_annotation
    tail = "" if isinstance(of, type) or returns is own.empty else f" -> {annotation(returns)}"
    head = "class" if isinstance(of, type) else "def"
    line = f"{head} {name}({', '.join(texts)}){tail}: ..."
    if len(line) <= 100:
        return [line]
    return [f"{head} {name}(", *(f"    {text}," for text in texts), f"){tail}: ..."]


def _parameter(one: inspect.Parameter) -> str:
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    text = star + one.name if one.annotation is one.empty else f"{star}{one.name}: {annotation(one.annotation)}"
    if one.default is one.empty:
        return text
    value = f"{type(one.default).__name__}()" if is_dataclass(one.default) else repr(one.default).replace("'", '"')
    return f"{text} = {'...' if '<' in value or 'Path' in value else value}"


def annotation(of: Any) -> str:
    """Return a type as it is written in the code, without modules."""
    text = of if isinstance(of, str) else inspect.formatannotation(of)
    text = re.sub(r"Annotated\[(\w[\w.]*(?:\[[^\]]*\])?), .*?\]", r"\1", text)
    text = re.sub(r"\bOptional\[(\w+)\]", r"\1 | None", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text).replace('"', "").replace("'", '"')
    return _ARRAY_LIKE.sub("ArrayLike", text).replace("ndarray[tuple[Any, ...], dtype[Any]]", "Array")


def escaped(text: str) -> str:
    """Return text in which Markdown finds no tags: `<model>` outside of code."""
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "\\<") for index, part in enumerate(parts))


def paragraphs(of: object) -> Iterator[str]:
    """Return the paragraphs of a docstring, each as one line."""
    for text in escaped(inspect.getdoc(of) or "").split("\n\n"):
        yield " ".join(text.split())
