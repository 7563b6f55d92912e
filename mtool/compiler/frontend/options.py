"""Options of a model: what compiling it needs to know besides its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtool.base import checked, option_table
from mtool.base.option_values import Hybrid, Rounding
from mtool.compiler.ir.types import Array

Pairs = Sequence[tuple[str, str]]
"""An output and an input of the model, each pair a state."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of a model: values of dimensions and inputs, states, maximum sizes, rounding, limits.

    dims: values of symbolic dimensions, by name; in a TFLite model `<input>_<number>` of those that it leaves open.
    constants: values of inputs that become constants of the model, by name.
    rounding: of integers: "onnx", or for a TFLite model "tflite", which is its reference kernels' byte for byte.
    hybrid: of operators with float activations and int8 weights: "int8" quantizes the activations as they come, as
        LiteRT does; "float" makes a float of each weight as it is read; "float32" stores the weights as float32, those
        of float16 too. "auto" is the first for a TFLite model, the second for an ONNX one, which means it so.
    maxima: the largest sizes of what has a size that depends on data, by the name of the value or its dimension;
        each output of such a size gets another one beside it, `<name>_count`, that says how many are there.
    keeps_rounds: rounds of a Loop or Scan are a loop in C, however few they are.
    natural_maxima: where no such size is stated or declared, it is the most that the shapes of the inputs allow.
    states: pairs of an output and the input of the next run that it feeds; they lie in the arena from run to run
        and are neither inputs nor outputs of what is compiled. A state begins as the initialiser of the input's name,
        if the model has one, else as zeros, which for a quantized one is its zero point.
    state_values: what states begin with instead, as they are stored: by the input's name, one number or all.
    whole: the graph is for backends to recognise operators in, not to be compiled: those of a TFLite model that are
        written out otherwise are one node each.
    limits: what compiling it may take, by the names of mtool/compiler/operators/budget.py, where not the defaults.
    name: the model's name in C; empty: made of its file's.
    """

    dims: Mapping[str, checked.Count] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    rounding: Rounding = option_table.DEFAULTS["rounding"]
    hybrid: Hybrid = option_table.DEFAULTS["hybrid"]
    maxima: Mapping[str, checked.Count] = field(default_factory=dict)
    natural_maxima: bool = False
    keeps_rounds: bool = False
    states: Pairs = ()
    state_values: Mapping[str, Array] = field(default_factory=dict)
    whole: bool = False
    limits: Mapping[str, checked.Count] = field(default_factory=dict)
    name: str = ""


DEFAULTS = ModelOptions()
