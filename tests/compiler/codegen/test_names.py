"""For any names of a model, its file and its tensors, its C builds and links, in C99 and from C++17."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import amount
import numpy as np
import onnx
import pytest
from graphs import FLAGS, HOST, NO_FPU, compiled, model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from mtool import boards, project
from mtool.base import filetree, resources
from mtool.base.filetree import FileTree
from mtool.base.identifiers import (
    LONGEST_MODEL,
    LONGEST_TENSOR,
    is_keyword,
    is_macro,
    model_name,
    target_name,
    tensor_names,
)
from mtool.base.option_values import Io
from mtool.compiler import codegen, passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan
from mtool.manifest import Manifest

INCLUDE = resources.path("crt") / "include"
ARDUINO = Path("/usr/share/arduino/hardware/arduino/avr")
ORDINARY = ["kws", "input_1", "x", "X", "Y", "Y_h", "B", "image", "data", "index", "min", "PartitionedCall_0", "t_x"]

# C library headers, and what POSIX adds.
ISO = [
    *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math"),
    *("setjmp", "signal", "stdalign", "stdarg", "stdbool", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn"),
    *("string", "tgmath", "time", "wchar", "wctype"),
]
POSIX = [
    *("dirent", "fcntl", "net/if", "netdb", "netinet/in", "pthread", "sched", "signal", "strings", "sys/stat"),
    *("sys/types", "termios", "unistd"),
]

TENSORS = [
    *("NULL", "INFINITY", "NAN", "INT8_MAX", "EOF", "errno", "stdin", "assert", "unix", "linux", "i386", "I", "M_PI"),
    *(
        "PRId8",
        "st_atime",
        "sa_handler",
        "and",
        "or",
        "not",
        "xor",
        "asm",
        "typeof",
        "near",
        "far",
        "class",
        "operator",
    ),
    *("int", "bool", "true", "nullptr", "co_await", "static_assert", "_Bool", "__attribute__", "__LINE__", "_Complex"),
    *("F", "B1", "A0", "min", "max", "abs", "round", "bit", "word", "byte", "PI", "HIGH", "LOW", "INPUT", "OUTPUT"),
    *("SERIAL", "DEFAULT", "PORTB", "SREG", "TCNT1", "USART_RX_vect", "sinf", "Serial", "Arduino_h", "loop", "setup"),
    *(
        "x",
        "X",
        "a b",
        "a_b",
        "a-b",
        "a_b_2",
        "7",
        "7up",
        "",
        " ",
        "_",
        "日本",
        "中国",
        "é",
        "\x00",
        "/* */",
        "x" * 240,
    ),
    *("x" * 239 + "y", "run", "arena", "inputs", "outputs", "none", "main", "read", "conv_0", "relu_0", "tensors"),
    *("inputs_arena", "functions", "initial_0", "arena_inputs", "external_inputs", "number", "n", "act0", "values"),
]
CONVENTIONS = [
    codegen.conventions(),
    codegen.conventions("packed", "packed"),
    codegen.conventions("step", "pointers"),
    codegen.conventions("c", "values"),
    codegen.conventions(executor="graph"),
]


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def build(*argv: object) -> None:
    subprocess.run([str(each) for each in argv], check=True)


def test_plainly_safe_names_stay() -> None:
    assert tensor_names(ORDINARY) == ["kws", "input_1", "x", "t_X_2", "Y", "Y_h", "B", *ORDINARY[7:]]
    for name in ("kws", "digits_int8", "mobilenet_v1_0.25_96_visual_wake_words_quantized_int8", "a", "model", "sine"):
        assert model_name(name) == name.replace(".", "_")


def test_names_get_a_prefix_if_they_are_taken() -> None:
    assert tensor_names(["NULL", "uint8_t", "and", "7up", "", "x y", "x-y"]) == [
        "t_NULL",
        "t_uint8_t",
        "t_and",
        "t_7up",
        "tensor",
        "x_y",
        "x_y_2",
    ]
    names = ["math", "STDINT", "mt_model", "mt", "arduino", "2nd", "", "日本", "con", "counter"]
    assert [model_name(name) for name in names] == [
        *("model_math", "model_stdint", "model_mt_model", "model_mt", "model_arduino", "model_2nd", "model", "model"),
        *("model_con", "model_counter"),
    ]
    assert [target_name(name) for name in ("kws", "test", "gpio", "m", "no")] == [
        *("kws", "model_test", "model_gpio", "model_m", "model_no")
    ]


@pytest.mark.slow
@settings(max_examples=amount.of(200, 66), deadline=None)
@given(st.lists(st.text(max_size=120) | st.sampled_from(TENSORS), max_size=12))
def test_tensors_have_identifiers_that_differ(names: list[str]) -> None:
    made = tensor_names(names)
    assert len({name.upper() for name in made}) == len(names)
    for name in made:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and len(name) <= LONGEST_TENSOR + 5
        assert not is_keyword(name) and not is_macro(name)


@settings(max_examples=amount.of(200, 66), deadline=None)
@given(st.text(max_size=300))
def test_models_have_identifiers(stem: str) -> None:
    name = model_name(stem)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name) and len(name) <= LONGEST_MODEL
    assert model_name(name) == name


def test_long_names_differ_by_a_hash() -> None:
    assert len({*tensor_names(["x" * 240, "x" * 241, "x" * 10_000])}) == 3
    assert model_name("x" * 240) != model_name("x" * 241)


def test_ten_thousand_equal_names_take_no_time() -> None:
    assert len({*tensor_names(["x"] * 10_000)}) == 10_000


def includes(headers: Sequence[str]) -> str:
    return "".join(f"#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n" for name in headers)


CORE = [f"-I{ARDUINO}/cores/arduino", f"-I{ARDUINO}/variants/mega", "-DARDUINO=10819", "-DARDUINO_ARCH_AVR"]
AVR = ["avr/io", "avr/interrupt", "avr/pgmspace", "avr/eeprom", "avr/sleep", "avr/wdt"]
COMPILERS = {
    "gcc": (["gcc", "-x", "c", "-std=gnu17", "-D_GNU_SOURCE"], [*ISO, *POSIX]),
    "clang": (["clang", "-x", "c", "-std=gnu2x", "-D_GNU_SOURCE"], [*ISO, *POSIX]),
    "g++": (["g++", "-x", "c++", "-std=gnu++17"], [*ISO, *POSIX]),
    "arm": (["arm-none-eabi-gcc", "-x", "c", "-mcpu=cortex-m4"], ISO),
    "riscv": (["riscv64-unknown-elf-gcc", "-x", "c", "--specs=picolibc.specs"], ISO),
    "avr": (["avr-gcc", "-x", "c", "-mmcu=atmega2560", "-DF_CPU=16000000L", "-Os"], [*ISO, *AVR]),
    "xmega": (["avr-gcc", "-x", "c", "-mmcu=atxmega128a1", "-DF_CPU=16000000L", "-Os"], [*ISO, *AVR]),
    "arduino": (["avr-g++", "-x", "c++", "-mmcu=atmega2560", "-DF_CPU=16000000L", *CORE], ["Arduino", *ISO]),
}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_macros_of_installed_toolchains_are_known(compiler: str) -> None:
    argv, headers = COMPILERS[compiler]
    need(argv[0])
    command = [*argv, "-dM", "-E", "-w", "-"]
    done = subprocess.run(command, input=includes(headers), check=True, capture_output=True, text=True)
    macros = re.findall(r"^#define ([A-Za-z]\w*)(?= |$)", done.stdout, re.MULTILINE)  # those without parameters
    assert len(macros) > 50
    assert [name for name in macros if not is_keyword(name) and not is_macro(name)] == []


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_model_hides_a_header_of_installed_toolchains(compiler: str) -> None:
    argv, headers = COMPILERS[compiler]
    need(argv[0])
    searched = subprocess.run([*argv, "-E", "-v", "-"], input="", check=True, capture_output=True, text=True).stderr
    folders = re.findall(r"^ (/\S+)", searched.partition("search starts here")[2], re.MULTILINE)
    used = subprocess.run([*argv, "-M", "-w", "-"], input=includes(headers), check=True, capture_output=True, text=True)
    paths = [Path(word) for word in used.stdout.replace("\\\n", " ").split() if word.endswith(".h")]
    own = {Path(folder).resolve() for folder in [*folders, *(word[2:] for word in argv if word.startswith("-I"))]}
    top = {path.stem for path in paths if path.parent.resolve() in own}
    assert len(top) > 10
    hidden = {stem for stem in top if model_name(stem) == stem and re.fullmatch(r"[A-Za-z0-9_]+", stem)}
    assert hidden == set()


def test_no_model_hides_a_file_of_the_runtime_or_of_a_template() -> None:
    runtime = [path.stem for path in resources.path("crt").rglob("*.[ch]")]
    templates = [path.stem for path in resources.path("project_templates").glob("*/*/src/*.[ch]")]
    assert len(runtime) > 20 and len(templates) > 10
    assert [stem for stem in [*runtime, *templates] if model_name(stem) == stem] == []


def nasty() -> onnx.ModelProto:
    """A model whose inputs and outputs have all the names, none twice."""
    names = [name for name in dict.fromkeys(TENSORS) if name]  # an empty name is not a tensor
    half = len(names) // 2
    nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in zip(names[:half], names[half:], strict=False)]
    return model(nodes, dict.fromkeys(names[:half], (np.float32, (2,))), names[half : 2 * half])


def use(name: str, manifest: Manifest, headers: Sequence[str]) -> str:
    """Return a program that includes headers, then the model's, reads every field and runs the model."""
    lines = [includes(headers), f'#include "{name}.h"', "int main(void)", "{"]
    for kind, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        lines += [f"    const struct {name}_{kind} {kind} = {name}_arena_{kind};"]
        for tensor in tensors:
            count = f"{name}_{tensor.c_name}_COUNT".upper()
            lines += [f"    if ({kind}.{tensor.c_name} != {name}_arena_{kind}.{tensor.c_name} || {count} != 2)"]
            lines += ["        return 1;"]
    return "\n".join([*lines, f"    return (int){name}_run(&inputs, &outputs);", "}", ""])


