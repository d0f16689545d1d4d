"""Shapes of plain data, written as they look, and as JSON Schema.

A shape is a type (`str`, `int`, `float`, `bool`, `X | None`, a dataclass of these), `[SHAPE]` for a list, `{str: SHAPE}`
for a mapping from names, or `{"key": SHAPE, …}` for an object; a key that ends in "?" may be missing. A float that is not
finite is null in JSON, so every float may be.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Shape = Any
Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": ["number", "null"]},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


def to_schema(shape: Shape) -> Schema:
    """Return a shape as JSON Schema (draft 2020-12). Objects may have further keys: later versions add some."""
    if isinstance(shape, list):
        return {"type": "array", "items": to_schema(shape[0])}
    if isinstance(shape, dict):
        return _object_schema(shape)
    if shape in _PLAIN:
        return dict(_PLAIN[shape])
    if isinstance(shape, type) and is_dataclass(shape):
        hints = get_type_hints(shape)
        return _object_schema({field.name: hints[field.name] for field in fields(shape)})
    return _generic_schema(get_origin(shape), get_args(shape))


def _object_schema(shape: dict[Any, Shape]) -> Schema:
    if list(shape) == [str]:
        return {"type": "object", "additionalProperties": to_schema(shape[str])}
    return {
        "type": "object",
        "properties": {key.removesuffix("?"): to_schema(each) for key, each in shape.items()},
        "required": [key for key in shape if not key.endswith("?")],
    }


def _generic_schema(origin: Any, arguments: tuple[Any, ...]) -> Schema:
    if origin in (Union, types.UnionType):
        found = [to_schema(each) for each in arguments]
        if all(isinstance(each.get("type"), str) and len(each) == 1 for each in found):
            return {"type": [each["type"] for each in found]}
        return {"anyOf": found}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple, Sequence):
        same = len(arguments) == 1 or arguments[-1] is Ellipsis or len(set(arguments)) == 1
        return {"type": "array", "items": to_schema(arguments[0]) if same else {"anyOf": [to_schema(a) for a in arguments]}}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": to_schema(arguments[1])}
    raise TypeError(f"no schema for {origin} of {arguments}")
