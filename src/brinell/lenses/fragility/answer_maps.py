"""A photograph's maps for the viewer: right or wrong, confidence and fragile windows, size by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from brinell.lenses.answer_maps import BINS, RIGHT_OR_WRONG, AnswerMap, Layer, confidence_layer
from brinell.lenses.fragility.fragile import find_fragile
from brinell.lenses.fragility.maps import Maps, map_file, unpack
from brinell.lenses.fragility.names import KINDS, WINDOWS
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.runs.run import Run

FLIPS = ("stays", "right becomes wrong", "wrong becomes right")


def read_answer_maps(run: Run, options: Mapping[str, Any], model: str, image: str) -> list[AnswerMap]:
    """Return the maps of an image, one per size of windows."""
    operators = [name for name in run.manifest.get("operators", {}) if name.startswith(f"{WINDOWS}:")]
    ((height, width),) = run.query("select height, width from samples where image = $image limit 1", {"image": image})
    found = []
    for operator in operators:
        file = map_file(model, operator, image)
        if run.store.exists(*file):
            maps = unpack(run.store.read(*file))
            found.append(_answer_map(run, operator, maps, (height, width), options["neighbours"]))
    return found


def _answer_map(run: Run, operator: str, maps: Maps, size: tuple[int, int], neighbours: int) -> AnswerMap:
    hood = maps.windows(*size)
    tops, lefts, side = hood.judged.tops, hood.judged.lefts, hood.judged.side
    correct, label, confidence = (maps.large.at(tops, lefts, name)[0] for name in ("correct", "label", "confidence"))
    return AnswerMap(
        operator=operator,
        title=run.title(operator),
        size=side,
        xs=[float(left + side / 2) for left in lefts],
        ys=[float(top + side / 2) for top in tops],
        extent=side,
        parameters=("left", "top", side),
        predictions=_known(label.tolist(), hood),
        confidences=_known([[round(float(value), 3) for value in row] for row in confidence], hood),
        layers=(
            Layer("right or wrong", RIGHT_OR_WRONG, _known(correct.astype(int).tolist(), hood)),
            confidence_layer(confidence if hood.chosen is None else np.where(hood.chosen, confidence, np.nan), BINS),
            *_flips(hood, maps, neighbours),
        ),
    )


def _flips(hood: Neighbourhood, maps: Maps, neighbours: int) -> Iterator[Layer]:
    """Yield where a small move flips the answer."""
    for kind in KINDS:
        degree, move = kind.split()
        after = maps.large if move == "shift" else maps.small
        if after is not None:
            fragile = find_fragile(hood, maps.large, after, move, neighbours=neighbours)  # type: ignore[arg-type]
            yield Layer(kind, FLIPS, _known(np.mod(fragile.signs(degree), 3).tolist(), hood))


def _known(values: list[list[Any]], hood: Neighbourhood) -> list[list[Any]]:
    """Return a map with None where a budget chose no window."""
    if hood.chosen is None:
        return values
    rows = zip(values, hood.chosen, strict=True)
    return [[value if there else None for value, there in zip(*row, strict=True)] for row in rows]
