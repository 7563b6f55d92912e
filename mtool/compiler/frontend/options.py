"""A model's compile options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtool.base import checked, option_table
from mtool.base.errors import UsageError
from mtool.base.option_values import Hybrid, Rounding, Slide
from mtool.base.tensors import Array

Pairs = Sequence[tuple[str, str]]
"""Pairs of an output and an input of the model; each pair is a state."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """A model's compile options: values of dimensions and inputs, states, maximum sizes, rounding, limits.

    dims: values of symbolic dimensions, by name; in a TFLite model an open dimension is named `<input>_<number>`.
    constants: values of inputs that become constants of the model, by name.
    rounding: of integers: "onnx", or for a TFLite model "tflite", byte for byte as LiteRT's reference kernels.
    hybrid: for operators with float activations and int8 weights: "int8" quantizes the activations at run time, as
        LiteRT does; "float" converts each weight to float when it is read; "float32" stores the weights as float32,
        float16 weights too. "auto" is "int8" for a TFLite model and "float" for an ONNX model, as each format defines.
    maxima: the largest sizes of values whose size depends on data, by the name of the value or its dimension; each
        such output gets a second one, `<name>_count`, with the number of its valid elements.
    keeps_rounds: the rounds of a Loop or Scan stay a loop in C, even if they are few.
    natural_maxima: a maximum size that is neither given nor declared is derived from the inputs' shapes.
    states: pairs of an output and the input of the next run that it feeds; they stay in the arena between runs and
        are neither inputs nor outputs of the compiled model. A state starts with the initialiser of the input's name,
        if the model has one, otherwise with zeros, which for a quantized state are its zero point.
    state_values: other initial values of states, as stored, by the input's name: one number or all elements.
    slides: inputs that are windows over a sequence; the caller passes the rows that are new in each call.
    whole: the graph is for backends to recognise operators in, not to be compiled: operators of a TFLite model that
        are otherwise unrolled are one node each.
    limits: limits on the import that replace the defaults, by the names of mtool/compiler/operators/budget.py.
    name: the model's name in C; empty: derived from the file's name.
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
    slides: tuple[Slide, ...] = ()
    whole: bool = False
    limits: Mapping[str, checked.Count] = field(default_factory=dict)
    name: str = ""


DEFAULTS = ModelOptions()


def slides_of(texts: Sequence[str] | None) -> tuple[Slide, ...]:
    """Return inputs that are windows, from INPUT=HOP or INPUT=HOP@AXIS.

    Raises:
        UsageError: a text has another form.
    """
    slides = []
    for text in texts or ():
        match = re.fullmatch(r"(.+)=(\d{1,9})(?:@(\d{1,2}))?", text, re.ASCII)
        if match is None:
            raise UsageError(
                f"--slide {text}: expected INPUT=HOP or INPUT=HOP@AXIS",
                hint="name an input and the number of rows that are new in each call: --slide spectrogram=1",
            )
        slides.append(Slide(match[1], int(match[2]), None if match[3] is None else int(match[3])))
    return tuple(slides)
