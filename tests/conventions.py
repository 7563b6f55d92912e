"""The calling conventions and executors whose C the tests inspect, by name."""

from mtool.compiler import codegen

CONVENTIONS = {
    "c": codegen.conventions(),
    "packed": codegen.conventions("packed", "packed"),
    "step": codegen.conventions("step", "pointers"),
    "values": codegen.conventions("c", "values"),
    "graph": codegen.conventions(executor="graph"),
}
