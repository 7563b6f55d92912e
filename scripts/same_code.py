#!/usr/bin/env python3
"""Record the generated C of many models and compare it with an earlier record, to check that a change keeps it.

    scripts/same_code.py record FOLDER MODELS...              before the change
    scripts/same_code.py compare FOLDER MODELS...             after it, with the same models; exit code 1 if code
    differs scripts/same_code.py compare FOLDER MODELS... --part 3/20 every 20th case, beginning with the third

MODELS are model files or folders of them. Each is compiled for the boards below with two calling conventions, and some
also as bytecode, as two models in one firmware, and as packages. FOLDER keeps one compressed file per distinct text and
`cases.jsonl`, which maps each case to its files. Where the text of a C file differs, both versions are compiled,
without debug information, and their object code is compared. Symbol names may differ, so two texts are equal if the
instructions and data of their sections are.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ["MTOOL_CACHE"] = "off"
os.environ["SOURCE_DATE_EPOCH"] = "0"

import mtool  # noqa: E402
from tests.fuzzing import forks  # noqa: E402

HEADERS = ROOT / "crt" / "include"
SUFFIXES = (".onnx", ".tflite")
BOARDS = (
    "host", "mps2_an386", "mps3_an547", "mps2_an385", "mps2_an500", "mps2_an383", "mps2_an505", "qemu_riscv32",
    "qemu_riscv32_v", "sim_m4", "arduino_mega2560",
)  # fmt: skip
FEW_BOARDS = BOARDS[:4]
"""What models of more than `LARGE_BYTES` are compiled for: the others differ from them in few kernels."""
LARGE_BYTES = 400_000
FORMS = ("cmake", "arduino")
MODULES = {"bytecode": ("--bytecode",), "native": ("--board", "mps2_an386")}
LIMITS = forks.Limits(cpu_s=240, memory_bytes=6 << 30)
RV32 = ["riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"]
COMPILERS: Mapping[str, list[str]] = {
    "mps2_an386": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
    "mps2_an500": ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"],
    "mps2_an505": ["arm-none-eabi-gcc", "-mcpu=cortex-m33", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"],
    "mps3_an547": ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mfloat-abi=hard"],
    "mps2_an385": ["arm-none-eabi-gcc", "-mcpu=cortex-m3"],
    "mps2_an383": ["arm-none-eabi-gcc", "-mcpu=cortex-m0plus"],
    "sim_m4": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
    "qemu_riscv32": RV32,
    "qemu_riscv32_v": [*RV32, "-DMT_RVV"],
    "arduino_mega2560": ["avr-gcc", "-mmcu=atmega2560"],
    "host": ["gcc"],
}  # fmt: skip
_VERSIONS = re.compile(rb'("(?:build_hash|version|mtool)": ?)"[^"]*"')


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One compilation: its files are recorded under `name`."""

    name: str
    board: str
    models: tuple[Path, ...]
    interface: str = "c"
    form: str = ""

    def files(self) -> dict[str, bytes]:
        """Return what mtool writes, by file name; an error is a file of its own."""
        try:
            return {name: _VERSIONS.sub(rb'\1""', data) for name, data in self._files().items()}
        except mtool.MtoolError as error:
            return {"error": f"{type(error).__name__}: {error}".encode()}

    def _files(self) -> dict[str, bytes]:
        if self.form in MODULES:
            return self._module()
        options = mtool.Options(conventions=mtool.conventions(self.interface))
        if len(self.models) > 1:
            model, *_ = mtool.compile_models(self.models, board=self.board, options=options)
        else:
            model = mtool.compile(self.models[0], board=self.board, options=options)
        tree = model.package(self.form) if self.form else model.files
        files = {name: data.encode() if isinstance(data, str) else bytes(data) for name, data in tree.files.items()}
        return files if self.form else {**files, "mtool.json": model.manifest.to_json()}

    def _module(self) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.mtm")
            argv = [sys.executable, "-m", "mtool", "module", str(self.models[0].resolve()), *MODULES[self.form]]
            done = subprocess.run([*argv, "-o", str(path)], cwd=ROOT, capture_output=True, check=False)
            return {"module": path.read_bytes()} if path.exists() else {"error": done.stderr}


def models_of(arguments: list[Path]) -> list[Path]:
    """Return the model files that the arguments name, each content once."""
    found = [
        path
        for argument in arguments
        for path in ([argument] if argument.is_file() else sorted(argument.rglob("*")))
        if path.suffix in SUFFIXES
    ]
    return [*{hashlib.sha256(path.read_bytes()).hexdigest(): path for path in reversed(found)}.values()][::-1]


