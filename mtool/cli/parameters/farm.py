"""Options of a rack of boards, which other computers drive."""

import functools
from pathlib import Path
from typing import Annotated

import typer

_option = functools.partial(typer.Option, rich_help_panel="A rack of boards")

Scheduler = Annotated[
    str,
    _option(
        "--scheduler",
        metavar="ADDRESS",
        help="Measure on the boards of a rack: those of the workers of this Dask scheduler, HOST:PORT (docs/farm.md).",
        show_default=False,
    ),
]
TlsCa = Annotated[
    Path | None,
    _option("--tls-ca", metavar="FILE", help="The certificate of who signs those of a rack.", show_default=False),
]
TlsCertificate = Annotated[
    Path | None,
    _option("--tls-cert", metavar="FILE", help="This computer's certificate, for a rack.", show_default=False),
]
TlsKey = Annotated[Path | None, _option("--tls-key", metavar="FILE", help="The key of --tls-cert.", show_default=False)]
