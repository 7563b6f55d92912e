"""The Model Library Format, version 7, as written and read by TVM 0.14: an archive with one or more modules.

See TVM's model_library_format.py, tvmc's TVMCPackage and the servers of its Project API. The weights are in the C, so
that the dictionary of parameters is empty; the runtime is mtool's.
"""

import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mtool.base import resources
from mtool.base.escaping import file_name
from mtool.base.filetree import FileTree, from_folder
from mtool.base.frozen import frozen
from mtool.manifest import FILE_NAME, Manifest

_VERSION = 7
_CPU = 1  # kDLCPU of DLPack
_SOURCES, _HEADERS, _RUNTIME = "codegen/host/src", "codegen/host/include", "runtime"
_NO_PARAMETERS = struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 0, 0)  # kTVMNDArrayListMagic, reserved, names, arrays


@frozen
class Module:
    """A model in an archive.

    Attributes:
        sources: its C, with the runtime headers that it includes.
        manifest: its manifest.
        model: the bytes of the model's file.
        cpu: GCC's name of the core, or "host".
        seconds: the time of the model's file, since 1970.
    """

    sources: FileTree
    manifest: Manifest
    model: bytes = b""
    cpu: str = "host"
    seconds: int = 0


def library(modules: Sequence[Module]) -> FileTree:
    """Return the files of an archive with these modules, whose names are distinct."""
    files: dict[str, bytes] = {}
    crt = resources.path("crt")
    for part in ("include", "src"):
        tree = from_folder(crt / part)
        files |= {f"{_RUNTIME}/{part}/{name}": tree[name] for name in tree}
    described = {}
    for module in modules:
        manifest = module.manifest
        for name in module.sources:
            if name not in (FILE_NAME, manifest.graph):
                files[f"{placed(name, _SOURCES, _HEADERS)}/{name}"] = module.sources[name]
        files[f"src/{file_name(manifest.model_file)}"] = module.model
        files[f"parameters/{manifest.model}.params"] = _NO_PARAMETERS
        if manifest.graph:
            files[f"executor-config/graph/{manifest.model}.graph"] = module.sources[manifest.graph]
        described[manifest.model] = _module(module)
    metadata = {"modules": described, "version": _VERSION}
    return FileTree({**files, "metadata.json": (json.dumps(metadata, indent=2, sort_keys=True) + "\n").encode()})


def _module(module: Module) -> dict[str, Any]:
    manifest = module.manifest
    memory: dict[str, Any] = {"functions": {"main": [_main(manifest)], "operator_functions": _functions(manifest)}}
    if manifest.graph:
        memory["sids"] = _storage(json.loads(module.sources.text(manifest.graph)))
    return {
        "model_name": manifest.model,
        "export_datetime": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(module.seconds)),
        "memory": memory,
        "target": ["c -keys=cpu" + ("" if module.cpu == "host" else f" -mcpu={module.cpu}")],
        "executors": ["graph" if manifest.graph else "aot"],
        "style": "full-model",
        "external_dependencies": [
            {
                "short_name": "mtool_crt",
                "url": f"./{_RUNTIME}",
                "url_type": "mlf_path",
                "version_spec": manifest.mtool_version,
            }
        ],
    }


def _main(manifest: Manifest) -> dict[str, Any]:
    def described(role: str) -> dict[str, Any]:
        tensors = manifest.inputs if role == "inputs" else manifest.outputs
        return {tensor.name: {"dtype": tensor.dtype, "size": tensor.bytes} for tensor in tensors}

    return {
        "device": _CPU,
        "workspace_size_bytes": manifest.arena_bytes,
        "constants_size_bytes": manifest.constant_bytes,
        "io_size_bytes": sum(tensor.bytes for tensor in (*manifest.inputs, *manifest.outputs)),
        "inputs": described("inputs"),
        "outputs": described("outputs"),
    }


def _functions(manifest: Manifest) -> list[dict[str, Any]]:
    """Return each C function once, with the most scratch memory that it uses in the arena."""
    scratch: dict[str, int] = {}
    for operator in manifest.operators:
        scratch[operator.function] = max(scratch.get(operator.function, 0), operator.scratch_bytes)
    return [
        {"function_name": name, "workspace": [{"device": _CPU, "workspace_size_bytes": size}]}
        for name, size in scratch.items()
    ]


def _storage(graph: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the storage of a graph, each id once: its bytes, and the input bound to it."""
    storages: dict[int, dict[str, Any]] = {}
    attributes = graph["attrs"]
    inputs = {graph["node_row_ptr"][node]: graph["nodes"][node]["name"] for node in graph["arg_nodes"]}
    for entry, storage in enumerate(attributes["storage_id"][1]):
        size = int("".join(filter(str.isdigit, attributes["dltype"][1][entry])) or 8)
        for dimension in attributes["shape"][1][entry]:
            size *= dimension
        row = storages.setdefault(storage, {"storage_id": storage, "size_bytes": 0})
        row["size_bytes"] = max(row["size_bytes"], (size + 7) // 8)
        if entry in inputs:
            row.setdefault("input_binding", inputs[entry])
    return [*storages.values()]


def placed(name: str, source_place: str, header_place: str, of_cores: tuple[str, ...] = ()) -> str:
    """Return the folder of a file, by its path in the model's folder.

    A backend's folder stays whole beside the model's sources, the only ones that include its headers; the headers of a
    core, in one of `of_cores`, are beside those that include them. A .bin is beside the headers: the assembler searches
    the compiler's include paths.
    """
    of_backend = "/" in name and name.endswith(".h") and not name.startswith(of_cores or ("/",))
    return source_place if name.endswith(".c") or of_backend else header_place