def cases(models: list[Path]) -> Iterator[Case]:
    """Yield every case, in an order that spreads boards and models over parts."""
    small = [path for path in models if path.stat().st_size <= LARGE_BYTES]
    for path in models:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for board in BOARDS if path in small else FEW_BOARDS:
            for interface in ("c", "packed"):
                yield Case(f"{digest} {path.name} {board} {interface}", board, (path,), interface)
        if path in small:
            for form in (*FORMS, *MODULES):
                yield Case(f"{digest} {path.name} {form}", "mps2_an386", (path,), form=form)
    for one, other in itertools.pairwise(small):
        yield Case(f"{one.name} + {other.name} together", "mps2_an386", (one, other))


def compiled(case: Case) -> dict[str, bytes]:
    """Return the files of a case, compiled in a process of its own."""
    ended = forks.call(case.files, LIMITS)
    return ended.value if ended.ending == "done" else {"error": ended.ending.encode()}


class Store:
    """Texts by their hash, and the files of each case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "cases.jsonl"

    def read(self) -> dict[str, dict[str, str]]:
        """Return the hashes of each case's files, by file name."""
        lines = self.index.read_text().splitlines() if self.index.exists() else []
        return {record["case"]: record["files"] for record in map(json.loads, lines)}

    def add(self, case: Case, files: Mapping[str, bytes]) -> None:
        """Record a case."""
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        for name, digest in hashes.items():
            path = self.folder / digest[:2] / digest
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(zlib.compress(files[name]))
        with self.index.open("a") as lines:
            lines.write(json.dumps({"case": case.name, "files": hashes}) + "\n")

    def text(self, digest: str) -> bytes:
        """Return a text by its hash."""
        return zlib.decompress((self.folder / digest[:2] / digest).read_bytes())


def object_code(board: str, name: str, files: Mapping[str, bytes], headers: Path) -> str:
    """Return the hash of the instructions and data of one C file, compiled beside the others; or why it fails."""
    with tempfile.TemporaryDirectory() as folder:
        for other, data in files.items():
            path = Path(folder, other)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        flags = ["-std=gnu11", "-O2", "-w", "-g0", f"-ffile-prefix-map={folder}=.", "-I", folder, "-I", str(headers)]
        argv = [*COMPILERS[board], *flags, "-c", name, "-o", "a.o"]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return "does not compile"  # the old one may not either: a model that is too large for an AVR
        prefix = COMPILERS[board][0].removesuffix("gcc")
        dump = subprocess.run([f"{prefix}objdump", "-s", "a.o"], cwd=folder, capture_output=True, check=True).stdout
        kept = [part for part in dump.split(b"\nContents of section ") if not part.startswith((b".comment", b".str"))]
        return hashlib.sha256(b"".join(kept)).hexdigest()


def differences(
    case: Case, old: Mapping[str, str], store: Store, files: Mapping[str, bytes], old_headers: Path
) -> dict[str, str]:
    """Return how each file that differs does: "text" where its object code is the same, else "code"."""
    found: dict[str, str] = {}
    new = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    before = {name: store.text(digest) for name, digest in old.items()}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        if name not in old or name not in new:
            found[name] = "is new" if name in new else "is missing"
        elif not name.endswith(".c") or case.board not in COMPILERS:
            found[name] = "text" if name.endswith((".h", ".md", ".json")) else "code"
        else:
            was = object_code(case.board, name, before, old_headers)
            found[name] = "text" if object_code(case.board, name, files, HEADERS) == was else "code"
    return found


def main() -> int:
    """Record, or compare; 1 if object code differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--part", default="1/1", help="M/N: every Nth case, beginning with the Mth")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--headers", type=Path, default=HEADERS, help="crt/include as it was recorded with")
    given = parser.parse_args()
    mtool.compile(ROOT / "examples" / "digits" / "digits_int8.onnx", board="host")  # every process has it imported
    first, step = map(int, given.part.split("/"))
    store = Store(given.folder)
    known = store.read()
    chosen = [*itertools.islice(cases(models_of(given.models)), first - 1, None, step)]
    if given.verb == "record":
        chosen = [case for case in chosen if case.name not in known]
    else:
        chosen = [case for case in chosen if case.name in known]
    counts = {"same": 0, "text": 0, "code": 0}
    take: Callable[[Case], dict[str, bytes]] = compiled
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for number, (case, files) in enumerate(zip(chosen, pool.map(take, chosen), strict=True), 1):
            if given.verb == "record":
                store.add(case, files)
            else:
                found = differences(case, known[case.name], store, files, given.headers)
                kind = "code" if set(found.values()) - {"text"} else "text" if found else "same"
                counts[kind] += 1
                if found:
                    print(f"{case.name}: {found}", flush=True)
            if number % 50 == 0:
                print(f"{number} of {len(chosen)}", file=sys.stderr, flush=True)
    print(f"{len(chosen)} cases" + (f": {counts}" if given.verb == "compare" else " recorded"))
    return 1 if counts["code"] else 0


if __name__ == "__main__":
    sys.exit(main())