def planned(io: Io = "arena", target: Target = HOST) -> Plan:
    graph = passes.run(import_graph(nasty(), "nasty"), target)
    return make_plan(graph, target, io)


def write(files: FileTree, folder: Path) -> list[Path]:
    """Write files and return those that are C."""
    for path in files:
        (folder / path).write_bytes(files[path])
    return [folder / path for path in files if path.endswith(".c")]


def test_every_tensor_name_builds_as_c99_and_from_cpp17(tmp_path: Path) -> None:
    need("gcc", "g++")
    files, manifest = codegen.generate(planned(), "nasty.onnx", "0" * 64)
    write(files, tmp_path)
    objects = [tmp_path / "nasty.o", tmp_path / "nasty_weights.o"]
    for path in objects:
        build("gcc", *FLAGS, f"-I{INCLUDE}", "-c", path.with_suffix(".c"), "-o", path)
    (tmp_path / "use.c").write_text(use("nasty", manifest, [*ISO, *POSIX]))
    build("gcc", *FLAGS, "-D_GNU_SOURCE", f"-I{INCLUDE}", tmp_path / "use.c", *objects, "-lm", "-o", tmp_path / "use")
    build(tmp_path / "use")
    (tmp_path / "use.cpp").write_text(use("nasty", manifest, [*ISO, *POSIX]))
    argv = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", tmp_path / "use.cpp", *objects, "-lm"]
    build(*argv, "-o", tmp_path / "use_cpp")
    build(tmp_path / "use_cpp")


