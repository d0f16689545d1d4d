"""Text from strangers. YAML and JSON: no key twice, nothing that grows without end, and one error for what is invalid."""

from __future__ import annotations

import json
from typing import Any

import yaml

MAX_YAML = 2_000_000  # characters
MAX_DEPTH = 100
MAX_VALUES = 200_000  # in a YAML document, aliases written out

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times faster


class _Loader(_Base):  # type: ignore[misc]
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return a mapping, and raise if a key is given twice."""
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """Return the content of a YAML document, and raise a `ValueError` that says in one line why it is invalid."""
    if len(text) > MAX_YAML:
        raise ValueError(f"it has {len(text):,} characters, and may have {MAX_YAML:,}")
    try:
        if _depth(text) > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        found = yaml.load(text, _Loader)
        size = _size(found, {})
    except RecursionError:
        raise ValueError("it contains itself") from None
    except (yaml.YAMLError, ValueError) as error:  # an impossible date is a ValueError
        raise ValueError(" ".join(str(error).split())) from None
    if size > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values when its aliases are written out")
    return found


def load_json(text: str | bytes, *, unique: bool = False) -> Any:
    """Return the content of a JSON document, and raise a `ValueError` if it is invalid; `unique`: no key may come twice."""
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def printable(text: str) -> str:
    """Return a text as one line without control characters, which a terminal would obey."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return found


def _depth(text: str) -> int:
    """Return how deeply a YAML document is nested; building it in C would overflow the stack."""
    depth = deepest = 0
    for event in yaml.parse(text, _Base):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            deepest = max(deepest, depth)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
    return deepest


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values in a value; parts that are shared are counted once for each place."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]
