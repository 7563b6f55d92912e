"""Options of a rack of boards, which other computers drive."""

from pathlib import Path
from typing import Annotated

import typer

Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Measure on the boards of a rack: those of the workers of this Dask scheduler, HOST:PORT (docs/farm.md).",
        show_default=False,
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="The certificate of who signs those of a rack.", show_default=False),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="This computer's certificate, for a rack.", show_default=False),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert.", show_default=False)
]