@pytest.mark.product(3)
@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize("chosen", CONVENTIONS, ids=["c", "packed", "step", "values", "graph"])
def test_every_tensor_name_builds_with_every_convention(io: Io, chosen: codegen.Conventions, tmp_path: Path) -> None:
    need("gcc", "g++")
    files, _ = codegen.generate(planned(io), "nasty.onnx", "0" * 64, chosen)
    sources = write(files, tmp_path)
    build("gcc", *FLAGS, f"-I{INCLUDE}", "-fsyntax-only", *sources)
    (tmp_path / "all.cpp").write_text("".join(f'#include "{path}"\n' for path in files if path.endswith(".h")))
    build("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", "-fsyntax-only", tmp_path / "all.cpp")


@pytest.mark.parametrize("compiler", ["arm", "riscv", "avr", "arduino"])
def test_every_tensor_name_builds_beside_the_headers_of_a_board(compiler: str, tmp_path: Path) -> None:
    argv, headers = COMPILERS[compiler]
    need(argv[0])
    target = Target("avr5", frozenset()) if "avr" in argv[0] else NO_FPU
    files, manifest = codegen.generate(planned(target=target), "nasty.onnx", "0" * 64)
    write(files, tmp_path)
    (tmp_path / "use.c").write_text(use("nasty", manifest, headers))
    build(*argv, "-w", f"-I{INCLUDE}", "-fsyntax-only", tmp_path / "use.c")


