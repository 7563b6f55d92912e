"""A compiled model as a package that an ecosystem takes as it is: CMake, Zephyr, Arduino, PlatformIO, microTVM."""

import json
from typing import Any, get_args

import jinja2

from mtool import resources
from mtool.errors import UsageError
from mtool.escaping import file_name
from mtool.filetree import FileTree, from_folder
from mtool.identifiers import target_name
from mtool.manifest import FILE_NAME, Manifest
from mtool.option_values import Format
from mtool.project.levels import levels_of

FORMATS: tuple[Format, ...] = get_args(Format)

_SHARED = "project_templates"
_FOLDER = f"{_SHARED}/packages"

# Where the sources and the headers go; what stands beside them is in `_FOLDER`.
_PLACES: dict[str, tuple[str, str]] = {
    "cmake": ("src", "include"),
    "zephyr-module": ("src", "include"),
    "arduino-lib": ("src", "src"),
    "platformio-lib": ("src", "src"),
    "mlf": ("codegen/host/src", "codegen/host/include"),
}
NO_BINARIES = ("arduino-lib", "platformio-lib")
_MLF_VERSION = 7
_MLF_CPU = 1  # kDLCPU of DLPack


def package(sources: FileTree, manifest: Manifest, form: Format, *, model: bytes = b"") -> FileTree:
    """Return the files of a package; the same bytes for the same model.

    Args:
        sources: the model's C and headers, with those of the runtime that it includes, in one folder.
        manifest: what the compile half says of it.
        form: "c" is the sources as they are.
        model: the model's own file, which the Model Library Format holds too.

    Raises:
        UsageError: large constants lie in a file of bytes, which the package can't hold.
    """
    if form == "c":
        return sources
    source_place, header_place = _PLACES[form]
    names = [name for name in sources if name not in (FILE_NAME, manifest.graph)]
    binaries = [name for name in names if name.endswith(".bin")]
    if binaries and form in NO_BINARIES:
        raise UsageError(
            f"a {form} has sources alone, and {binaries[0]} is none", hint="compile the model with --weights text"
        )
    files = {f"{_place(name, source_place, header_place)}/{name}": sources[name] for name in names}
    if form == "mlf":
        files["metadata.json"] = (json.dumps(_mlf_metadata(manifest), indent=2) + "\n").encode()
        files[f"src/{file_name(manifest.model_file)}"] = model
        if manifest.graph:
            files[f"executor-config/graph/{manifest.model}.graph"] = sources[manifest.graph]
        return FileTree(files)
    values = {
        "model": manifest.model,
        "target": target_name(manifest.model),
        "manifest": manifest.for_templates(),
        "binaries": binaries,
        "levels": levels_of((name for name in names if name.endswith(".c")), manifest.model),
        "sources": [name for name in names if name.endswith(".c")],
        "c_type": _c_type,
    }
    return FileTree({**files, **_rendered(form, values), FILE_NAME: manifest.to_json()})


def _place(name: str, source_place: str, header_place: str) -> str:
    """Return the folder of a file, by its path in the model's.

    A folder of a backend's stays whole beside the model's sources, which alone include its headers. A .bin lies beside
    the headers: the assembler looks for it where the compiler looks for them.
    """
    return source_place if name.endswith(".c") or ("/" in name and name.endswith(".h")) else header_place


def _rendered(form: str, values: dict[str, Any]) -> dict[str, bytes]:
    root = resources.path(_FOLDER) / form
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([root, resources.path(_SHARED)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return {
        env.from_string(path).render(values): env.get_template(path).render(values).encode()
        for path in from_folder(root)
    }


def _c_type(dtype: str) -> str:
    return {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(dtype, f"{dtype}_t")


def _mlf_metadata(manifest: Manifest) -> dict[str, Any]:
    """Return metadata.json as TVM 0.14 writes it; the time is a constant, so that the package never changes."""

    def described(role: str) -> dict[str, Any]:
        tensors = manifest.inputs if role == "inputs" else manifest.outputs
        return {tensor.name: {"dtype": tensor.dtype, "size": tensor.bytes} for tensor in tensors}

    main = {
        "device": _MLF_CPU,
        "workspace_size_bytes": manifest.arena_bytes,
        "constants_size_bytes": manifest.constant_bytes,
        "io_size_bytes": sum(tensor.bytes for tensor in (*manifest.inputs, *manifest.outputs)),
        "inputs": described("inputs"),
        "outputs": described("outputs"),
    }
    operators = [
        {"function_name": operator.name, "workspace": [{"device": _MLF_CPU, "workspace_size_bytes": 0}]}
        for operator in manifest.operators
    ]
    module = {
        "model_name": manifest.model,
        "export_datetime": "1970-01-01 00:00:00Z",
        "memory": {"functions": {"main": [main], "operator_functions": operators}},
        "target": [{"kind": "c", "tag": "", "keys": ["cpu"]}],
        "executors": ["graph" if manifest.executor == "graph" else "aot"],
        "style": "full-model",
        "external_dependencies": [],
    }
    return {"modules": {manifest.model: module}, "version": _MLF_VERSION}
