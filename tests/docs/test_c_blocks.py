"""The C in the tutorials and in docs/integrate.md compiles against the header of the example's model."""

import functools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pages
import pytest

from mtool.cli import app

DOCS = pages.ROOT / "docs"
DIGITS = pages.ROOT / "examples" / "digits" / "digits_int8.onnx"
STUBS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#define printk printf
#define Error_Handler abort
void watchdog_feed(void);
/* CMSIS */
void __disable_irq(void), __enable_irq(void), __WFI(void);
void SCB_InvalidateDCache_by_Addr(volatile void *address, int32_t size);
void SCB_CleanDCache_by_Addr(volatile void *address, int32_t size);
/* Zephyr */
#define K_MUTEX_DEFINE(name) static struct k_mutex name
#define K_FOREVER 0
#define K_APPMEM_PARTITION_DEFINE(name) static struct k_mem_partition name
#define K_APP_BMEM(partition)
typedef struct k_thread *k_tid_t;
struct k_mutex { int32_t count; };
struct k_mem_partition { uintptr_t start; };
struct k_mem_domain { uint8_t count; };
int k_mutex_lock(struct k_mutex *mutex, int timeout), k_mutex_unlock(struct k_mutex *mutex);
int k_mem_domain_init(struct k_mem_domain *domain, uint8_t count, struct k_mem_partition *partitions[]);
int k_mem_domain_add_thread(struct k_mem_domain *domain, k_tid_t thread);
"""
COMPILERS = {"c": ["cc", "-std=c99"], "cpp": ["c++", "-std=c++11"]}
BLOCKS = [
    (page.stem, language, block)
    for page in (*sorted((DOCS / "tutorials").glob("*.md")), DOCS / "integrate.md")
    for language in COMPILERS
    for block in pages.blocks(page.read_text(), language)
    if '"digits_int8.h"' in block
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that runs `mtool compile digits_int8.onnx …` and returns its folder."""

    @functools.cache
    def run(command: str) -> Path:
        folder = tmp_path_factory.mktemp("c")
        _, name, model, *options = shlex.split(command)
        assert model == DIGITS.name
        assert app.invoke([name, str(DIGITS), "-q", "--board", "host", "--output-dir", str(folder), *options]) == 0
        return folder

    return run


def test_there_are_such_blocks() -> None:
    assert {"zephyr", "esp-idf", "from-x-cube-ai", "integrate"} <= {name for name, _, _ in BLOCKS}
    assert {language for _, language, _ in BLOCKS} == set(COMPILERS)


@pytest.mark.parametrize("name, language, block", BLOCKS, ids=[name for name, _, _ in BLOCKS])
def test_the_block_compiles(name: str, language: str, block: str, compiled: Callable[[str], Path]) -> None:
    command = re.match(r"/\* (mtool compile .*) \*/", block)
    assert command is not None or name != "integrate"
    includes = "".join(re.findall(r"^#include.*\n", block, re.MULTILINE))
    code = re.sub(r"^#include.*\n", "", block, flags=re.MULTILINE)
    is_whole = command is not None or re.search(r"^\{", code, re.MULTILINE) is not None  # functions, not statements
    text = STUBS + includes + (code if is_whole else f"void block(void)\n{{\n{code}\n}}\n")
    folder = compiled(command[1] if command else f"mtool compile {DIGITS.name}")
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", folder, "-x", language.replace("cpp", "c++"), "-"]
    done = subprocess.run([*COMPILERS[language], *flags], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_with_the_callers_arena_a_model_has_no_variables(compiled: Callable[[str], Path]) -> None:
    folder = compiled(f"mtool compile {DIGITS.name} --arena caller")
    for source in folder.glob("*.c"):
        made = folder / f"{source.stem}.o"
        subprocess.run(["cc", "-O0", "-c", source, "-o", made], check=True, cwd=folder)
        symbols = subprocess.run(["nm", made], check=True, capture_output=True, text=True).stdout
        assert not re.findall(r" [bBdDC] (\w+)", symbols), source.name
