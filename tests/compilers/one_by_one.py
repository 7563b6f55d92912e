"""Do what `cc @FILE -o PROGRAM` does, with each source compiled apart by ccache.

    one_by_one.py CC @FILE -o PROGRAM

Where that fails, the call is made as it stands: its errors are those that a user sees.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def main(compiler: str, call: list[str]) -> None:
    """Replace this process by the one that links, or by the whole call."""
    arguments = shlex.split(Path(call[0][1:]).read_text())
    sources = [argument for argument in arguments if argument.endswith(".c")]
    libraries = [argument for argument in arguments if argument.startswith("-l")]
    flags = [argument for argument in arguments if argument not in sources and argument not in libraries]
    with tempfile.TemporaryDirectory() as folder:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        compiles = (
            ["ccache", compiler, *flags, "-c", source, "-o", made]
            for source, made in zip(sources, objects, strict=True)
        )
        done = all(subprocess.run(argv, capture_output=True, check=False).returncode == 0 for argv in compiles)
        if done and subprocess.run([compiler, *flags, *objects, *libraries, *call[1:]], check=False).returncode == 0:
            return
    os.execv(compiler, [compiler, *call])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
