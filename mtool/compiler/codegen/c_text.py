"""C files as lists of parts (declarations, definitions, plain lines), and the layout of their text."""

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, Self

from mtool.base.filetree import FileTree
from mtool.compiler.kernels.target import Target

Kind = Literal[
    "text", "banner", "map", "include", "guard", "linkage", "far", "declaration", "function", "object", "table"
]


class Part(str):
    """Lines of a C file with a meaning for a later stage, for instance a function's definition.

    Attributes:
        kind: "table": an object whose rows have their layout already; "linkage": C linkage in C++; "far": the
            definition of MT_FLASH_FAR.
        name: the declared or defined name.
        note: the characters of the comment above it.
    """

    kind: Kind
    name: str
    note: int

    def __new__(cls, text: str, kind: Kind, name: str = "", note: int = 0) -> Self:
        """Create a part from its text."""
        part = super().__new__(cls, text)
        part.kind, part.name, part.note = kind, name, note
        return part

    @property
    def is_static(self) -> bool:
        """Whether the declaration or definition is static."""
        return self.startswith("static ", self.note)

    @property
    def static(self) -> "Part":
        """Return the same part as static."""
        head, brace, rest = self[self.note :].removeprefix("extern ").partition("\n{\n")
        if self.kind in ("declaration", "function"):
            head = head.replace("\n ", "\n" + " " * len(" static "))
        return Part(f"{self[: self.note]}static {head}{brace}{rest}", self.kind, self.name, self.note)


def declaration(head: str, note: str = "") -> Part:
    """Return the declaration of a function or an object, with a comment above it."""
    above = f"{note}\n" if note else ""
    return Part(f"{above}{head};", "declaration", _name(head), len(above))


def function(prototype: str, *body: str) -> Part:
    """Return a function's definition, with an empty line after it."""
    return Part("\n".join([prototype, "{", *body, "}", ""]), "function", _name(prototype))


def variable(head: str, rest: str = "") -> Part:
    """Return an object's definition; `rest` follows its name and size."""
    return Part(f"{head}{rest};", "object", _name(head))


def structure(name: str, members: Sequence[str]) -> Part:
    """Return the definition of a static structure with an anonymous type."""
    return Part("\n".join(["static struct {", *(f"    {line}" for line in members), f"}} {name};"]), "object", name)


def _name(head: str) -> str:
    return head.partition("(")[0].partition("[")[0].split()[-1].lstrip("*")


def listed(head: str, rows: Iterable[str]) -> Part:
    """Return an object's definition, with a line for each of its elements."""
    return variable(head, "".join([" = {", *(f"\n    {row}" for row in rows), "\n}"]))


def members(head: str, values: Mapping[str, object]) -> Part:
    """Return a structure's definition, with a line for each member that is not zero."""
    return listed(head, (f".{name} = {value}," for name, value in values.items()))


def include(*names: str) -> list[Part]:
    """Return the lines that include headers of the runtime and of models."""
    return [Part(f'#include "{name}"', "include", name) for name in names]


def header(banner: str, name: str, before: Sequence[str], body: Sequence[str]) -> list[str]:
    """Return a header's parts; what `body` declares has C linkage in C++."""
    guard = f"{name.upper()}_H"
    begin, end = (Part(f"#ifdef __cplusplus\n{bracket}\n#endif\n", "linkage") for bracket in ('extern "C" {', "}"))
    return [
        Part(banner, "banner"),
        Part(f"#ifndef {guard}\n#define {guard}", "guard"),
        "",
        *before,
        *([begin, *body, end] if body else []),
        Part("#endif", "guard"),
        "",
    ]


