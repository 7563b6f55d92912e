"""Run a build that Ninja, or another tool, does; explain what it prints when it fails."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mtool.base import proc
from mtool.base.errors import BuildError, MtoolError
from mtool.device.build import fit
from mtool.device.build.toolchains import NotReady
from mtool.manifest import Manifest

_PROGRESS = re.compile(r"\[\d+/\d+\] ")
_MOST_WORDS = 40  # of a command that is shown whole


def run(
    argv: Sequence[str],
    manifest: Manifest,
    *,
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    has_scratch: bool = False,
    not_ready: tuple[re.Pattern[str], NotReady] | None = None,
) -> None:
    """Run a command of a build.

    Args:
        argv: the command.
        manifest: the project's.
        cwd: its folder.
        timeout_s: how long it may take.
        env, has_scratch: as of `proc.run`.
        not_ready: what a tool prints that lacks what it builds a board with, and the error of that.

    Raises:
        NotReady: it has printed that.
        BuildError: the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    what = "build of the firmware"
    done = proc.run(argv, what=what, timeout_s=timeout_s, cwd=cwd, env=env, check=False, has_scratch=has_scratch)
    if done.returncode == 0:
        return
    if not_ready is not None and not_ready[0].search(done.output):
        last = done.output.strip().splitlines()[-3:]
        raise NotReady(not_ready[1].what, details=["$ " + " ".join(argv), *last], hint=not_ready[1].hint)
    raise failure(done, manifest)


def failure(done: proc.Completed, manifest: Manifest) -> MtoolError:
    """Return the error that a failed build stands for: a memory that overflows, or else its last lines."""
    too_large = fit.explain(done.output, manifest)
    if too_large is not None:
        return too_large
    lines = [line for line in done.output.splitlines() if not _PROGRESS.match(line)]
    words = done.argv if len(done.argv) < _MOST_WORDS else [*done.argv[:3], "..."]
    what = f"build of the firmware failed with exit code {done.returncode}"
    return BuildError(what, details=["$ " + " ".join(words), *lines[-proc.LAST_LINES :]])
