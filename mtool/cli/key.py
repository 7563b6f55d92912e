"""`mtool key`: a pair of keys that sign modules."""

from pathlib import Path
from typing import Annotated

import typer

from mtool.cli.output import Output


def key(
    out: Output,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The private key, a new file; the public one is FILE.pub beside it.",
            show_default=False,
        ),
    ],
) -> None:
    """Make a pair of keys (Ed25519) for modules: one signs them, firmware is built with the other.

    The private key is a file that only you can read: keep a copy where nobody else does. Firmware takes modules of its
    keys alone, so what is lost can't be replaced. Files that are there are never overwritten.
    """
    from mtool.manifest.modules import keys

    public = keys.make(file)
    other = keys.public_path_of(file)
    out.result(
        {"private": str(file), "public": str(other), "public_key": public.raw.hex(), "key_id": public.key_id.hex()}
    )
    out.text(f"{file}      private: it signs modules; keep it secret, and a copy of it")
    out.text(f"{other}  public: firmware is built with it")
    out.text(f"key id {public.key_id.hex()}, public key {public.raw.hex()}")
