"""The strings of an ONNX file: each has to be text in UTF-8, which the format says and protobuf does not check."""

from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from mtool.base.errors import ModelError


def check_strings(model: onnx.ModelProto, title: str) -> None:
    """Check every name, domain and description of a model.

    Raises:
        ModelError: one is not UTF-8; the message says of what it is.
    """
    left: list[Any] = [model]
    while left:
        message = left.pop()
        for field, value in _fields(message):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                left += value if _is_repeated(value) else [value]
            elif field.type == FieldDescriptor.TYPE_STRING:
                for text in value if _is_repeated(value) else [value]:
                    if not isinstance(text, str):
                        raise ModelError(
                            f"{title} holds a name that is no text",
                            details=[f"{message.DESCRIPTOR.name}.{field.name}: {text[:60]!r}", "expected  UTF-8"],
                            hint="export it again, with plain names",
                        )


def _fields(message: Any) -> list[tuple[FieldDescriptor, Any]]:
    """Return the fields that a message has; of a tensor's all but its elements, which would be copied."""
    if not isinstance(message, onnx.TensorProto):
        return list(message.ListFields())
    fields = message.DESCRIPTOR.fields_by_name
    return [(fields[name], getattr(message, name)) for name in ("name", "doc_string", "external_data")]


def _is_repeated(value: object) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
