"""Render a template with a compiled model and the runtime into a project, as a FileTree."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtool.base import resources
from mtool.base.errors import UsageError, of_os_error
from mtool.base.filetree import FileTree, from_folder, is_plain
from mtool.base.option_values import CHANNEL
from mtool.boards import ROLES, Board
from mtool.boards.protection import needed_unit
from mtool.manifest import FILE_NAME, Manifest, Project, arenas_of, bytes_in_memories, link_key
from mtool.project import chip_drivers, loaded_modules
from mtool.project.levels import hot_sources, levels_of
from mtool.project.program import Program
from mtool.project.runtime import runtime_headers, runtime_sources
from mtool.project.template import Folders, Template, load

log = logging.getLogger(__name__)
BUILD_HEADER = "mt_build.h"
_APP_HEADER = "mt_app.h"
_APPS = "apps"  # the folder of crt/ with what applications use


def render(
    files: FileTree,
    manifest: Manifest,
    board: Board,
    *,
    template: str = "",
    options: Mapping[str, str] | None = None,
    program: Program | None = None,
    trust: bool = False,
) -> tuple[FileTree, Manifest]:
    """Return the project folder of compiled models for a board, and the manifest for its `mtool.json`.

    Args:
        files: the generated files: `<model>.h`, `<model>.c`, `<model>_rpc.c`, ...
        manifest: the model's manifest, without `project`; of several models, any of them.
        board: the board to build for.
        template: a template's name, or the path of a user's own; default: the board's first.
        options: values of the template's options, as text.
        program: a user's own program, which becomes the standalone firmware.
        trust: allow a user's own template to load Python code.

    Raises:
        UsageError: the template or an option is unknown, or the template needs a fact that the board's entry lacks, or
            a feature that requires trust; or the port lacks random numbers, which a link key needs.
    """
    start = time.monotonic()
    tmpl, values = choose(board, template, options or {})
    board = board.placed_by(tmpl.name)
    if tmpl.builder == "arduino" and any(model.pools or model.constant_pools for model in manifest.models):
        raise UsageError("--pool is not supported on Arduino: its cores use a single RAM", hint="leave out --pool")
    folders = tmpl.folders
    key = link_key.of_option(options or {})
    headers = FileTree().merged(from_folder(resources.path("crt") / "include"), folders.headers)
    if key is not None:
        headers = FileTree(
            {**headers.files, **FileTree().merged(FileTree(link_key.headers(key)), folders.headers).files}
        )
    crt = FileTree().merged(from_folder(resources.path("crt") / "src"), folders.sources)
    model = FileTree().merged(files, folders.model)
    extra = _extra_files(tmpl, values)
    context = _context(manifest, board, values, model, crt)
    accepted = loaded_modules.read(values, board)
    channel = values.get(CHANNEL)
    is_random = not tmpl.folders.ports or channel == "semihosting" or "random" in board.ports
    if key is not None and accepted is None and not is_random:
        raise UsageError(
            f"--link-key needs random numbers, which the port of {board.name} with {CHANNEL}={channel} lacks",
            hint="add --modules, whose flash counts the sessions, or use --template zephyr",
        )
    if accepted is not None:
        crt = crt.merged(loaded_modules.sources(folders.sources, accepted))
        context["modules"] = asdict(accepted)
        context["sources"]["modules"] = [
            path for path in crt if path.endswith(".c") and path.startswith(loaded_modules.COMPILED)
        ]
    context["protect"] = _protection(manifest, tmpl, board, values)
    context["sources"]["extra"] = [path for path in extra if path.endswith((".c", ".S"))]
    if program is not None:
        program.check(manifest.outputs[0])
    context["program"] = None if program is None else asdict(program)
    app = _app_files(program, folders)
    context["sources"]["model"] += [path for path in app if path.endswith(".c")]
    context["firmware"] = {kind: _render_line(path, tmpl, context, trust=trust) for kind, path in tmpl.firmware.items()}
    drivers = chip_drivers.of_board(board, folders.ports)
    context["ports"] = drivers.for_templates()
    rendered = _render_folder(tmpl, context, trust=trust)
    included = runtime_headers((rendered, model, crt, extra, app), headers)
    crt = crt.merged(drivers.files)
    tree = (
        rendered.merged(model)
        .merged(crt)
        .merged(app)
        .merged(extra)
        .merged(FileTree({path: headers[path] for path in included}))
        .merged(link_key.file(key))
    )
    build_hash = FileTree({**tree.files, "options": json.dumps(values, sort_keys=True).encode()}).digest()
    project = Project(
        template=tmpl.name,
        builder=tmpl.builder,
        transport=tmpl.transport,
        board=in_project(board),
        build_hash=build_hash,
        options={name: _text(value) for name, value in values.items()},
        firmware=context["firmware"],
        model=folders.model,
        levels=context["sources"]["levels"],
        program="" if program is None else program.folder,
    )
    complete_manifest = manifest.model_copy(update={"project": project})
    header = {f"{folders.build_header}/{BUILD_HEADER}": build_header(build_hash)}
    complete = FileTree({**tree.files, **header, FILE_NAME: complete_manifest.to_json()})
    log.info("project: %.2f s, %s on %s, %d files", time.monotonic() - start, tmpl.name, board.name, len([*complete]))
    return complete, complete_manifest


def choose(board: Board, template: str, options: Mapping[str, str]) -> tuple[Template, Mapping[str, str | int | bool]]:
    """Return the template of a project on a board, and the value of each of its options.

    Args:
        board: the board to build for.
        template: a template's name, or the path of a user's own; empty: the board's first.
        options: values of the template's options, as text.

    Raises:
        UsageError: the template is not one of the board's, or does not support modules, or an option is unknown or has
            an invalid value.
    """
    if not (template or board.templates):
        raise UsageError(f"{board.name} has no template", hint="give your own: --template PATH")
    tmpl = load(template or next(iter(board.templates)))
    if tmpl.is_own and tmpl.name not in board.templates:
        what = f"{board.name} has no template {tmpl.name}"
        hint = "mtool's other templates do not support this board; give your own template by its folder"
        raise UsageError(what, details=[f"it has: {', '.join(board.templates) or 'none'}"], hint=hint)
    if loaded_modules.MODULES in options and loaded_modules.MODULES not in tmpl.options:
        what = f"the template {tmpl.name} does not support modules (--modules)"
        raise UsageError(what, hint="leave out --modules, or use --template baremetal if the board has it")
    values = tmpl.read_options(options, board)
    if values.get(CHANNEL) == "uart" and tmpl.folders.ports and "uart" not in board.ports:
        what = f"{board.name} has no UART driver, which the option {CHANNEL}=uart needs"
        raise UsageError(what, hint="add it to the board's entry, below ports (docs/add-a-board.md)")
    transport = tmpl.transports.get(str(values.get(CHANNEL)), tmpl.transport)
    return tmpl.model_copy(update={"transport": transport}), values


def check_protection(template: Template, board: Board) -> None:
    """Check that a template and a board's core support memory protection.

    Raises:
        UsageError: one does not.
    """
    unit = needed_unit(board.cpu, board.name)
    if not template.supports_protection(unit.label):
        others = [template for template in board.templates if load(template).supports_protection(unit.label)]
        what = f"the template {template.name} does not support memory protection (--protect) on {board.name}"
        hint = f"leave out --protect{f', or use --template {others[0]}' if others else ''}"
        raise UsageError(what, details=[f"its core: {board.cpu}, with {unit.name}"], hint=hint)


def _protection(
    manifest: Manifest, template: Template, board: Board, options: Mapping[str, str | int | bool]
) -> dict[str, Any] | None:
    """Return the memory protection's values for a template; None: there is none."""
    if manifest.protection is None:
        return None
    check_protection(template, board)
    unit = needed_unit(board.cpu, board.name)
    protections = [model.protection for model in manifest.models if model.protection is not None]
    stack_bytes = int(options.get("stack_bytes", 0))
    constants = [area for protection in protections for area in protection.areas if area.name == "constants"]
    return {
        "unit": unit.label,
        "stack_granule": unit.stack_granule(stack_bytes),
        "stack_window": unit.window(stack_bytes),
        "constants": max(constants, key=lambda area: area.alignment).model_dump(),
    }


