"""The user's own files of a project: written once, from `project_templates/own`, and never changed again."""

import json
import math
from collections.abc import Mapping
from typing import Any

from mtool.base.escaping import plain
from mtool.base.filetree import FileTree
from mtool.base.option_values import ProjectType
from mtool.boards import Board
from mtool.manifest import Manifest
from mtool.project.template import Template, own_texts

_EVERY = "every"  # the files of a project of any type


def own_files(
    kind: ProjectType, manifest: Manifest, board: Board, template: Template, values: Mapping[str, Any]
) -> FileTree:
    """Return the user's files of a project.

    Args:
        kind: the project's type.
        manifest: the manifest of the model, compiled for the board.
        board: the project's board.
        template: the generated folder's template.
        values: further variables of the texts: title, type, options, how to install the tools.
    """
    name, external = manifest.model, manifest.io == "external"
    inputs, outputs = ("inputs", "outputs") if external else (f"{name}_arena_inputs", f"{name}_arena_outputs")
    described = manifest.for_templates()
    for tensor in (*described["inputs"], *described["outputs"]):
        tensor["elements"] = math.prod(tensor["shape"])
    variables = {
        "dot": ".",  # in names: packaging would skip files that begin with a dot, and pip would compile .py files
        "model": name,
        "name": name,
        "manifest": described,
        "described": described,
        "board": board.model_dump(mode="json"),
        "template": template.name,
        "language": template.program,
        "model_folder": template.folders.model,
        "inputs": inputs,
        "outputs": outputs,
        "input_of": "input_" if external else f"{inputs}.",
        "output_of": "output_" if external else f"{outputs}.",
        "inference": f"{name}_run(&{inputs}, &{outputs})" if manifest.interface_api == "c" else "infer()",
        **values,
    }
    texts, env = own_texts("own")
    env.filters["toml"] = _toml
    env.filters["plain"] = lambda path: "/".join(map(plain, path.split("/")))
    files = {}
    for path in texts:
        part, _, name = path.partition("/")
        place = env.from_string(name).render(variables) if part in (_EVERY, kind) else ""
        if place and not place.endswith("/"):  # otherwise it is for another language or board
            files[place] = env.get_template(path).render(variables).encode()
    return FileTree(files)


def _toml(value: Any) -> str:
    """Return a value as TOML: JSON without Unicode escapes, as TOML lacks those for characters beyond U+FFFF."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
