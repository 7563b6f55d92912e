"""Doxygen's input filter: prints a header with its plain comments marked for Doxygen, and its sections as groups.

A section starts with a comment `---- Name ----`.
"""

import re
import sys
from pathlib import Path


def filtered(text: str) -> str:
    """Return the header for Doxygen."""
    text = re.sub(r"^/\* clang-format.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(?! \* {5}|.*\").*", _escaped, text, flags=re.MULTILINE)
    text = re.sub(r"^( .*[;,)]) +/\* ", r"\1 /**< ", text, flags=re.MULTILINE)
    first, *sections = re.split(r"^/\* ---- (\w+) ----", text, flags=re.MULTILINE)
    named = zip(sections[::2], sections[1::2], strict=True)
    groups = "/** @} */\n".join(f"/** @defgroup {name} {name}\n * @{{{section}" for name, section in named)
    return re.sub(r"^( *)/\* ", r"\1/** ", first + groups + "/** @} */\n", flags=re.MULTILINE)


def _escaped(line: re.Match[str]) -> str:
    """Return a line without what Doxygen reads as a tag or a dash: <model>, --option."""
    return re.sub(r"--(?=[a-z])", r"\\--", re.sub(r"<([a-z]+)>", r"&lt;\1&gt;", line[0]))


if __name__ == "__main__":
    sys.stdout.write(filtered(Path(sys.argv[1]).read_text()))
