"""The hash of a model's file. ONNX is loaded only for external data, so that cached results are found quickly."""

import hashlib
from pathlib import Path

from mtool.compiler.frontend.model_file import check_is_file, is_flatbuffer, names_locations


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a model's file and of the external data that it uses, as 64 hex digits.

    Raises:
        UsageError: the file is missing.
        ModelError: its external data is malformed or outside its folder.
    """
    check_is_file(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    if is_flatbuffer(path) or not names_locations(path):
        return digest.hexdigest()
    from mtool.compiler.frontend import external, reading

    folder, tensors = external.Folder(path), {}
    for tensor in reading.external_tensors(reading.parsed(path, path.read_bytes()), folder):
        tensors[folder.extent(tensor)] = tensor
    for extent in sorted(tensors):
        digest.update(f"\n{extent.location}\n{extent.offset}\n{extent.length}\n".encode("utf-8", "surrogatepass"))
        for block in folder.blocks(tensors[extent], extent):
            digest.update(block)
    return digest.hexdigest()
