"""A compiled model as a package for an ecosystem: CMake, Zephyr, Arduino, ESP-IDF, Keil, microTVM."""

import io
import re
import tarfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import PurePosixPath
from typing import Any, Self, get_args

from mtool import boards
from mtool.base import resources, spelling
from mtool.base.errors import UsageError
from mtool.base.filetree import IGNORED, FileTree
from mtool.base.frozen import frozen
from mtool.base.identifiers import target_name
from mtool.base.option_values import Format
from mtool.boards import Board
from mtool.manifest import (
    FILE_NAME,
    Manifest,
    Project,
    bytes_in_memories,
    link_key,
    total_arena_bytes,
    total_constant_bytes,
)
from mtool.project import mlf, portable
from mtool.project.levels import levels_of
from mtool.project.mlf import Module, placed
from mtool.project.portable import Core
from mtool.project.render import BUILD_HEADER, build_header, in_project
from mtool.project.template import own_texts
from mtool.version import __version__

# A package's own data besides the model: its author, version and page.


_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*)?")
_VENDOR = re.compile(r"[A-Za-z0-9_-]{2,}")
_TEXT = re.compile(r"[^\x00-\x1f\x7f\"\\]{3,120}")


@frozen
class About:
    """The package data that registries require; the defaults are valid placeholders.

    author: a name, optionally with an address: "Ada Lovelace <ada@example.org>".
    url: the package's page.
    version: three numbers, as in semver.org.
    vendor: the vendor of a CMSIS-Pack: letters, digits, - and _.
    """

    author: str = "mtool"
    url: str = "https://example.org/"
    version: str = __version__
    vendor: str = "mtool"

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Read KEY=VALUE from a command line.

        Raises:
            UsageError: a key is unknown, or registries do not accept a value.
        """
        forms = {field.name: _FORMS[field.name] for field in fields(cls)}
        values: dict[str, str] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals or key not in forms:
                meant = spelling.did_you_mean(key, forms, otherwise=f"there are: {', '.join(forms)}")
                raise UsageError(f"--about {text}: expected KEY=VALUE with a known key", hint=meant)
            form, description = forms[key]
            if not form.fullmatch(value):
                raise UsageError(f"--about {key} can't be {value!r}", details=[f"expected  {description}"])
            values[key] = value
        return cls(**values)


_FORMS = {
    "author": (_TEXT, 'a name of 3 to 120 characters, without " and \\'),
    "url": (_URL, "an address that begins with https:// or http://"),
    "version": (_VERSION, "three numbers: 1.0.0"),
    "vendor": (_VENDOR, "letters, digits, - and _"),
}
FORMATS: tuple[Format, ...] = get_args(Format)
# The folders of the sources and the headers; the other files are in project_templates/packages.
_PLACES: dict[str, tuple[str, str]] = {
    "cmake": ("src", "include"),
    "zephyr-module": ("src", "include"),
    "arduino-lib": ("src", "src"),
    "platformio-lib": ("src", "src"),
    "idf-component": ("src", "include"),
    "cmsis-pack": ("src", "include"),
}
NO_BINARIES = ("arduino-lib", "platformio-lib", "idf-component", "cmsis-pack")
# Arduino's names of the architectures with a Cortex-M; those of other cores are part of the board's Arduino name.
_ARDUINO_ARM = (
    "mbed,mbed_edge,mbed_giga,mbed_nano,mbed_nicla,mbed_opta,mbed_portenta,mbed_rp2040,nrf52,renesas_portenta,"
    "renesas_uno,rp2040,sam,samd,stm32,teensy"
)
_RUNTIME = "mt_"  # prefix of the runtime's files
_LIBM = b"#include <math.h>"


@frozen
class Packed:
    """The contents of a package, independent of its format.

    Attributes:
        module: the model, compiled for the board; in a package for many cores, for the last of them.
        cores: the model's files and manifest for each core; empty: the package is for one board.
        refused: the cores that can't run the model, and why.
        more: other models in the archive.
        about: the package's own data.
        arduino: Arduino's name of the board, or "".
        arena_sections: the arenas' sections in the object file that the user named, and what lies there.
    """

    module: Module
    cores: Mapping[Core, tuple[FileTree, Manifest]] = field(default_factory=dict)
    refused: Mapping[Core, str] = field(default_factory=dict)
    more: tuple[Module, ...] = ()
    about: About = field(default_factory=About)
    arduino: str = ""
    arena_sections: Mapping[str, str] = field(default_factory=dict)


def package(packed: Packed, form: Format) -> FileTree:
    """Return the files of a package; the same bytes for the same model. "c" is the unchanged sources.

    Raises:
        UsageError: large constants are in a binary file, which the package can't contain.
    """
    module, manifest = packed.module, packed.module.manifest
    if form == "c":
        return module.sources
    if form == "mlf":
        return mlf.library([module, *packed.more])
    many = packed.cores
    models = [model.model for model in manifest.models]
    sources = module.sources
    if many:
        variants = {core: files for core, (files, _) in many.items()}
        sources = portable.merged(manifest.firmware_name, variants, packed.refused, models=models)
    private = (link_key.FILE_NAME, IGNORED)
    beside = (FILE_NAME, *private, *(model.graph for model in manifest.models))
    names = [name for name in sources if name not in beside]
    binaries = [name for name in names if name.endswith(".bin")]
    if binaries and form in NO_BINARIES:
        raise UsageError(
            f"--emit {form} can't contain the binary file {binaries[0]}", hint="compile the model with --weights text"
        )
    source_place, header_place = _PLACES[form]
    of_cores = tuple(f"{core.name}/" for core in many)
    files = {f"{placed(name, source_place, header_place, of_cores)}/{name}": sources[name] for name in names}
    if many:
        files |= {f"extras/{core.name}.json": variant[1].to_json() for core, variant in many.items()}
    else:
        files[FILE_NAME] = manifest.to_json()
        files |= {name: sources[name] for name in sources if name in private}
    described = [model.for_templates() for model in manifest.models]
    values = {
        "model": manifest.firmware_name,
        "target": target_name(manifest.firmware_name),
        "manifest": manifest.for_templates(),
        "models": described,
        "cookiecutter": {"model": manifest.firmware_name, "models": described},  # for project_templates/shared
        "model_files": ", ".join(model["model_file"] for model in described),
        "about": packed.about,
        **_sizes(manifest),
        "sections": {**packed.arena_sections, **_sections(manifest)},
        **_places(packed),
        "cores": [{"describes": core.describes, **_sizes(manifest)} for core, (_, manifest) in many.items()],
        "refused": {core.describes: why for core, why in packed.refused.items()},
        "architectures": _architectures(packed),
        "date": date(module.seconds),
        "binaries": binaries,
        "levels": {
            path: level
            for model in models
            for path, level in levels_of(names, model, [core.name for core in many]).items()
        },
        "sources": [name for name in names if name.endswith(".c")],
        "headers": [name for name in names if name.endswith(".h")],
        "runtime": [name for name in names if name.endswith(".c") and name.startswith(_RUNTIME)],
        "needs_libm": any(_LIBM in sources[name] for name in names if not name.endswith(".bin")),
        "platforms": _emulated_by_zephyr(),
        "c_type": _c_type,
        "rpc": BUILD_HEADER in names,
    }
    return FileTree({**files, **_rendered(form, values)})


def _sizes(manifest: Manifest) -> dict[str, int]:
    """Return the bytes of all arenas, and of all constants, of the models."""
    models = manifest.models
    return {"arena_bytes": total_arena_bytes(models), "constant_bytes": total_constant_bytes(models)}


def _sections(manifest: Manifest) -> dict[str, str]:
    """Return the sections of the models' pools and hot code that a linker script places, and what each holds."""
    sections: dict[str, str] = {}
    for model in manifest.models:
        for pool in model.pools if not model.caller_has_arena else ():
            if pool.bytes and (pool.section or not pool.is_arena):
                sections[pool.section or f".bss.mt_memory.{pool.name}"] = f"`{pool.symbol}`, {pool.bytes:,} bytes"
        for constants in model.constant_pools:
            size = sum(constants.constants.values())
            if size:
                section = constants.section or f".rodata.mt_in.{constants.name}.*"
                sections[section] = f"constants of {model.model}, {size:,} bytes"
        if model.hot_functions:
            sections[f".text.* of {model.model}_hot.c"] = "code that runs faster in RAM: the start-up code copies it"
    return sections


