"""`west mtool`: mtool's commands with the workspace's own Zephyr tree, and its own board where none is named."""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from west.commands import WestCommand

BUILDS = ("build", "run", "flash", "verify", "bench", "report", "tune")  # commands that take a template


class Mtool(WestCommand):
    """Run mtool inside a workspace."""

    def __init__(self) -> None:
        super().__init__(
            "mtool",
            "put a model on a board of this workspace",
            "Runs mtool's commands: west mtool run model.onnx. --board takes mtool's boards and Zephyr's own "
            "(zephyr:NAME); without it, the board is that of: west config build.board NAME. west mtool COMMAND --help "
            "says more.",
            accepts_unknown_args=True,
        )

    def do_add_parser(self, parser_adder: argparse._SubParsersAction) -> argparse.ArgumentParser:
        """Take a command of mtool's and leave its options to it."""
        parser = parser_adder.add_parser(self.name, help=self.help, description=self.description, add_help=False)
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="as mtool takes them")
        return parser

    def do_run(self, args: argparse.Namespace, unknown: list[str]) -> None:
        """Run mtool to its end, with its exit code."""
        words = [*unknown, *args.words]
        argv = [*self._program(), *words, *self._defaults(words)]
        self.dbg(" ".join(argv))
        env = dict(os.environ)
        tree = Path(self.topdir) / self.config.get("zephyr.base", "zephyr")
        if (tree / "VERSION").is_file():
            env.setdefault("ZEPHYR_BASE", str(tree))
        sys.exit(subprocess.run(argv, env=env, check=False).returncode)

    def _program(self) -> list[str]:
        """Return mtool: of west's own Python, else the one on PATH."""
        if importlib.util.find_spec("mtool") is not None:
            return [sys.executable, "-m", "mtool"]
        if shutil.which("mtool") is None:
            self.die("mtool is not installed in west's Python environment, nor on PATH")
        return ["mtool"]

    def _defaults(self, words: list[str]) -> list[str]:
        """Return the options that the workspace answers: its template, and its board if it has one."""
        if not words or words[0] not in BUILDS or {"-h", "--help"} & set(words):
            return []
        found = []
        if not _has(words, "-b", "--board"):
            board = self.config.get("build.board", "")
            if not board:
                self.die("no board is named: --board NAME, or west config build.board NAME")
            found += ["--board", f"zephyr:{board}"]
        return found if _has(words, "-t", "--template") else [*found, "--template", "zephyr"]


def _has(words: list[str], short: str, long: str) -> bool:
    return any(word == long or word.startswith((short, f"{long}=")) for word in words)
