"""The files for backends' external compilers, without running them."""

from dataclasses import dataclass
from pathlib import Path

from mtool import boards
from mtool.base import filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.compiler.backends.interface import BackendError, Region
from mtool.compiler.compilation import division
from mtool.manifest import Claim
from mtool.stages.compiling import default_folder
from mtool.stages.options import Options


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """A model's regions as files.

    folder: the folder that they were written to.
    regions: the regions, each with the name of its backend.
    claims: what would compute each operator of the model.
    files: the files, by name.
    """

    folder: Path
    regions: tuple[tuple[str, Region], ...]
    claims: tuple[Claim, ...]
    files: FileTree


def partition(
    path: str | Path, *, board: str = "host", options: Options | None = None, folder: Path | None = None
) -> PartitionResult:
    """Write the files that the external compilers of a model's backends read; no compiler is run.

    Args:
        path: the model.
        board: the target board.
        options: the backends, and how the model is read.
        folder: the folder to write to; default: build/<model>-<board>-regions. One with other contents is refused.

    Raises:
        UsageError: no backend is given, or one writes no files; the model is missing; the folder can't be written.
        ModelError: the model is malformed, or something in it can't be compiled.
        BoardError: the board is unknown.
        BackendError: a backend failed.
    """
    options = options or Options()
    if not options.backends:
        raise UsageError("no backend is given", hint="give one, for instance: --backend json")
    target, source = boards.get(board), Path(path)
    divided, claims = division(source, target, options)
    contents: dict[str, bytes] = {}
    for backend, region in divided.regions:
        try:
            files = backend.files(region)
            tree = FileTree(files)
        except (BackendError, UsageError):
            raise
        except Exception as failed:
            raise BackendError(f"the backend {backend.name} failed: {type(failed).__name__}: {failed}") from failed
        if not files:
            raise UsageError(f"the backend {backend.name} writes no files for a compiler", hint="the backend json does")
        contents.update(tree.files)
    if folder is None:
        default = default_folder(source.stem, target)
        folder = default.with_name(f"{default.name}-regions")
    tree = FileTree(contents)
    filetree.write(tree, folder, edits=options.edits)
    regions = tuple((backend.name, region) for backend, region in divided.regions)
    return PartitionResult(folder, regions, claims, tree)
