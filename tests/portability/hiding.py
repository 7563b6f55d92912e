"""Hide from this process what Windows lacks, then run mtool commands, one per line of standard input.

What others have written knows its own systems, so it is imported before.
"""

import functools
import json
import os
import shutil
import sys

import rich.console
import serial
import typer

assert rich and serial and typer

for name in ("fcntl", "termios", "pty", "tty", "resource", "pwd", "grp"):
    sys.modules[name] = None  # type: ignore[assignment] - an ImportError for whoever imports it
ABSENT = (
    "O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_NONBLOCK O_NOCTTY O_SYNC geteuid getuid getegid getgid killpg getpgid setsid "
    "fork forkpty pread pwrite fchmod fchown chown set_blocking mkfifo mknod register_at_fork"
)
for name in ABSENT.split():
    delattr(os, name)
os.supports_dir_fd.clear()
shutil._use_fd_functions = False  # type: ignore[attr-defined]


def without_folder(call, *arguments, **named):
    assert all(named.pop(name, None) is None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")), call
    return call(*arguments, **named)


for name in ("open", "stat", "mkdir", "unlink", "rmdir", "replace"):
    setattr(os, name, functools.partial(without_folder, getattr(os, name)))

from mtool.cli.app import invoke  # noqa: E402

for line in sys.stdin:
    code = invoke(json.loads(line))
    if code:
        sys.exit(code)