def _places(packed: Packed) -> dict[str, Any]:
    """Return the data for a build system that places variables itself, as Zephyr's does.

    places_arena: whether it may place the arena: the model has one, and the user named no section for it.
    arenas: the arenas, or pools beside other variables, by C name, with the bytes to clear.
    memories: the board's memories that pools and devices' buffers lie in.
    variables: what the models write, in words.
    """
    manifest = packed.module.manifest
    models = manifest.models
    sizes = [of_core for _, of_core in packed.cores.values()] or [manifest]
    arenas: dict[str, str] = {}
    for entry in models if not any(described.caller_has_arena for described in models) else ():
        if entry.pools:
            pools = {pool.symbol: pool for pool in entry.pools if pool.is_arena and pool.bytes and not pool.section}
            arenas |= {symbol: f"{entry.model}_pool_{pool.name}_BYTES".upper() for symbol, pool in pools.items()}
        elif any(total_arena_bytes(of_core.models) for of_core in sizes):
            symbol = entry.symbols["arena"]
            arenas[symbol] = f"{symbol}_BYTES".upper()
    buffers = (name for model in models for name in model.device_buffers)
    return {
        "places_arena": bool(arenas) and not packed.arena_sections,
        "arenas": arenas,
        "memories": list(dict.fromkeys((*bytes_in_memories(models), *buffers))),
        "variables": list(arenas) or [f"the variables of {model.model}" for model in models],
    }


