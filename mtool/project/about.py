"""What a package says of itself besides the model: who made it, its version, where it is at home."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.version import __version__

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*)?")
_VENDOR = re.compile(r"[A-Za-z0-9_-]{2,}")
_TEXT = re.compile(r"[^\x00-\x1f\x7f\"\\]{3,120}")


@dataclass(frozen=True, slots=True)
class About:
    """What registries ask for; the defaults make a package that is valid, and is nobody's.

    author: a name, perhaps with an address: "Ada Lovelace <ada@example.org>".
    url: the package's page.
    version: three numbers, as semver.org has them.
    vendor: of a CMSIS-Pack: letters, digits, - and _.
    """

    author: str = "mtool"
    url: str = "https://example.org/"
    version: str = __version__
    vendor: str = "mtool"

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Read KEY=VALUE of a command line.

        Raises:
            UsageError: a key is unknown, or a value is none that registries take.
        """
        known = {field.name: _FORMS[field.name] for field in fields(cls)}
        values: dict[str, str] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals or key not in known:
                meant = spelling.did_you_mean(key, known, otherwise=f"there are: {', '.join(known)}")
                raise UsageError(f"--about takes KEY=VALUE, and {text!r} is none", hint=meant)
            form, wanted = known[key]
            if not form.fullmatch(value):
                raise UsageError(f"--about {key} can't be {value!r}", details=[f"expected  {wanted}"])
            values[key] = value
        return cls(**values)


_FORMS = {
    "author": (_TEXT, 'a name of 3 to 120 characters, without " and \\'),
    "url": (_URL, "an address that begins with https:// or http://"),
    "version": (_VERSION, "three numbers: 1.0.0"),
    "vendor": (_VENDOR, "letters, digits, - and _"),
}
