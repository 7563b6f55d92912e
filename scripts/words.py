"""Find phrases that have a plainer word, in the code, the templates, the tests and the documentation.

    scripts/words.py

Prints each place with the plain word, and ends with 1 if there are more than LIMIT. scripts/lint runs it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOKED_AT = ("mtool", "crt", "project_templates", "examples", "scripts", "tests", "docs", "*.md")
ENDINGS = (".py", ".md", ".c", ".h", ".j2", ".yaml", ".toml")
LIMIT = 5  # the few places where the phrase is the plain word
NAMES = (
    r"MT_LENT\w*|mt_lent|lent_\w+|made_of|revival|revive|(?:check|open|close)_fence|told\.json|parse_given|"
    r"(?<!\.)tells?(?=[=:(])"
)
PHRASES = {
    r"\btold\b": "reported; the option, the argument",
    r"\btells? (?:what|which|how|it|them)\b": "reports, says, prints",
    r"\banew\b": "again",
    r"\blent\b": "the noun: a buffer of the device",
    r"\bso many\b": "the number of",
    r"(?<!here )\bis no (?!longer|more|such|need|way|better|larger|faster)[a-z]": "is not a",
    r"(?<!here )\bare no (?!longer|more|such|better)[a-z]": "are not",
    r"\b(?:no|some)body\b": "the caller, the reader; no operator",
    r"\bwho (?:reads|names|gives|wants|has)\b": "the reader, the caller",
    r"\bof one's own\b": "your own",
    r"(?<![\"`])\bquantis": "quantiz",
    rf"\b(?:{NAMES})\b": "the names that replaced it: buffers, cache_key, reconnect, protection, ...",
    r"\bwhat is (?:asked|given|made|told|left|said)\b": "the noun: the options, the rest",
}
IN_MESSAGES = {  # of mtool itself
    r"(?m)^(?!.*\bassert\b).*(?<! of )\{len\([^{}]+\)(?::,)?\} (?!(?:is|has|does|was|needs|bytes|times)\b)[a-z]+s\b": (
        "plural.count(…): 1 thing has no s"
    ),
}


def places() -> list[str]:
    """Return each place of a phrase: its file and line, and the plain word."""
    argv = ["git", "ls-files", "-z", *LOOKED_AT]
    names = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found = []
    for name in names.stdout.split("\0"):
        if name.endswith(ENDINGS) and "third_party" not in name and name not in ("CHANGELOG.md", "scripts/words.py"):
            text = (ROOT / name).read_text()
            for phrase, plain in (PHRASES | (IN_MESSAGES if name.startswith("mtool/") else {})).items():
                for match in re.finditer(phrase, text):
                    line = text.count("\n", 0, match.start()) + 1
                    found.append(f"{name}:{line}: {match[0]!r}: {plain}")
    return sorted(found)


if __name__ == "__main__":
    found = places()
    sys.stdout.write(
        "\n".join([*found, f"{len(found)} phrases that have a plainer word, at most {LIMIT} are allowed", ""])
    )
    sys.exit(len(found) - 1 > LIMIT)
