"""microTVM's own C, generated for a Cortex-M4, with or without calls of CMSIS-NN."""

import subprocess
from pathlib import Path

from published_runs.counting import Source

_MAIN = """
#include <stddef.h>
#include <stdint.h>
#include <tvmgen_default.h>
#include <tvm/runtime/crt/stack_allocator.h>
static uint8_t memory[400000] __attribute__((aligned(16)));
static int8_t input[60000] __attribute__((aligned(16)));
static int8_t output[4096] __attribute__((aligned(16)));
static tvm_workspace_t workspace;
void *TVMBackendAllocWorkspace(int device, int id, uint64_t bytes, int code, int bits)
{
    void *block = NULL;
    (void)StackMemoryManager_Allocate(&workspace, (int32_t)bytes, &block);
    return block;
}
int TVMBackendFreeWorkspace(int device, int id, void *block)
{
    return StackMemoryManager_Free(&workspace, block);
}
void TVMLogf(const char *text, ...) { (void)text; }
void TVMPlatformAbort(int error) { (void)error; for (;;) {} }
__attribute__((noinline, optimize("no-optimize-sibling-calls"))) int one_inference(void)
{
    struct tvmgen_default_inputs inputs = {input};
    struct tvmgen_default_outputs outputs = {output};
    int failed = tvmgen_default_run(&inputs, &outputs);
    __asm volatile("" : : : "memory");
    return failed;
}
void prepare(void)
{
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof input; i++) {
        random = random * 1664525u + 1013904223u;
        input[i] = (int8_t)(random >> 24);
    }
    StackMemoryManager_Init(&workspace, memory, sizeof memory);
}
"""
# What the C takes from CMSIS-NN: one instruction each, but for the four bytes that become two pairs of halfwords.
_CMSIS = """
#pragma once
#include <arm_acle.h>
#include <stdint.h>
#include <string.h>
#define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline
#define __STATIC_INLINE static inline
#define __SMLAD(a, b, sum) __smlad(a, b, sum)
static inline const int8_t *read_and_pad(const int8_t *source, int32_t *out1, int32_t *out2)
{
    uint32_t bytes, odd, even;
    memcpy(&bytes, source, 4);
    __asm("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(bytes));
    __asm("sxtb16 %0, %1" : "=r"(even) : "r"(bytes));
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(*out2) : "r"(odd), "r"(even));
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(*out1) : "r"(even), "r"(odd));
    return source + 4;
}
"""
_LIBRARY = (
    "Activation",
    "BasicMath",
    "Concatenation",
    "Convolution",
    "FullyConnected",
    "NNSupport",
    "Pooling",
    "Reshape",
    "Softmax",
)


def microtvm(model: Path, cmsis: Path | None) -> Source:
    """Return what a folder of a submission compiles; `cmsis` is what it calls, if that is more than instructions."""
    files = [*sorted((model / "model/codegen/host/src").glob("*.c"))]
    files.append(model / "crt/src/runtime/crt/memory/stack_allocator.c")
    includes = [model / part for part in ("include", "crt_config", "crt/include")]
    if cmsis is None:
        return Source(_MAIN, files, includes, headers={"arm_nnsupportfunctions.h": _CMSIS})
    return Source(_MAIN, [*files, *library(cmsis)], [*includes, *cmsis_includes(cmsis)])


def library(cmsis: Path) -> list[Path]:
    """Return CMSIS-NN's sources."""
    return [path for part in _LIBRARY for path in sorted((cmsis / "CMSIS/NN/Source" / f"{part}Functions").glob("*.c"))]


def cmsis_includes(cmsis: Path) -> list[Path]:
    """Return the folders of CMSIS-NN's headers."""
    return [cmsis / "CMSIS" / part for part in ("Core/Include", "NN/Include", "DSP/Include", "DSP/Include/dsp")]


def checked_out(repository: Path, commit: str, folder: Path) -> Path:
    """Unpack CMSIS of a commit into a folder."""
    for part in ("NN/Source", "NN/Include", "Core/Include", "DSP/Include"):
        argv = ["git", "-C", str(repository), "archive", f"{commit}:CMSIS/{part}"]
        packed = subprocess.run(argv, check=False, capture_output=True)
        if packed.returncode == 0:  # from 2022 on it has no DSP
            (folder / "CMSIS" / part).mkdir(parents=True)
            subprocess.run(["tar", "-x", "-C", str(folder / "CMSIS" / part)], input=packed.stdout, check=True)
    return folder
