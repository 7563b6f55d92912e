"""Escaping of text that a model brought, for what it is written into. Nothing else writes such text.

A model's names, its file's name and what a device answers are any Unicode: they may end a comment or a string, move a
terminal's cursor, or reverse the order in which a line is read. In `mtool.json` and other JSON they stand exactly; for
every other target there is a function here, or `mtool.base.identifiers` where a C name is made of them.

| target | function |
|---|---|
| terminal, errors, logs | `one_line` |
| comment of C | `comment` |
| string of C | `c_string` |
| a command that a hint suggests | `argument` |
| HTML | `one_line`, before the template's own escaping |
| texts of templates: CMake, Kconfig, Markdown, YAML, properties | `plain` |
| a file's name | `file_name` |

Every function leaves ordinary text (printable, of a sensible length) as it is.
"""

import shlex

LONGEST_NAME = 80  # characters of a name in a comment
LONGEST_LINE = 1_000  # characters of a line on a terminal
_LONGEST_FILE_NAME = 120
_HARMLESS = frozenset(" ._-+=:,()")  # beside letters and digits: in every text of a template
_MARK = "…"


def visible(text: str) -> str:
    r"""Return text with whatever is not printed shown as an escape: \n, \x1b, \u202e, \udc80.

    That is every control character, every mark that changes the direction of writing, every surrogate, and every space
    but the plain one.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def cut(text: str, most: int) -> str:
    """Return text with its middle taken out, and a mark there, if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most // 3
    return text[:head] + _MARK + text[len(text) - (most - head - len(_MARK)) :]


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """Return text as one line for people: what is not printed is shown as an escape, and it is cut if it is long."""
    return cut(visible(cut(text, most)), most)


def short_name(text: str) -> str:
    """Return a name as it stands in a sentence or a comment: one line, cut if it is long."""
    return one_line(text, LONGEST_NAME)


def comment(*lines: str, apart: bool = False) -> str:
    """Return a block comment of C with these lines; `apart`: its end stands on a line of its own."""
    text = "/* " + "\n * ".join(map(_in_comment, lines)).replace(" * \n", " *\n")
    return text + ("\n */" if apart else " */")


def _in_comment(text: str) -> str:
    r"""Return a line that can't end a comment, begin another or join the next line (as `\` and `??/` at its end do)."""
    text = visible(text)
    for there, apart in (("*/", "* /"), ("/*", "/ *"), ("??", "? ?")):
        while there in text:
            text = text.replace(there, apart)
    return text[:-1] + "\\x5c" if text.endswith("\\") else text


def c_string(text: str) -> str:
    """Return a string literal of C, and of C++, whose bytes are the text's in UTF-8."""
    plain = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(map(_in_string, plain)).replace("??", "?\\?") + '"'


def _in_string(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def argument(text: str) -> str:
    """Return text as a shell takes it in a command that is suggested, quoted where it is more than a word."""
    return shlex.quote(text)


def plain(text: str, most: int = LONGEST_NAME) -> str:
    """Return text of letters, digits and what means nothing in any text that a template makes; the rest becomes "_".

    Letters are those of any script. A comment, a quoted string and a heading hold it as it is.
    """
    return cut("".join(char if char.isalnum() or char in _HARMLESS else "_" for char in cut(text, most)), most)


def file_name(text: str) -> str:
    """Return the name of a file in a folder: no path, not hidden."""
    name = plain(text, _LONGEST_FILE_NAME).strip(" ")
    return "_" + name.lstrip(".") if name.startswith(".") or not name else name


def encodable(text: str) -> str:
    """Return text that UTF-8 can hold: each byte of a file's name that is no text becomes U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
