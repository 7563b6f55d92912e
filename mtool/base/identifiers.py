"""Unique C names for a model and its tensors, valid in C99 and C++17, from arbitrary names.

A safe name only has invalid characters replaced: "kws", "input_1". Others get a prefix: "model_math", "t_NULL"; long
names are shortened, with a hash of the full name.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mtool.base import resources

_MACRO_FORMS = re.compile(
    r"I"  # <complex.h>
    r"|[A-Z][A-Z0-9_]+"  # the style of macros
    r"|[A-Z]\w*_(vect|vect_num|[bg][mp]|Msk|Pos)"  # interrupts and bits of AVR's and CMSIS's registers
    r"|(PRI|SCN)[diouxX]\w+|[MLP]_\w+|(AF|PF)_\w+"  # <inttypes.h>, <math.h>, <stdio.h>
    r"|(ifa|ifc|ifr|s6|si|sigev)_\w+"  # <net/if.h>, <netinet/in.h>, <signal.h>
)
_HEADER_FORMS = re.compile(r"mt(_.*)?|\w*intrin|cmsis_.*|core_(ca|cm|sc|star)\w*")
_WINDOWS = re.compile(r"con|prn|aux|nul|(com|lpt)\d")  # reserved file names on Windows


@functools.cache
def _reserved(kind: str) -> frozenset[str]:
    """Return the names of one kind (keywords, macros, headers, targets) from taken_names.yaml."""
    texts = resources.read_yaml(Path(__file__).with_name("taken_names.yaml"))[kind]
    return frozenset(word for text in texts for word in text.split())


def is_keyword(name: str) -> bool:
    """Whether a name is a keyword of C or C++, or of a compiler."""
    return name in _reserved("keywords")


def is_macro(name: str) -> bool:
    """Whether some header may define a macro of this name."""
    return name in _reserved("macros") or _MACRO_FORMS.fullmatch(name) is not None


def is_taken_by_a_file(stem: str) -> bool:
    """Whether files <stem>.h and <stem>.c may shadow others, or can't exist."""
    return stem in _reserved("headers") or any(form.fullmatch(stem) is not None for form in (_HEADER_FORMS, _WINDOWS))


def is_taken_by_a_target(name: str) -> bool:
    """Whether a build system may have a target, a library, a module or an option of this name."""
    return name in _reserved("targets")


LONGEST_MODEL = 55  # with "_example" 63, Arduino's longest name of a sketch
LONGEST_TENSOR = 100
_HASH = 8


def model_name(stem: str) -> str:
    """Return the C name of a model: the name of its files and the prefix of its symbols."""
    name = re.sub(r"[^a-z0-9_]", "_", re.sub(r"[^\x00-\x7f]", "_", stem).lower()).strip("_")
    if not name or name[0].isdigit() or is_taken_by_a_file(name):
        name = f"model_{name}".rstrip("_")
    return _shortened(name, stem, LONGEST_MODEL)


def firmware_name(models: Sequence[str]) -> str:
    """Return the C name of a firmware of several models, for the file that includes them and for their arena."""
    name = "_".join(models)
    return _shortened(name, name, LONGEST_MODEL)


def target_name(model: str) -> str:
    """Return a model's name in build systems: CMake's target, Zephyr's module and option."""
    return f"model_{model}" if is_taken_by_a_target(model) else model


def tensor_names(names: Iterable[str]) -> list[str]:
    """Return a C identifier for each name; all are distinct, also in capitals as parts of macros."""
    identifiers: list[str] = []
    used: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "tensor"
        if stem[0].isdigit() or is_keyword(stem) or is_macro(stem):
            stem = f"t_{stem}"
        stem = _shortened(stem, name, LONGEST_TENSOR)
        unique, number = stem, numbers.get(stem.upper(), 1)
        while unique.upper() in used:
            number += 1
            unique = f"t_{stem}_{number}" if is_macro(f"{stem}_{number}") else f"{stem}_{number}"
        numbers[stem.upper()] = number
        used.add(unique.upper())
        identifiers.append(unique)
    return identifiers


def _shortened(name: str, whole: str, most: int) -> str:
    """Return a name of at most `most` characters; `whole` is the original text."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: most - _HASH - 1].rstrip('_')}_{digest}"
