"""Projects are built with ccache if it is installed: most of a project is the same runtime.

The objects lie in build/ccache, for the next run as well. CCACHE_DISABLE=1 builds everything.
"""

import os
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMPILERS = HERE / "compilers"


def use() -> None:
    """Let CMake, and the call of cc that builds for the host, use the cache."""
    paths = os.environ["PATH"].split(os.pathsep)
    compiler = shutil.which("cc")
    if shutil.which("ccache") is None or compiler is None or str(COMPILERS) in paths:
        return
    os.environ |= {
        "PATH": os.pathsep.join([str(COMPILERS), *paths]),
        "TESTS_CC": compiler,
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CCACHE_DIR": str(HERE.parent / "build" / "ccache"),
        "CCACHE_MAXSIZE": "1G",
        "CCACHE_BASEDIR": tempfile.gettempdir(),  # each test builds in a folder of its own there
        "CCACHE_NOHASHDIR": "1",
    }
