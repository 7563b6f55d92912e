"""`mtool report`: a model on a board on one page."""

from pathlib import Path

from mtool import commands
from mtool.base import files
from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output

_MARK = b'<meta name="generator" content="mtool">'
_HEAD = 1024  # bytes at the beginning of a page that contain the mark


def report(
    out: Output,
    model: Path,
    board: str = parameters.HOST,
    output: Path | None = None,
    samples: int = 4,
    seed: int = 0,
    repeat: int = 3,
    data: Path | None = None,
    labels: Path | None = None,
    *,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
) -> None:
    """Write a page: the arena over time, time and flash by operator, numeric differences, which boards it fits."""
    page = output or _default(options.name if deployment.models else "")
    files.check_writable(page, [model], makes_folder=True)
    document = commands.report(
        model,
        board=board,
        samples=samples,
        seed=seed,
        repeat=repeat,
        options=options,
        deployment=deployment,
        data=data,
        labels=labels,
    )
    files.write(page, document.as_html().encode(), follow=True)
    out.result({"page": str(page), **document.as_json()})
    out.text(str(page))


def _default(model: str) -> Path:
    """Return the default path of the page; `model`: of several models the one that the page is for, else empty.

    Raises:
        UsageError: there is a file that mtool did not write.
    """
    page = Path(f"report-{model}.html" if model else "report.html")
    if page.exists() and (not page.is_file() or _MARK not in page.read_bytes()[:_HEAD]):
        raise UsageError(f"{page} exists and was not written by mtool", hint=f"to overwrite it: -o {page}")
    return page
