"""The two files of a region: its nodes and its constants, as JSON. docs/backends-json.md describes them."""

import base64
import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.json.claiming import dtype_of
from mtool.compiler.backends.operation import Activation, Operand, Operation
from mtool.compiler.operators.window import CONV
from mtool.version import __version__

VERSION_OF_SCHEMA = 1
"""Another number if a reader of the old files would misread the new ones; new keys alone do not change it."""
_IMAGES = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
_IMAGES_FIRST = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
_FILTERS = {3: "OIW", 4: "OIHW", 5: "OIDHW"}


def files_of(region: Region, mode: str) -> dict[str, bytes]:
    """Return `<region>.nodes.json` and `<region>.constants.json`.

    Args:
        region: the region.
        mode: "int8": tensors as they are; "float16": float32 tensors are float16.
    """
    writer = _Writer(region, mode)
    nodes, constants = writer.nodes(), writer.constants()
    return {
        f"{region.name}.nodes.json": _text(nodes),
        f"{region.name}.constants.json": _text(constants),
    }


def node_name(region: Region, number: int) -> str:
    """Return what the files call an operation of a region, by its place there."""
    return f"{region.name}_n{number}"


def _text(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, indent=1, allow_nan=False) + "\n").encode()


class _Writer:
    def __init__(self, region: Region, mode: str) -> None:
        self.region, self.mode, self.half = region, mode, mode == "float16"
        self.numbers: dict[tuple[str, bool], int] = {}
        self.tensors: list[dict[str, Any]] = []
        self.data: dict[str, dict[str, Any]] = {}

    def head(self) -> dict[str, Any]:
        return {
            "schema": {"name": "mtool-region", "version": VERSION_OF_SCHEMA},
            "producer": f"mtool {__version__}",
            "model": self.region.model,
            "region": self.region.name,
        }

    def nodes(self) -> dict[str, Any]:
        region = self.region
        inputs = [self.tensor(one) for one in region.inputs]
        made = [self.node(number, one) for number, one in enumerate(region.operations)]
        return {
            **self.head(),
            "mode": self.mode,
            "board": region.context.board,
            "rounding": region.context.rounding,
            "tolerance": region.context.tolerance,
            "inputs": inputs,
            "outputs": [self.tensor(one) for one in region.outputs],
            "tensors": self.tensors,
            "nodes": made,
        }

    def constants(self) -> dict[str, Any]:
        return {**self.head(), "constants": self.data}

    def node(self, number: int, operation: Operation) -> dict[str, Any]:
        layouts = [_layout(operation, place, one) for place, one in enumerate(operation.inputs)]
        result = _image(operation.layout, len(operation.output.shape))
        return {
            "name": node_name(self.region, number),
            "op": operation.kind,
            "operation": operation.name,
            "origins": list(operation.origins),
            "inputs": [
                None if one is None else self.tensor(one, layout)
                for one, layout in zip(operation.inputs, layouts, strict=True)
            ],
            "outputs": [self.tensor(one, result) for one in operation.outputs],
            "layout": operation.layout,
            "activation": _activation(operation.activation),
            "attributes": {one.name: _plain(getattr(operation.attrs, one.name))
                           for one in dataclasses.fields(operation.attrs)},
            "macs": operation.macs,
        }  # fmt: skip

    def tensor(self, operand: Operand, layout: str = "") -> int:
        """Return the number of a tensor; the layout is told by the operator that heeds it."""
        key = operand.value, operand.is_constant
        if key not in self.numbers:
            self.numbers[key] = len(self.tensors)
            self.tensors.append(
                {
                    "name": operand.value,
                    "tensor": operand.tensor,
                    "dtype": dtype_of(operand, self.half).label,
                    "shape": list(operand.shape),
                    "layout": "",
                    "quantisation": _grid(operand),
                    "constant": self.constant(operand) if operand.is_constant else None,
                }
            )
        number = self.numbers[key]
        self.tensors[number]["layout"] = self.tensors[number]["layout"] or layout
        return number

    def constant(self, operand: Operand) -> str:
        assert operand.data is not None
        dtype = dtype_of(operand, self.half)
        with np.errstate(over="ignore"):
            data = np.ascontiguousarray(operand.data).astype(dtype.numpy)
        name = f"c{len(self.data)}"
        little = data.astype(data.dtype.newbyteorder("<")) if data.dtype.itemsize > 1 else data
        self.data[name] = {
            "tensor": operand.tensor,
            "dtype": dtype.label,
            "shape": list(operand.shape),
            "encoding": "base64",
            "data": base64.b64encode(little.tobytes()).decode("ascii"),
        }
        return name


def _grid(operand: Operand) -> dict[str, Any] | None:
    quant = operand.quant
    if quant is None:
        return None
    return {"scale": list(quant.scale), "zero_point": list(quant.zero_point), "axis": quant.axis}


def _activation(activation: Activation | None) -> dict[str, Any] | None:
    return None if activation is None else {"low": _plain(activation.low), "high": _plain(activation.high)}


def _image(layout: str, rank: int) -> str:
    return {"NHWC": _IMAGES, "NCHW": _IMAGES_FIRST}.get(layout, {}).get(rank, "")


def _layout(operation: Operation, place: int, operand: Operand | None) -> str:
    if operand is None:
        return ""
    rank = len(operand.shape)
    if place == 0:
        return _image(operation.layout, rank)
    if place != 1 or not operation.layout:
        return ""
    filters = _FILTERS.get(rank, "")
    return {CONV: filters, "ConvTranspose": filters.replace("OI", "IO")}.get(operation.kind, "")


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it; what has no form there becomes a text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return str(value)