def _app_files(program: Program | None, folders: Folders) -> FileTree:
    """Return the files that an application's program includes: those of crt/apps, and its settings."""
    if program is None or not program.settings:
        return FileTree()
    files = from_folder(resources.path("crt") / _APPS)
    placed = {f"{folders.sources if path.endswith('.c') else folders.headers}/{path}": files[path] for path in files}
    return FileTree({**placed, f"{folders.build_header}/{_APP_HEADER}": program.settings.encode()})


def _extra_files(template: Template, values: Mapping[str, str | int | bool]) -> FileTree:
    """Return the files of the folders that a template's options name, below `extra/`.

    Raises:
        UsageError: one can't be read.
    """
    folders = [str(values[name]) for name, option in template.options.items() if option.type == "folder"]
    tree = FileTree()
    for folder in filter(None, folders):
        try:
            tree = tree.merged(from_folder(Path(folder)), "extra")
        except OSError as failed:
            raise of_os_error(failed, f"the extra files in {folder} can't be read") from None
    return tree


def _context(
    manifest: Manifest, board: Board, options: Mapping[str, str | int | bool], model: FileTree, crt: FileTree
) -> dict[str, Any]:
    """Return the variables of a template, which it uses as `cookiecutter`; docs/add-a-template.md lists them."""
    sources = [path for path in model if path.endswith((".c", ".S"))]
    needed = runtime_sources(model, crt)
    models = [model.for_templates() for model in manifest.models]
    in_arena = {model.symbols.get("arena", "") for model in manifest.models}
    memories = {name for one in manifest.models for name in one.device_buffers} | {*bytes_in_memories(manifest.models)}
    return {
        "folder": "project",
        "model": manifest.firmware_name,
        "manifest": models[0],
        "models": models,
        "arenas": {name: count for name, count in arenas_of(manifest.models).items() if name in in_arena},
        "buffer_memories": sorted(memories),
        "constant_memories": sorted(
            {pool.name for model in manifest.models for pool in model.constant_pools if not pool.section}
        ),
        "board": board.model_dump(mode="json"),
        "modules": None,
        "regions": {role: name for role in ROLES if (name := board.region_for(role)) is not None},
        "options": dict(options),
        "warnings_are_errors": resources.warnings_are_errors(),
        "sources": {
            "model": [path for path in sources if not path.endswith("_rpc.c")] + needed,
            "rpc": [path for path in sources if path.endswith("_rpc.c")],
            "levels": {
                path: option for model in manifest.models for path, option in levels_of(sources, model.model).items()
            },
            "hot": hot_sources(sources, [model.model for model in manifest.models]),
            "binaries": [path for path in model if path.endswith(".bin")],
            "crt": [path for path in crt if path.endswith(".c") and path not in needed],
        },
    }


