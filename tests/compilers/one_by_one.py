"""Do the work of `cc @FILE -o PROGRAM`, with each source compiled separately by ccache.

    one_by_one.py CC @FILE -o PROGRAM

Where that fails, the call is made as it stands: its errors are those that a user sees. Modules that take long to import
are not: this runs some hundred times.
"""

# ruff: noqa: PTH102, PTH106, PTH108, PTH123, PTH208, SIM115

import os
import sys

QUIET = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]


def succeeds(argv: list[str], *, quiet: bool = False) -> bool:
    """Return whether a program ends well."""
    process = os.posix_spawnp(argv[0], argv, os.environ, file_actions=QUIET if quiet else [])
    return os.waitpid(process, 0)[1] == 0


def main(compiler: str, call: list[str]) -> None:
    """Compile and link, or replace this process by the whole call."""
    text = open(call[0][1:]).read()
    if not set(text) & set("'\"\\ "):  # one argument a line
        arguments = text.split()
        sources = [argument for argument in arguments if argument.endswith(".c")]
        libraries = [argument for argument in arguments if argument.startswith("-l")]
        flags = [argument for argument in arguments if argument not in sources and argument not in libraries]
        folder = f"{os.environ.get('TMPDIR', '/tmp')}/one-by-one-{os.getpid()}"
        os.mkdir(folder, 0o700)
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        done = all(
            succeeds(["ccache", compiler, *flags, "-c", source, "-o", made], quiet=True)
            for source, made in zip(sources, objects, strict=True)
        ) and succeeds([compiler, *flags, *objects, *libraries, *call[1:]])
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
        if done:
            return
    os.execv(compiler, [compiler, *call])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
