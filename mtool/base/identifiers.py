"""C names of a model and of its tensors, whatever they are called: they build as C99 and as C++17, and differ.

A name that is plainly safe stays as it is but for what no C name has: "kws", "input_1". Others get a beginning that
nothing else has: "model_math", "t_NULL"; long ones are shortened, with a hash of the whole.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mtool.base import resources

_MACRO_FORMS = re.compile(
    r"I"  # <complex.h>
    r"|[A-Z][A-Z0-9_]+"  # as macros are written
    r"|[A-Z]\w*_(vect|vect_num|[bg][mp]|Msk|Pos)"  # interrupts and bits of AVR's and CMSIS's registers
    r"|(PRI|SCN)[diouxX]\w+|[MLP]_\w+|(AF|PF)_\w+"  # <inttypes.h>, <math.h>, <stdio.h>
    r"|(ifa|ifc|ifr|s6|si|sigev)_\w+"  # <net/if.h>, <netinet/in.h>, <signal.h>
)
_HEADER_FORMS = re.compile(r"mt(_.*)?|\w*intrin|cmsis_.*|core_(ca|cm|sc|star)\w*")
_WINDOWS = re.compile(r"con|prn|aux|nul|(com|lpt)\d")  # no file may be called so there


@functools.cache
def _taken(kind: str) -> frozenset[str]:
    """Return the names of taken_names.yaml that are keywords, macros, headers or targets."""
    texts = resources.read_yaml(Path(__file__).with_name("taken_names.yaml"))[kind]
    return frozenset(word for text in texts for word in text.split())


def is_keyword(name: str) -> bool:
    """Whether a name is a keyword of C or C++, or of a compiler."""
    return name in _taken("keywords")


def is_macro(name: str) -> bool:
    """Whether a name may be a macro of some header."""
    return name in _taken("macros") or _MACRO_FORMS.fullmatch(name) is not None


def is_taken_by_a_file(stem: str) -> bool:
    """Whether files <stem>.h and <stem>.c may hide others, or can't be there."""
    return stem in _taken("headers") or any(form.fullmatch(stem) is not None for form in (_HEADER_FORMS, _WINDOWS))


def is_taken_by_a_target(name: str) -> bool:
    """Whether a build system may have a target, a library, a module or an option of this name."""
    return name in _taken("targets")


LONGEST_MODEL = 55  # with "_example" the longest name that Arduino gives a sketch, 63
LONGEST_TENSOR = 100
_HASH = 8


def model_name(stem: str) -> str:
    """Return the C name of a model: its files' name, and the beginning of its symbols."""
    name = re.sub(r"[^a-z0-9_]", "_", re.sub(r"[^\x00-\x7f]", "_", stem).lower()).strip("_")
    if not name or name[0].isdigit() or is_taken_by_a_file(name):
        name = f"model_{name}".rstrip("_")
    return _shortened(name, stem, LONGEST_MODEL)


def firmware_name(models: Sequence[str]) -> str:
    """Return the C name of a firmware of several models: of the file that includes them, of their arena."""
    name = "_".join(models)
    return _shortened(name, name, LONGEST_MODEL)


def target_name(model: str) -> str:
    """Return what a build system calls a model of this C name: CMake's target, Zephyr's module and option."""
    return f"model_{model}" if is_taken_by_a_target(model) else model


def tensor_names(names: Iterable[str]) -> list[str]:
    """Return a C identifier for each name; all differ, also where a macro has them in capitals."""
    made: list[str] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "tensor"
        if stem[0].isdigit() or is_keyword(stem) or is_macro(stem):
            stem = f"t_{stem}"
        stem = _shortened(stem, name, LONGEST_TENSOR)
        unique, number = stem, numbers.get(stem.upper(), 1)
        while unique.upper() in taken:
            number += 1
            unique = f"t_{stem}_{number}" if is_macro(f"{stem}_{number}") else f"{stem}_{number}"
        numbers[stem.upper()] = number
        taken.add(unique.upper())
        made.append(unique)
    return made


def _shortened(name: str, whole: str, most: int) -> str:
    """Return a name of at most `most` characters; `whole` is what it was made of."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: most - _HASH - 1].rstrip('_')}_{digest}"
