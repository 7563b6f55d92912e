"""The values that options may have. Importing them costs nothing."""

from typing import Literal

from mtool.base.frozen import frozen

Io = Literal["arena", "external"]
"""The memory of the inputs and outputs: the arena, or the caller's."""

Partial = Literal["auto", "never", "always"]
"""Whether operators may be computed a few rows at a time."""

Order = Literal["auto", "written"]
"""The order of the operators: the one with the smallest arena that is found, or the model's."""

Optimize = Literal["balanced", "speed", "size"]
"""When to spend flash on speed: where it is worth it, wherever it fits, or never."""

Compress = Literal["auto", "none", "fields", "table", "sparse", "huffman"]
"""How constants are compressed: where it is worth its time and memory, never, or in one way wherever it saves flash."""

Rounding = Literal["onnx", "tflite"]
"""The rounding of integers: ONNX's, or that of TFLite's reference kernels."""

Hybrid = Literal["auto", "int8", "float", "float32"]
"""How float activations are multiplied by int8 weights: in integers, in float with weights converted when read, or with
weights stored as float32."""

InterfaceApi = Literal["c", "pointers", "packed", "step", "feed"]
"""The entry point of a model: a typed C function, one of arrays of pointers and a resource, a packed function, one call
for each operator, or one for each row of an input."""

OperatorsApi = Literal["typed", "pointers", "values", "packed"]
"""The calling convention of the operators."""

Executor = Literal["aot", "graph", "graph-host"]
"""What calls the operators: C code, the graph executor on the device, or the host."""

Weights = Literal["auto", "text"]
"""How large constants are written: as a binary file if the toolchain can include one, or always as C."""

Arenas = Literal["shared", "interleaved", "own", "caller"]
"""The arenas of several models: one, where one model runs at a time; one, where each may run between two operators of
those after it; one for each; or the caller's, passed with each call."""

PoolUse = Literal["all", "tensors", "weights", "constants"]
"""The contents of a pool: tensors, copies of constants (weights), both, or constants themselves (read-only memory)."""

CHANNEL = "channel"
"""The template option for the firmware's channel to the host."""

Level = Literal["O2", "O3", "Os"]
"""The compiler's optimization level for a file."""

LEVEL = "opt"
"""The knob of every schedule for this level: --schedule pw_2=dsp_pointwise:opt=O3."""

WEIGHTS = "weights"
"""The knob of every schedule for the memory of its constants: --schedule pw_2=dsp_pointwise:weights=ram."""

PACKED = "packed"
"""A value of this knob: constants of few bits are packed, and unpacked in working memory before the operator runs."""

PACKED_WEIGHTS, FOUR_BITS = "weights=packed", "bits=4"
"""Knobs in a schedule's name in `mtool.json`: constants that are unpacked first, or read in four bits."""

IN_RAM = "weights=ram"
"""That knob in a schedule's name in `mtool.json`, if constants lie in RAM."""

CODE = "code"
"""The knob of every schedule for the memory of its code: --schedule conv_1=dsp_winograd:code=ram."""

CODE_IN_RAM = "code=ram"
"""That knob in a schedule's name in `mtool.json`, if its code lies in RAM."""


def is_set(schedule: str, knob: str) -> bool:
    """Return whether a schedule's name in `mtool.json` has a knob: "dsp_patch:unroll=16,weights=ram"."""
    return knob in schedule.partition(":")[2].split(",")


Objective = Literal["auto", "time", "cycles", "instructions"]
"""What tuning minimizes: time by the board's timer, instructions counted by an emulator, or estimated cycles."""

Format = Literal["c", "cmake", "zephyr-module", "arduino-lib", "platformio-lib", "idf-component", "cmsis-pack", "mlf"]
"""What `compile` writes: the C alone, or a package for an ecosystem."""

ProjectType = Literal["standalone", "host-driven", "mlperftiny", "wakeword"]
"""The type of a user's own project: a program around the model, a model driven by a host, EEMBC's benchmark, or an
application."""

Method = Literal["minmax", "entropy", "percentile"]
"""The method by which quantization finds an activation's range."""

Integer = Literal["int8", "uint8", "int16"]
"""The type of a quantized activation."""

WeightType = Literal["int8", "int4", "int2", "auto"]
"""The type of quantized weights; "auto": for each layer, the fewest bits with a small error."""


@frozen
class Slide:
    """An input that is a window over a sequence: between two calls it moves by `hop` of its `rows` along `axis`.

    `zero` fills the window before the first call. Before the model is read, the axis may be None, for that of time,
    and the number of rows is 0.
    """

    value: str
    hop: int
    axis: int | None = None
    rows: int = 0
    zero: int = 0