def test_the_templates_programs_build_with_every_tensor_name(tmp_path: Path) -> None:
    """A project's standalone program and a package's example have variables of their own."""
    need("gcc", "avr-g++")
    for place, target, board, io in (
        ("host", HOST, "host", "external"),
        ("mega", Target("avr5", frozenset()), "arduino_mega2560", "external"),
    ):
        files, manifest = codegen.generate(planned(io, target), "nasty.onnx", "0" * 64)  # type: ignore[arg-type]
        tree, _ = project.render(files, manifest, boards.get(board))
        filetree.write(tree, tmp_path / place)
        example = project.package(
            project.Packed(project.Module(files, manifest)), "arduino-lib" if place == "mega" else "platformio-lib"
        )
        filetree.write(example, tmp_path / f"{place}_lib")
    host = [f"-I{INCLUDE}", f"-I{tmp_path}/host/model", "-fsyntax-only"]
    build("gcc", *FLAGS, *host, tmp_path / "host/src/standalone.c", tmp_path / "host_lib/examples/nasty_example/main.c")
    if ARDUINO.is_dir():
        library = tmp_path / "mega/libraries/mtool_model/src"
        argv = [*COMPILERS["arduino"][0], "-std=gnu++11", f"-I{library}", "-Wall", "-fsyntax-only"]
        build(*argv, tmp_path / "mega/standalone/main.cpp")
        sketch = tmp_path / "mega_lib/examples/nasty_example/nasty_example.ino"
        build(*argv, "-include", "Arduino.h", sketch)


FILES = [
    *("math", "string", "signal", "stdint", "time", "errno", "stdio"),
    *("mt_model", "mt", "platform", "main", "Arduino", "unistd", "pthread", "int", "class", "NULL"),
    *(
        "7",
        "ünï",
        "9 lives*/",
        '%s"\\',
        "x" * 240,
        "x" * 239 + "y",
        "malloc",
        "linux",
        "test",
        "m",
        "new",
        "a.b-c",
        "-I",
    ),
]


@pytest.mark.slow
def test_every_file_name_builds_beside_all_others(tmp_path: Path) -> None:
    """The files of all models lie in one folder, in which a compiler looks first."""
    need("gcc")
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (2,))}, ["y"])
    names, sources, calls = [], [], []
    for stem in FILES:
        plan = compiled(graph, HOST, model_name(stem))
        files, manifest = codegen.generate(plan, f"{stem}.onnx", "0" * 64)
        assert max(map(len, files)) <= 80
        sources += [path for path in write(files, tmp_path) if not path.name.endswith("_rpc.c")]
        name = manifest.model
        names.append(name)
        calls.append(f"{name}_run(&{name}_arena_inputs, &{name}_arena_outputs)")
    assert len({*names}) == len(FILES)
    headers = "".join(f'#include "{name}.h"\n' for name in names)
    program = f"{includes([*ISO, *POSIX])}{headers}int main(void)\n{{\n    return {' + '.join(calls)};\n}}\n"
    (tmp_path / "use_all.c").write_text(program)
    argv = ["gcc", *FLAGS, "-O0", f"-I{tmp_path}", f"-I{INCLUDE}", "-D_GNU_SOURCE", *sources, tmp_path / "use_all.c"]
    build(*argv, "-lm", "-o", tmp_path / "use_all")
    build(tmp_path / "use_all")
