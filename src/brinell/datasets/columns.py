"""Columns of tables about images: which ones brinell reads, and what they say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from brinell.errors import DataError
from brinell.types import Label, Origin

PATH_COLUMNS = ("file_name", "path", "file", "image", "filename", "filepath", "image_path")
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target", "wnid", "synset", "label_name")
MASK_COLUMN = "mask"
CREDITS = (
    "author", "artist", "creator", "photographer", "attribution", "credit", "licence", "license", "copyright",
    "source_url", "flickr_url", "coco_url", "url",
)  # fmt: skip
LONGEST = 200  # characters: longer texts are captions, and no slices
NESTED = ("attributes", "extra")  # objects of further facts, as annotation tools write them
# what brinell reads by itself, and what tells every image apart
_KNOWN = {
    *PATH_COLUMNS,
    *LABEL_COLUMNS,
    *CREDITS,
    MASK_COLUMN,
    "id",
    "objects",
    "original",
    "variant",
    "original_id",
    "width",
    "height",
}


def find_credits(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return those facts about an image that name its author or licence."""
    return {name: str(facts[name]) for name in CREDITS if facts.get(name) not in (None, "")}


def find_metadata(facts: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, str]:
    """Return those facts about an image that are short texts, numbers or yes and no, as text."""
    nested = [facts[name] for name in NESTED if isinstance(facts.get(name), Mapping)]
    every = {key: value for each in (facts, *nested) for key, value in each.items()}
    found = {str(key): _to_text(value) for key, value in every.items() if key not in _KNOWN and key not in without}
    return {key: value for key, value in found.items() if value}


def _to_text(value: Any) -> str:
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:  # of NumPy
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if value == value else ""
    return str(value) if isinstance(value, int) or (isinstance(value, str) and len(value) <= LONGEST) else ""


def read_origin(row: Mapping[str, Any]) -> Origin | None:
    """Return the origin that a row of metadata names."""
    original = text_or_none(row.get("original_id"))
    return None if original is None else Origin(original, text_or_none(row.get("operator")))


def text_or_none(value: Any) -> str | None:
    """Return a cell as text; None if it is empty."""
    return None if value is None or value == "" else str(value)


def read_label(value: Any) -> Label | None:
    """Return a label of a table: a whole number is an index, other text is a name."""
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(f"expected a label that is a whole number or text, got {value!r}")
    return int(value) if isinstance(value, str) and value.isdecimal() else value