def columns(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Return the lines of a table in a comment; the columns with these numbers are aligned to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        (
            "  "
            + "  ".join(
                cell.rjust(width) if number in right else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in rows
    ]


def written(files: Mapping[str, Sequence[str]], target: Target) -> FileTree:
    """Return the files of these parts for a target; the tree's outline lists the parts."""
    contents, outline = {}, {}
    for path, lines in files.items():
        parts: list[Part] = []
        for is_text, group in itertools.groupby(lines, lambda line: not isinstance(line, Part)):
            pieces = [*group]
            parts += [_laid_out(part, target) for part in (["\n".join(pieces)] if is_text else pieces)]
        contents[path] = "\n".join(parts).encode()
        outline[path] = [(part.kind, part.name, part.note, len(part)) for part in parts]
    return FileTree(contents, outline)


def parts_of(files: FileTree, path: str) -> list[Part]:
    """Return the parts of a file."""
    text, parts, first = files.text(path), [], 0
    for kind, name, note, length in files.outline[path]:
        parts.append(Part(text[first : first + length], kind, name, note))
        first += length + 1
    return parts


_TOKEN = re.compile(r'/\*.*?\*[/]|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\w+|[.>]\s*\w+', re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*[/]", re.DOTALL)
_ANY = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[^\s\w]")
_APART = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}


def words(texts: Iterable[str]) -> set[str]:
    """Return the identifiers, keywords and numbers in C."""
    return {word for text in texts for word in text.translate(_APART).split()}


def without_comments(text: str) -> str:
    """Return C without its comments."""
    return _COMMENT.sub(" ", text)


def tokens(text: str) -> list[str]:
    """Return the tokens of C without comments; the words in a string are tokens too."""
    return _ANY.findall(text)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Rename variables and functions in C; members of structures keep their names."""
    return _TOKEN.sub(lambda token: names.get(token[0], token[0]), text) if names else text


def _laid_out(lines: str, target: Target) -> Part:
    part = lines if isinstance(lines, Part) else Part(lines, "text")
    note, text = (qualified(text, target) for text in (part[: part.note], part[part.note :]))
    return Part(note + (text if part.kind == "table" else wrapped(text)), part.kind, part.name, len(note))


# Qualifiers of constants: an AVR has them in a separate memory, elsewhere they have no effect.


def qualified(code: str, target: Target) -> str:
    """Return code for a target: without the flash qualifiers if flash is read like RAM (crt/include/mt_flash.h)."""
    if target.flash_is_apart:
        return code
    return code.replace("MT_FLASH ", "").replace("MT_FLASH_COPY(", "memcpy(")


# Wrap long lines of generated C at commas and operators, the outermost first.


WIDTH = 118
_BREAKS = {", ": 0, " || ": 1, " && ": 1, " + ": 1, " - ": 1, " ? ": 1, " : ": 1, " = ": 1, " * ": 2, " / ": 2}
_MARK = re.compile("|".join(map(re.escape, _BREAKS)))
_LEAST = WIDTH // 2  # columns of a line that is broken, where one can be that long


def wrapped(code: str) -> str:
    """Break lines of code that are longer than `WIDTH` columns, where possible; comments stay as they are."""
    return "\n".join(_wrapped_line(line) for line in code.split("\n"))


def _wrapped_line(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    margin = " " * (indent + 8)
    if len(line) <= WIDTH or line.lstrip().startswith(("/*", "*", "#")) or '"' in line:
        return line
    pieces, rest, depth = [], line, 0
    while len(rest) > WIDTH:
        cut, depth = _break(rest, indent + 12, depth)
        if not cut:
            break
        pieces.append(rest[:cut].rstrip())
        rest = margin + rest[cut:]
    return "\n".join([*pieces, rest])


def _break(line: str, first: int, depth: int) -> tuple[int, int]:
    """Return the column at which to break a line that begins within `depth` brackets, and how many are open there.

    It is the last one within the fewest brackets: preferably at a comma, then at an operator, a product last; else
    after the last bracket of a call. 0: there is none.
    """
    best, position = (True, 0, 0, 0), (0, depth)
    call = position  # after the last bracket of a call, if there is nothing else
    for column, character in enumerate(line[: WIDTH - 1]):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if column <= first:
            continue
        if character == "(" and (line[column - 1].isalnum() or line[column - 1] == "_"):
            call = (column + 1, depth)
        mark = _MARK.match(line, column) if character in ", " else None
        if mark is not None and mark.end() <= WIDTH:
            rank = (mark.end() < _LEAST, depth, _BREAKS[mark[0]], -column)
            if not position[0] or rank < best:
                best, position = rank, (mark.end(), depth)
    return position if position[0] else call


# Remove what templates leave in a function's C for sizes of one: `* 1`, `+ 0`, loops with one round, bare blocks.
#
# Templates are for any sizes; this simplifies their text for the sizes at hand, as a person would write it. It works
# line by line on the templates' layout: a loop's head is a line, what is in it is indented by four more.


_LOOP = re.compile(
    r"( *)for \(int32_t (\w+) = (\d+); \2 < (\d+); (?:\+\+\2|\2 \+= (\d+))((?:, (?:\+\+\w+|\w+ \+= \w+))*)\)( \{)?"
)
_MOVED = re.compile(r", ((?:\+\+)?(\w+)[^,]*)")
_NUMBERS = re.compile(r" *const int32_t (\w+ = \d+(?:, \w+ = \d+)*);")
_NUMBER = re.compile(r"(\w+) = (\d+)")
_DECLARED = re.compile(r"(?:const )?(?:struct )?\w+ \*?(?:const )?(\w+)(?: =|;|\[|, )")
# In this order, until none applies. Numbers are integers: floats have a point, or letters after them.
_END = r"(?![\w.])"
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"(?: \*| /) 1{_END}", ""),
        (r"(?<=[(\[])1 \* (?!\d)|(?<=[,=] )1 \* (?!\d)", ""),
        (rf"(?<=[+-] )1 \* (?=\w+{_END})", ""),
        (rf"(?<![*%/] )\b\w+ % 1{_END}", "0"),
        (r"(?<=[=+?:-] )\((?!\w+_t\)|float\)|double\))(\w+)\)(?= [%*+/:;-]|[,;)])", r"\1"),
        (r"(?<=[=/+*-] )\((\w+\([^()]*\))\)(?!\w)", r"\1"),
        (r"(?<!__)\(\(([^(),=]*)\)\)(?!\w)", r"(\1)"),
        (rf"(?<![*%/] )\b0 \* \w+{_END}(?!\(|\[|->)", "0"),
        (r"(?<![\w)\]])(?<!if )(?<!while )(?<!switch )\((\d+)\)", r"\1"),
        (rf" [+-] 0{_END}(?! [*%/])", ""),
        (r"(?<=[(\[])0 \+ |(?<=[,=+] )0 \+ ", ""),
        (r", \w+ \+= 0(?=[,)])", ""),
        (r"(; .*), (\w+) \+= 1(?=[,)])", r"\1, ++\2"),
        (r"(?<=[(\[])1 \* (?=\d+(?: \+|\]))", ""),
    )
]


def tidied(body: str) -> str:
    """Return a simpler function body that computes the same."""
    lines = body.split("\n")
    number = 0
    while number < len(lines):
        changed = _without_loop(lines, number) or _without_block(lines, number)
        if changed is None:
            number += 1
        else:
            lines = changed
    return "\n".join(_without_numbers([_simplified(line) for line in lines]))


def _without_numbers(lines: Sequence[str]) -> list[str]:
    """Return the lines with constants replaced by the numbers that they stand for."""
    result = list(lines)
    for line in lines:
        match = _NUMBERS.fullmatch(line)
        if match is None:
            continue
        names: dict[str, str] = dict(_NUMBER.findall(match[1]))
        text = "\n".join(other for other in result if other != line)
        if any(re.search(rf"\w \*?{name}\b|, {name} =", text) or not _is_summand(name, text) for name in names):
            continue
        result.remove(line)
        for name, number in names.items():
            result = [_with(name, number, other) for other in result]
        result = [_simplified(other) for other in result]
    return result


def _is_summand(name: str, text: str) -> bool:
    """Whether a variable is only added, multiplied, passed, or used as an index, so that a number reads as well."""
    return not re.search(rf"\b{name}\b(?! [*+]|\)|\]|,|;)|(?:[<>!=]=|[<>?&]) {name}\b|(?:\+\+|&){name}\b", text)


def _with(name: str, number: str, line: str) -> str:
    return re.sub(rf"(?<![\w.>]){name}\b", number, line)


def _leaves(inside: Sequence[str]) -> bool:
    """Whether a loop's body has a `break` or `continue` outside inner loops."""
    heads: list[str] = []
    for line in inside:
        while heads and line.strip() and _indent(heads[-1]) >= _indent(line):
            heads.pop()
        if line.lstrip().startswith(("for (", "while (", "do ", "switch (")):
            heads.append(line)
        if re.search(r"\b(continue|break)\b", line) and not heads:
            return True
    return False


def _goes_on_alike(inside: Sequence[str], lines: Sequence[str], head: int, end: int) -> bool:
    """Whether a loop has no `break` and ends another loop, so that `continue` means the same there."""
    around = next((line for line in reversed(lines[:head]) if _indent(line) < _indent(lines[head])), "")
    is_last = end < len(lines) and lines[end] == " " * _indent(around) + "}" and around.lstrip().startswith("for (")
    return is_last and not re.search(r"\bbreak\b", "\n".join(inside))


def _is_last_use(lines: Sequence[str], head: int, end: int, name: str) -> bool:
    """Whether a variable of the block around the loop from `head` to `end` is not read after it."""
    indent = _indent(lines[head])
    if head and _is_bare_head(lines[head - 1], indent):
        return False
    for line in reversed(lines[:head]):
        if _indent(line) < indent:
            break
        if _indent(line) == indent and (match := _DECLARED.match(line.lstrip())) and match[1] == name:
            return not _is_named(name, _block(lines[end:], indent))
    return indent == 4 and not _is_named(name, lines[end:])


def _block(lines: Sequence[str], indent: int) -> Sequence[str]:
    """Return the lines before the first one with a smaller indentation."""
    ends = (number for number, line in enumerate(lines) if line.strip() and _indent(line) < indent)
    return lines[: next(ends, len(lines))]


def _is_named(name: str, lines: Sequence[str]) -> bool:
    return any(re.search(rf"\b{name}\b", line) for line in lines)


@functools.lru_cache(maxsize=1 << 14)  # kernels of one template have most lines in common
def _simplified(line: str) -> str:
    """Return a line without additions of zero and multiplications by one."""
    if '"' in line or line.lstrip().startswith(("#", "/*", "*")):
        return line
    before = ""
    while line != before:
        before = line
        for pattern, replacement in _RULES:
            line = pattern.sub(replacement, line)
    return line


def _without_loop(lines: Sequence[str], head: int) -> list[str] | None:
    """Return the lines without the loop at `head`, which runs once; None: no such loop, or it must stay one."""
    match = _LOOP.fullmatch(lines[head])
    if match is None or not 0 < int(match[4]) - int(match[3]) <= int(match[5] or 1):
        return None
    indent, variable, first, braced = len(match[1]), match[2], match[3], bool(match[7])
    end = head + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    inside = list(lines[head + 1 : end])
    text = "\n".join(inside)
    moved = _MOVED.findall(match[6])
    steps = [f"{step};" for step, name in moved if not _is_last_use(lines, head, end + braced, name)]
    if _leaves(inside) and (steps or not _goes_on_alike(inside, lines, head, end + braced)):
        inside = _with_else(inside, indent + 4)
        if _leaves(inside):
            return None
        text = "\n".join(inside)
    inside += [" " * (indent + 4) + step for step in steps]
    if re.search(rf"\bint32_t {variable}\b", text):
        return None
    if braced and lines[end : end + 1] != [" " * indent + "}"]:
        return None
    before, after = list(lines[:head]), list(lines[end + braced :])
    if before and before[-1].lstrip().startswith(("MT_UNROLL(", "MT_SIMD_LOOP")):
        before.pop()
    declared = _declarations(inside, indent)
    if not _is_summand(variable, text):
        inside.insert(0, f"{' ' * (indent + 4)}const int32_t {variable} = {first};")
        declared.append(variable)
    else:
        inside = [_with(variable, first, line) for line in inside]
    if before and _is_bare_head(before[-1], indent):
        return _with_braces(before, inside, indent, after)
    if any(_is_named(name, [*before, *after]) for name in declared):
        return [*before, " " * indent + "{", *inside, " " * indent + "}", *after]
    return [*before, *(line[4:] for line in inside), *after]


def _declarations(inside: Sequence[str], indent: int) -> list[str]:
    """Return the variables that a block declares."""
    matches = (_DECLARED.match(line.lstrip()) for line in inside if _indent(line) == indent + 4)
    return [match[1] for match in matches if match]


def _with_braces(before: Sequence[str], inside: Sequence[str], indent: int, after: Sequence[str]) -> list[str]:
    """Return lines with braces around the body of the statement whose head ends `before`."""
    outer = _indent(before[-1])
    return [*before[:-1], f"{before[-1]} {{", *(line[indent - outer :] for line in inside), " " * outer + "}", *after]


def _with_else(inside: Sequence[str], indent: int) -> list[str]:
    """Return a loop's body with the statements after `if (…) { … continue; }` moved into its `else`."""
    lines = list(inside)
    for number, line in enumerate(lines):
        if line != " " * (indent + 4) + "continue;" or lines[number + 1 : number + 2] != [" " * indent + "}"]:
            continue
        behind = _with_else(lines[number + 2 :], indent)
        heads = [other for other in lines[:number] if _indent(other) == indent]
        if heads and heads[-1].lstrip().startswith("if (") and behind:
            moved = [" " * 4 + other if other.strip() else other for other in behind]
            return [*lines[:number], " " * indent + "} else {", *moved, " " * indent + "}"]
    return lines


def _without_block(lines: Sequence[str], head: int) -> list[str] | None:
    """Return the lines without the braces of a bare block at `head`; None: there is no such block.

    Those of a statement's body stand on the line of its head.
    """
    indent = _indent(lines[head])
    if lines[head] != " " * indent + "{":
        return None
    end = lines.index(" " * indent + "}", head)
    before, inside, after = list(lines[:head]), lines[head + 1 : end], list(lines[end + 1 :])
    if before and _is_bare_head(before[-1], indent):
        return _with_braces(before, inside, indent, after)
    declared = _declarations(inside, indent)
    is_whole_body = bool(before) and before[-1].endswith(") {") and after[:1] == [" " * (indent - 4) + "}"]
    if is_whole_body and not any(_is_named(name, before[-1:]) for name in declared):
        return [*before, *(line[4:] for line in inside), *after]
    if any(_is_named(name, after) or not _is_of_loops(name, before, indent) for name in declared):
        return None
    return [*before, *(line[4:] for line in inside), *after]


def _is_of_loops(name: str, lines: Sequence[str], indent: int) -> bool:
    """Whether a variable was only declared in blocks that have ended: indented more deeply, or in a loop's head."""
    named = (line for line in lines if _indent(line) <= indent and _is_named(name, [line]))
    return all(line.startswith(f"{' ' * indent}for (int32_t {name} =") for line in named)


def _is_bare_head(line: str, indent: int) -> bool:
    """Whether a line is the head of a statement without braces at this indentation."""
    is_head = line.lstrip().startswith(("for (", "if (", "while (", "else")) and line.endswith((")", "else"))
    return _indent(line) <= indent and is_head


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
