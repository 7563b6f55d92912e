"""The most useful tests for a developer's minute: `scripts/test --quick`.

    python tests/quick.py [REVISION]

Prints files and folders for pytest: a smoke set, then the tests that have changed since REVISION (main), then those of
the sources that have changed. The tests mirror the rooms: a source's folder leads to that of its tests. What does not
begin in time is left out and counted (MTOOL_TESTS_UNTIL, see conftest.py).
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SMOKE = (
    "tests/acceptance/test_imports.py",
    "tests/acceptance/test_private_names.py",
    "tests/compiler/codegen/test_golden_c.py",
    "tests/cli/test_commands.py",
)
# The tests of modules outside of packages, and of parts of packages tested elsewhere; the longest path counts.
ELSEWHERE = {
    "boards.yaml": ("tests/boards", "tests/project"),
    "crt": ("tests/crt",),
    "docs": ("tests/docs",),
    "examples": ("tests/examples",),
    "mtool/plugins/onnx_backend": ("tests/onnx_suite/test_backend_api.py",),
    "mtool/python.py": ("tests/python",),
    "project_templates": ("tests/project",),
    "project_templates/arduino": ("tests/arduino",),
    "project_templates/zephyr": ("tests/zephyr",),
    "scripts": ("tests/docs",),
}


def changed(since: str) -> list[str]:
    """Return the files that differ from where this branch has left a revision, and those that git does not know."""
    base = _git("merge-base", since, "HEAD")[0]
    return [*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def tests_of(source: str) -> Iterator[str]:
    """Yield the tests of a file, the closest first: itself, that of its name, those of its folder."""
    path = PurePosixPath(source)
    if path.parts[0] == "tests":
        if path.name.startswith("test_") or (len(path.parts) > 2 and path.parts[1] != "golden"):
            yield str(path if path.name.startswith("test_") else path.parent)
        return
    for folder in (path, *path.parents):
        if str(folder) in ELSEWHERE:
            yield from ELSEWHERE[str(folder)]
            return
        mirror = PurePosixPath("tests", *folder.parts[1:])
        if len(folder.parts) > 1 and folder.parts[0] == "mtool" and (ROOT / mirror).is_dir():
            yield f"{mirror}/test_{path.stem}.py"
            yield str(mirror)
            return


def chosen(sources: Iterable[str]) -> list[str]:
    """Return what pytest is to run, each once: the smoke set, files, then folders, the innermost first."""
    found = [test for source in sources for test in tests_of(source) if (ROOT / test).exists()]
    files = [test for test in found if test.endswith(".py")]
    folders = [test for test in found if not test.endswith(".py")]
    return [*dict.fromkeys([*SMOKE, *files, *sorted(folders, key=lambda one: -one.count("/"))])]


if __name__ == "__main__":
    print("\n".join(chosen(changed(sys.argv[1] if len(sys.argv) > 1 else "main"))))
