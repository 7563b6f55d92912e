"""Streamed inputs: which input, and a row's place in memory, whatever the model's layout."""

import numpy as np
import pytest
from graphs import model
from onnx import helper

from mtool.base.errors import UsageError
from mtool.compiler import frontend
from mtool.compiler.ir import Graph, Stream
from mtool.compiler.passes.streamed_input import with_streamed_input

F = np.float32


def sums() -> Graph:
    """x and y as ONNX has images: 3 channels, second."""
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("MaxPool", ["s"], ["z"], kernel_shape=[2, 2])]
    return frontend.from_proto(model(nodes, {"x": (F, (1, 3, 6, 4)), "y": (F, (1, 3, 6, 4))}, ["z"], {}), "test")


def test_the_input_is_one_that_is_there() -> None:
    with pytest.raises(UsageError, match="which input is streamed"):
        with_streamed_input(sums(), "")
    with pytest.raises(UsageError, match="unknown input"):
        with_streamed_input(sums(), "w")


def test_pixels_of_an_image_of_channels_lie_side_by_side() -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["z"], kernel_shape=[2, 2])]
    graph = with_streamed_input(frontend.from_proto(model(nodes, {"x": (F, (1, 3, 6, 4))}, ["z"], {}), "test"), "")
    assert graph.stream == Stream("x", (0, 2, 3, 1))
    assert graph.types["x"].shape == (1, 6, 4, 3)
    assert [node.op.lower() for node in graph.nodes] == ["transpose", "pool"]


def test_rows_of_what_is_not_an_image_stay() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["z"])]
    graph = with_streamed_input(frontend.from_proto(model(nodes, {"x": (F, (1, 6, 4, 3))}, ["z"], {}), "test"), "x")
    assert graph.stream == Stream("x") and graph.types["x"].shape == (1, 6, 4, 3)
