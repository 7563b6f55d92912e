"""`mtool test`: a project's tests, run by pytest with mtool's plugin."""

import contextlib
import sys
from pathlib import Path

import typer

from mtool.base import distribution
from mtool.base.errors import MismatchError, MtoolError, UsageError
from mtool.cli.ending import INTERRUPTED
from mtool.cli.output import Output, written

_PLUGIN = "mtool.plugins.testing.plugin"
_PASSED, _FAILED, _INTERRUPTED, _USAGE, _NOTHING = 0, 1, 2, 4, 5  # pytest's exit codes


def test(
    out: Output,
    arguments: list[str] | None = None,
    board: str = "",
    port: str = "",
    probe: str = "",
    record: bool = False,
    log: Path | None = None,
) -> None:
    """Run the tests of the project that you are in, with pytest.

    Ends with the exit code for the reason of the failures: 9 for outputs, limits or your own tests; otherwise as
    elsewhere, for instance 5 for a toolchain and 6 for a board.
    """
    try:
        import pytest
    except ImportError:
        raise UsageError("mtool test needs pytest", hint=f"install it: {distribution.install('test')}") from None
    from mtool import boards
    from mtool.commands import user_project

    project = user_project.require()
    boards.get(board or project.test_board)
    # If mtool is installed as a wheel, pytest tries to rewrite assertions in mtool's modules, which are loaded already.
    words = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    words += ["-p", _PLUGIN, f"--rootdir={project.folder}", "-p", "no:cacheprovider"]
    for name, value in (
        ("board", board),
        ("port", port),
        ("probe", probe),
        ("log", str(log.absolute()) if log else ""),
    ):
        words += [f"--mtool-{name}={value}"] if value else []
    words += ["--mtool-record"] if record else []
    words += ["-q"] if out.verbosity < 0 else ["-v"] * out.verbosity
    words += [*(arguments or ())]
    if not any(Path(word.partition("::")[0]).exists() for word in arguments or ()):
        words.append(str(project.folder / "tests"))
    watch = Watch()
    with contextlib.redirect_stdout(sys.stderr) if out.as_json else written():
        code = int(pytest.main(words, plugins=[watch]))
    out.result({"board": board or project.test_board, **watch.counts, "figures": watch.figures})
    if code != _PASSED:
        raise error_of(code, watch)


class Watch:
    """Records the results of tests."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.figures: dict[str, float] = {}
        self.errors: list[MtoolError] = []

    def pytest_runtest_logreport(self, report: object) -> None:
        """Count a test's result."""
        when, outcome = getattr(report, "when", ""), getattr(report, "outcome", "")
        if when == "call" or outcome in ("failed", "skipped"):
            self.counts[outcome] += 1

    def pytest_unconfigure(self, config: object) -> None:
        """Take over the errors and figures that the plugin has recorded."""
        from mtool.plugins.testing import plugin

        stash = config.stash  # type: ignore[attr-defined]
        self.errors = stash.get(plugin.ERRORS, [])
        limits = stash.get(plugin.LIMITS, None)
        self.figures = dict(limits.seen) if limits is not None else {}


def error_of(code: int, watch: Watch) -> Exception:
    """Return the error that pytest's exit code stands for."""
    if code == _INTERRUPTED:
        return typer.Exit(INTERRUPTED)
    if code == _NOTHING:
        return UsageError("no tests were found", hint="put tests into tests/test_*.py")
    if code == _USAGE:
        return UsageError("pytest does not understand its arguments", details=["see its message above"])
    if code != _FAILED:
        return MtoolError(f"pytest ended with exit code {code}", details=["see its message above"])
    failed = watch.counts["failed"]
    what = f"{failed} test{'s' if failed != 1 else ''} failed"
    kinds = {type(error) for error in watch.errors}
    if len(kinds) == 1 and len(watch.errors) == failed:
        return kinds.pop()(what, details=["see the failures above"])
    return MismatchError(what, details=["see the failures above"])
