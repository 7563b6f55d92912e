"""The functions that Dask runs on workers."""

import contextvars
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from distributed import Worker, WorkerPlugin, get_worker

from mtool.compiler.tuned.record import Unit
from mtool.stages.building import build_model
from mtool.stages.compiling import CompiledModel
from mtool.tuning.farm.messages import Answer, Bundle, SliceEnd, pack
from mtool.tuning.farm.worker_boards import WorkerBoards
from mtool.tuning.measuring import Slice, WholeRun

PLUGIN = "mtool-farm"


class BoardsPlugin(WorkerPlugin):  # type: ignore[misc]
    """Holds a worker's boards and build folders for its tasks."""

    name = PLUGIN

    def __init__(self, boards: WorkerBoards, resources: Callable[[], dict[str, float]]) -> None:
        self.boards, self.resources = boards, resources
        self.folder = tempfile.TemporaryDirectory(prefix="mtool-build-")

    def setup(self, worker: Worker) -> None:
        """Declare the boards again to the scheduler when one is quarantined."""

        def declare() -> None:
            worker.loop.add_callback(lambda: worker.set_resources(**self.resources()))

        self.boards.on_change = declare

    def build_folder(self) -> Path:
        """Return this thread's build folder, which keeps the results of its last build."""
        return Path(self.folder.name) / f"{threading.get_native_id()}"

    def teardown(self, worker: Worker) -> None:
        """Remove the folders."""
        self.folder.cleanup()


def hold(bundle: Bundle) -> Bundle:
    """Return the bundle; the worker keeps it for other workers to fetch."""
    return bundle


def build(model: CompiledModel) -> Bundle:
    """Build a project.

    Raises:
        FitError: it does not fit the board.
        BuildError: the compiler is missing or fails.
    """
    # Not in the context that started the worker: its locks end with the worker.
    return contextvars.Context().run(lambda folder: pack(build_model(model, folder)), _plugin().build_folder())


def compiler_of(bundle: Bundle) -> str:
    """Return the compiler that built a bundle."""
    return bundle.toolchain


def measure(bundle: Bundle, slice_: Slice) -> SliceEnd:
    """Measure a slice on a board of this worker, and publish each answer as it comes."""
    worker = get_worker()
    is_stopped = _watch()

    def report(answer: Answer) -> None:
        if not is_stopped():
            worker.log_event(slice_.topic, [slice_.ident, answer.as_message()])

    worker.log_event(slice_.topic, [slice_.ident, None])  # it has begun
    return _plugin().boards.measure(bundle, slice_, report, is_stopped)


def run(bundle: Bundle, board: str, label: str, unit: Unit) -> tuple[WholeRun | None, SliceEnd]:
    """Run a whole model on a board of this worker."""
    return _plugin().boards.run(bundle, board, label, unit, _watch())


def _plugin() -> BoardsPlugin:
    plugin = get_worker().plugins[PLUGIN]
    assert isinstance(plugin, BoardsPlugin)
    return plugin


def _watch() -> Callable[[], bool]:
    """Return a function that returns whether the task is no longer needed: it was released, or the worker is ending."""
    worker = get_worker()
    key = worker.get_current_task()

    def is_stopped() -> bool:
        state = worker.state.tasks.get(key)
        return worker.status.name != "running" or state is None or state.state == "cancelled"

    return is_stopped
