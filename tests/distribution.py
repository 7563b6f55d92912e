"""Which tests run in one process: those of a file, and those of a folder that share slow fixtures."""

from xdist.scheduler import LoadFileScheduling

TOGETHER = (
    "tests/onnx_suite",  # the cases, with the results that onnx computes
    "tests/compiler/passes",  # the stages of random networks
)


class ByWhatIsShared(LoadFileScheduling):
    """Deals out files, and some folders as if they were one file."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        folder = file.rpartition("/")[0]
        return folder if folder in TOGETHER else file
