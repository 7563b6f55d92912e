"""Only a few modules of mtool write or remove files: those that know whose files they are."""

import ast
from pathlib import Path

from mtool.base import resources

# Attributes that change a file system, whatever they are called on.
CHANGES = {
    "write_text", "write_bytes", "mkdir", "makedirs", "unlink", "remove", "rmdir", "rmtree", "rename", "replace",
    "symlink_to", "hardlink_to", "touch", "chmod", "copy", "copy2", "copyfile", "copytree", "move",
    "mkstemp", "mkdtemp",
}  # fmt: skip
# Of other things than files: strings, dataclasses, lists, sets.
OTHERS = {"replace", "remove", "copy", "rename", "move"}

ALLOWED = {
    "base/files.py": {"mkdir", "unlink", "chmod", "write_bytes", "replace"},
    "base/cache.py": {"mkdir", "unlink"},  # its own entries, and folders that are its owner's alone
    "base/locks.py": {"mkdir", "unlink", "write_text"},  # locks, and who holds them
    "base/filetree/open_folder.py": {"mkdir", "unlink", "rmdir", "replace"},
    "base/filetree/writing.py": {"mkdir", "rmdir", "move", "remove"},  # of an OpenFolder; and the folder itself
    "compiler/backends/json/external_compiler.py": {"write_bytes"},  # of a region, in a temporary folder
    "compiler/backends/ethos_u/__init__.py": {"write_bytes"},
    "device/build/build.py": {"unlink", "chmod"},  # the stamp of a build; a firmware of the host is a program
    "device/build/cmake.py": {"unlink", "rmtree"},  # CMake's cache
    "device/build/host.py": {"mkdir"},
    "device/build/module_image.py": {"write_text"},  # sources of a linked image, in a temporary folder
    "device/build/west.py": {"unlink"},  # what a build that failed has left below build/
    "manifest/modules/keys.py": {"mkdir", "unlink", "open to write"},  # new files alone, with modes of their own
    "device/transport/through.py": {"unlink"},  # an emulator's flash file that was left empty
    "device/transport/emulator.py": {"mkdir"},  # where small programs of its own are compiled to, in the cache folder
    "tuning/farm/messages.py": {"mkdir", "chmod"},  # of a folder that a worker made for one firmware
    "verification/layers.py": {"write_bytes"},  # a model, in a temporary folder
    "commands/debugging.py": {"write_bytes"},  # what a replay sends, in a temporary folder
    "boards/zephyr/describing.py": {"write_text", "mkdir"},  # an empty application, in a temporary folder
}


def changes(path: Path) -> set[str]:
    found: set[str] = set()
    text = path.read_text()
    if not any(f".{name}(" in text for name in CHANGES) and "open(" not in text:
        return found  # most files: not parsed
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            on = ast.unparse(node.func.value)
            if node.func.attr not in OTHERS or on in ("os", "shutil", "temporary", "path", "target", "opened"):
                found.add(node.func.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "open":
            modes = [each.value for each in node.args if isinstance(each, ast.Constant)]
            found |= {"open to write" for mode in modes if mode in ("w", "wb", "a", "ab", "x", "xb", "r+b", "w+b")}
    return found


def test_files_are_written_in_one_place() -> None:
    root = resources.path("mtool")
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        more = {"open to write"} if name in ("base/files.py", "cli/__init__.py") else set()
        assert changes(path) <= ALLOWED.get(name, set()) | more, name


def test_no_array_is_loaded_with_pickle() -> None:
    for path in sorted(resources.path("mtool").rglob("*.py")):
        text = path.read_text()
        if ".load(" not in text and "pickle" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given.get("allow_pickle") == "False", f"{path}:{node.lineno}"
            assert not isinstance(node, ast.Import) or "pickle" not in [alias.name for alias in node.names], path
