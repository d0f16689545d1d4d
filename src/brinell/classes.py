"""Class lists, and how a dataset's labels are matched with a model's outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from brinell.errors import LabelError
from brinell.registry import nearest
from brinell.types import Label

NO_ANSWER = "no valid answer"  # the class of what a chat model says that is none of its choices


@dataclass(frozen=True)
class Classes:
    """A model's class list. A name may contain synonyms separated by commas; `ids` are WordNet ids."""

    names: tuple[str, ...]
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def short_name(self, index: int) -> str:
        """Return the first synonym of a class, for display."""
        return self.names[index].split(",")[0].strip() if 0 <= index < len(self.names) else f"class {index}"

    def find(self, text: str) -> list[int]:
        """Return the indices that a text may mean: by WordNet id, by whole name, or by one of its synonyms."""
        return self._lookup.get(_normalise(text), [])

    @cached_property
    def _lookup(self) -> dict[str, list[int]]:
        whole: dict[str, list[int]] = {}
        parts: dict[str, list[int]] = {}
        for index, name in enumerate(self.names):
            whole.setdefault(_normalise(name), []).append(index)
            for part in name.split(","):
                parts.setdefault(_normalise(part), []).append(index)
        for index, identity in enumerate(self.ids):
            whole.setdefault(_normalise(identity), []).append(index)
        return parts | whole  # a whole name takes precedence over a synonym of another class


def _normalise(text: str) -> str:
    """Ignore case, and treat underscores, hyphens and runs of spaces as one space."""
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def align(
    labels: Iterable[Label], *, own: tuple[str, ...] | None, model: Classes | None, outputs: int, by_index: bool = False
) -> dict[Label, int]:
    """Map each distinct label of a dataset to the index of a model's output, and raise if some don't match.

    `own` are the dataset's names of its integer labels; with `by_index` integers are used as they are.
    """
    found: dict[Label, int] = {}
    unknown: dict[str, None] = {}  # an ordered set
    for label in labels:
        if label in found:
            continue
        name: Label | None = label
        if own is not None and isinstance(label, int) and not by_index:
            name = (own[label] or None) if 0 <= label < len(own) else None
        index = _index(name, model, outputs) if name is not None else None
        if index is None:
            unknown[str(label if name is None else name)] = None
        else:
            found[label] = index
    if unknown:
        raise LabelError(_mismatch(list(unknown), model, outputs))
    return found


def _index(label: Label, model: Classes | None, outputs: int) -> int | None:
    """Return the index of the output that a label means, or None."""
    if isinstance(label, int):
        return label if 0 <= label < outputs else None
    candidates = model.find(label) if model is not None else []
    if len(candidates) > 1:
        entries = " and ".join(f"{index} ({model.names[index]!r})" for index in candidates if model)
        raise LabelError(
            f"the label {label!r} means more than one class of the model: {entries}; use class indices or WordNet ids"
        )
    if candidates:
        return candidates[0]
    if label.isdecimal() and int(label) < outputs:
        return int(label)
    return None


def _mismatch(unknown: list[str], model: Classes | None, outputs: int) -> str:
    """Return the error message for labels that don't match: what they are, what the model has, and what to do."""
    shown = ", ".join(repr(name) for name in unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
    if model is None:
        return (
            f"the labels {shown} are not indices 0..{outputs - 1}, and the model has no class names to look them up in; "
            "give the model its class list (?classes=FILE, one name per line), or use indices as labels"
        )
    known = ", ".join(repr(model.short_name(index)) for index in range(min(5, len(model))))
    hint = nearest(unknown[0], [model.short_name(index) for index in range(len(model))]) if len(model) <= 5000 else ""
    hint = f" ({hint})" if hint.startswith("did") else ""
    return (
        f"the labels {shown} are not among the model's {outputs} classes ({known}, …){hint}; use the model's class names, "
        "WordNet ids or indices, or set labels to 'index' or 'prediction'"
    )
