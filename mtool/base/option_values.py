"""The values that options may have. Importing them costs nothing."""

from typing import Literal

Io = Literal["arena", "external"]
"""The memory of the inputs and outputs: the arena, or the caller's."""

Partial = Literal["auto", "never", "always"]
"""Whether operators may be computed a few rows at a time."""

Order = Literal["auto", "written"]
"""The order of the operators: of the smallest arena that is found, or as the model has it."""

Optimize = Literal["balanced", "speed", "size"]
"""What flash is spent on: time where it is worth it, time wherever there is room, or nothing."""

Rounding = Literal["onnx", "tflite"]
"""The rounding of integers: as ONNX says, or as TFLite's reference kernels do it."""

Hybrid = Literal["auto", "int8", "float", "float32"]
"""How float activations meet int8 weights: in integers, in float as they are read, or stored as float32."""

InterfaceApi = Literal["c", "pointers", "packed", "step", "feed"]
"""The entry point of a model: a typed C function, one of arrays of pointers and a resource, a packed function, one call
an operator, or one for rows of an input."""

OperatorsApi = Literal["typed", "pointers", "values", "packed"]
"""The calling convention of the operators."""

Executor = Literal["aot", "graph", "graph-host"]
"""The caller of the operators: C, the graph executor on the device, or the host."""

Weights = Literal["auto", "text"]
"""Whether large constants lie in a file of bytes where the toolchain can take one in, or all of them in C."""

Arenas = Literal["shared", "interleaved", "own", "caller"]
"""The arena: of several models one, as one of them runs at a time; one, in which each may run between two operators of
those after it; one for each; or the caller's, who passes it with each call."""

PoolUse = Literal["all", "tensors", "weights", "constants"]
"""Who may use a pool: tensors, copies of constants (weights), both, or constants themselves, in a memory that is only
read."""

Level = Literal["O2", "O3", "Os"]
"""The compiler's optimisation level of a file."""

LEVEL = "opt"
"""The knob that every schedule has, its level: --schedule pw_2=dsp_pointwise:opt=O3."""

WEIGHTS = "weights"
"""The knob that every schedule has, the memory of its constants: --schedule pw_2=dsp_pointwise:weights=ram."""

IN_RAM = "weights=ram"
"""That knob as `mtool.json` has it in the name of a schedule, where constants lie in RAM."""

Objective = Literal["auto", "time", "cycles", "instructions"]
"""What tuning makes small: time by the board's timer, instructions that an emulator counts, estimated cycles."""

Format = Literal["c", "cmake", "zephyr-module", "arduino-lib", "platformio-lib", "idf-component", "cmsis-pack", "mlf"]
"""What `compile` writes: the C alone, or a package of an ecosystem."""

ProjectType = Literal["standalone", "host-driven", "mlperftiny"]
"""What a project of a user's own is: a program around the model, a model driven by a host, EEMBC's benchmark."""

Method = Literal["minmax", "entropy", "percentile"]
"""The method by which quantization finds an activation's range."""

Integer = Literal["int8", "uint8"]
"""The type of a quantized activation."""