def own_firmware(
    files: Mapping[str, bytes], manifest: Manifest, board: Board, form: Format
) -> tuple[dict[str, bytes], Manifest]:
    """Return a model's files with the build's hash, and its manifest with a project that someone else builds."""
    build_hash = FileTree(files).digest()
    project = Project(
        template=form,
        builder="own",
        transport="serial",
        board=in_project(board),
        build_hash=build_hash,
        options={},
        firmware={},
        model=_PLACES[form][0] if form in _PLACES else "src",
    )
    return {**files, BUILD_HEADER: build_header(build_hash)}, manifest.model_copy(update={"project": project})


def delivered(packed: Packed, form: Format) -> FileTree:
    """Return the files to write: the package's files, or the archive that tools expect."""
    tree = package(packed, form)
    seconds, model = packed.module.seconds, packed.module.manifest.firmware_name
    if form == "mlf":
        return FileTree({f"{model}.tar": tar(tree, seconds)})
    if form == "cmsis-pack":
        about = packed.about
        return FileTree({f"{about.vendor}.{model}.{about.version}.pack": zipped(tree, seconds)})
    return tree


def _architectures(packed: Packed) -> str:
    """Return the architectures for library.properties."""
    if packed.cores or packed.module.cpu == "host":
        return "*"
    parts = packed.arduino.split(":")
    if len(parts) > 1:
        return parts[1]
    return _ARDUINO_ARM if packed.module.cpu.startswith("cortex-m") else "*"


def _rendered(form: str, values: dict[str, Any]) -> dict[str, bytes]:
    texts, env = own_texts(f"packages/{form}")
    files = {env.from_string(path).render(values): env.get_template(path).render(values).encode() for path in texts}
    if form in NO_BINARIES:  # these are published in a registry
        files["LICENSE"] = resources.path("LICENSE").read_bytes()
    return {path: data for path, data in files.items() if all(path.split("/"))}


def _emulated_by_zephyr() -> list[str]:
    """Return Zephyr's names of the machines in mtool's own list that were run in an emulator."""
    shipped = boards.read_files((resources.path("boards.yaml"),)).boards.values()
    return [board.templates["zephyr"] for board in shipped if board.emulator and board.status.get("zephyr") == "run"]


def _c_type(dtype: str) -> str:
    return {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(dtype, f"{dtype}_t")


# Reproducible archives: tar and zip, with one time for all members.


_FIRST_OF_ZIP = 315532800  # 1980-01-01: the earliest time in a zip


def tar(tree: FileTree, seconds: int) -> bytes:
    """Return a tar of a tree whose members, including folders, begin with "./", as TVM writes it.

    Args:
        tree: the files.
        seconds: the time of each member, since 1970.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = {str(parent) for path in tree for parent in PurePosixPath(path).parents} | {"."}
        for folder in sorted(folders):
            member = tarfile.TarInfo("." if folder == "." else f"./{folder}")
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(_owned(member, seconds))
        for path in tree:
            member = tarfile.TarInfo(f"./{path}")
            member.size, member.mode = len(tree[path]), 0o644
            archive.addfile(_owned(member, seconds), io.BytesIO(tree[path]))
    return data.getvalue()


def zipped(tree: FileTree, seconds: int) -> bytes:
    """Return a zip of a tree; each member's time is `seconds` since 1970, at the earliest 1980."""
    data = io.BytesIO()
    moment = time.gmtime(max(seconds, _FIRST_OF_ZIP))[:6]
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in tree:
            member = zipfile.ZipInfo(path, moment)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, tree[path])
    return data.getvalue()


def date(seconds: int) -> str:
    """Return the day of a time since 1970 in ISO 8601 format."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _owned(member: tarfile.TarInfo, seconds: int) -> tarfile.TarInfo:
    member.mtime, member.uname, member.gname = seconds, "root", "root"
    return member
