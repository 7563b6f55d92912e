"""Why an operator that has no translation can't be compiled."""

_COMPILED = {
    "edgetpu-custom-op": "it is a network for a Coral Edge TPU alone: give the model that edgetpu_compiler was given",
    "ethos-u": "it is a network for an Arm Ethos-U alone: give the model that Vela was given",
}


def reason(kind: str) -> str:
    """Return why there is no translation of an operator; `kind` is as `Operator` has it."""
    if kind == "STABLEHLO_COMPOSITE":
        return "its decomposition is no subgraph of the file, or has other numbers of inputs and outputs"
    custom = kind.removeprefix("CUSTOM ")
    if custom == kind:
        return "not supported"
    if custom in _COMPILED:
        return _COMPILED[custom]
    if custom.startswith("Flex"):
        return "it is an operator of TensorFlow itself: convert with target_spec.supported_ops of TFLITE_BUILTINS alone"
    return "it is a custom operator, which only the runtime that the model was made for has"
