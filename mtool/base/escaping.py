"""Escaping of text from a model or a device, for each kind of output. All such text is written through this module.

Names in a model, its file's name and a device's answers may be any Unicode: they may end a comment or a string, move a
terminal's cursor, or reverse the reading direction of a line. `mtool.json` and other JSON hold them unchanged; every
other kind of output has a function here; `mtool.base.identifiers` makes C names of them.

| target | function |
|---|---|
| terminal, errors, logs | `one_line` |
| comment of C | `comment` |
| string of C | `c_string` |
| a command in a hint | `argument` |
| HTML | `one_line`, before the template's own escaping |
| texts of templates: CMake, Kconfig, Markdown, YAML, properties | `plain` |
| a file's name | `file_name` |

Every function leaves ordinary text (printable, of a sensible length) as it is.
"""

import shlex

LONGEST_NAME = 80  # characters of a name in a comment
LONGEST_LINE = 1_000  # characters of a line on a terminal
_LONGEST_FILE_NAME = 120
_HARMLESS = frozenset(" ._-+=:,()")  # besides letters and digits: harmless in all templates
_MARK = "…"


def visible(text: str) -> str:
    r"""Return text with unprintable characters shown as escapes: \n, \x1b, \u202e, \udc80.

    These are control characters, marks that change the direction of writing, surrogates, and every space except the
    plain one.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def cut(text: str, most: int) -> str:
    """Return text with its middle replaced by a mark if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most // 3
    return text[:head] + _MARK + text[len(text) - (most - head - len(_MARK)) :]


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """Return text as one line for people: unprintable characters are escaped, and long text is cut."""
    return cut(visible(cut(text, most)), most)


def short_name(text: str) -> str:
    """Return a name for a sentence or a comment: one line, cut if it is long."""
    return one_line(text, LONGEST_NAME)


def comment(*lines: str, apart: bool = False) -> str:
    """Return a block comment of C with these lines; `apart`: put its end on a separate line."""
    text = "/* " + "\n * ".join(map(_in_comment, lines)).replace(" * \n", " *\n")
    return text + ("\n */" if apart else " */")


def _in_comment(text: str) -> str:
    r"""Return a line that can't end a comment, begin another or join the next line (as a final `\` or `??/` would)."""
    text = visible(text)
    for sequence, apart in (("*/", "* /"), ("/*", "/ *"), ("??", "? ?")):
        while sequence in text:
            text = text.replace(sequence, apart)
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
    """Return text as a shell argument for a suggested command, quoted if necessary."""
    return shlex.quote(text)


def plain(text: str, most: int = LONGEST_NAME) -> str:
    """Return text with everything except letters, digits and harmless punctuation replaced by "_".

    Letters are those of any script. The result is safe in comments, quoted strings and headings.
    """
    return cut("".join(char if char.isalnum() or char in _HARMLESS else "_" for char in cut(text, most)), most)


def file_name(text: str) -> str:
    """Return a file name made from a text: not a path, not hidden."""
    name = plain(text, _LONGEST_FILE_NAME).strip(" ")
    return "_" + name.lstrip(".") if name.startswith(".") or not name else name


def encodable(text: str) -> str:
    """Return text that UTF-8 can encode: each undecodable byte of a file's name becomes U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