def _render_folder(template: Template, context: Mapping[str, Any], *, trust: bool) -> FileTree:
    """Render every file name and every text of a template's folder.

    This follows cookiecutter's settings and rules, but in memory: its generate_files changes the working folder. A
    template may include files from its `templates` folder, as with cookiecutter, and from mtool's `project_templates`
    ("shared/standalone.c").

    Raises:
        UsageError: a text can't be rendered, or needs a feature that requires trust.
    """
    from cookiecutter.find import find_template  # loaded only for a project, as it imports a lot
    from cookiecutter.generate import is_copy_only_path
    from jinja2 import FileSystemLoader

    from mtool.project import sandbox

    variables = {"cookiecutter": {**sandbox.defaults(template.folder), **context}}
    env = sandbox.environment(variables, template.folder, trust=trust)
    if not (trust or template.is_own):
        sandbox.check_links(template.folder)
    with sandbox.reporting(template.name, template.folder, template.folder.name):
        root = Path(find_template(template.folder, env))
        env.loader = FileSystemLoader([root, template.folder / "templates", resources.path("project_templates")])
    files = {}
    for path, data in from_folder(root).files.items():
        with sandbox.reporting(template.name, template.folder, path):
            name = env.from_string(path).render(variables)
            if not Path(name).name or name.endswith("/"):
                continue  # a file that the board does not need: its name is a condition
            _check_place(name, template)
            copied = is_copy_only_path(path, variables)
            files[name] = data if copied else env.get_template(path).render(variables).encode()
    return FileTree(files)


def _check_place(path: str, template: Template) -> None:
    """Refuse a file outside the project, in its build folder, or in git's own folder."""
    parts = path.split("/")
    if not is_plain(path) or parts[0] == "build" or ".git" in (part.lower() for part in parts):
        what = f"the template {template.name} has a file outside the project's own files"
        raise UsageError(what, details=[f"{path}"], hint="use a path inside the project, not in build/ or .git/")


def _render_line(text: str, template: Template, context: Mapping[str, Any], *, trust: bool) -> str:
    """Render a line of template.yaml that may depend on the board: the file of a firmware."""
    from mtool.project import sandbox

    variables = {"cookiecutter": context}
    with sandbox.reporting(template.name, template.folder, text):
        path = str(sandbox.environment(variables, template.folder, trust=trust).from_string(text).render(variables))
    if not is_plain(path) or not path.startswith("build/"):
        raise UsageError(f"the template {template.name} has a firmware outside build/", details=[path])
    return path


def in_project(board: Board) -> Board:
    """Return a board as a project describes it: without facts for estimates only, its flash's reads and its power."""
    memories = {name: mem.model_copy(update={"reads": None, "pool": None}) for name, mem in board.memories.items()}
    return board.model_copy(update={"memories": memories, "draws": None})


def build_header(build_hash: str) -> bytes:
    """Return the header with the build's hash."""
    return (
        "/* Generated by mtool: over every file of this project. The host compares it with its own. */\n"
        "#ifndef MT_BUILD_H\n#define MT_BUILD_H\n\n"
        f'#define MT_BUILD_HASH "{build_hash}"\n\n#endif\n'
    ).encode()


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
