"""An image's maps for the viewer: answers under a grid of spots, sigma by sigma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.lenses.answer_maps import RIGHT_OR_WRONG, AnswerMap, Layer, confidence_layer
from brinell.lenses.highlights.glare import LEAST
from brinell.runs.run import Run

_SPOTS = """
    select operator, sigma, strength, spot_x, spot_y, correct, prediction, probability from rows
    where lens = $lens and model = $model and image = $image and operator != $search and level > 0 and spot_x is not null
    order by operator, sigma, spot_y, spot_x
"""


def read_answer_maps(run: Run, options: Mapping[str, Any], model: str, image: str) -> list[AnswerMap]:
    """Return the maps of an image, one per grid and sigma."""
    given = {"lens": options["name"], "model": model, "image": image, "search": LEAST}
    groups: dict[tuple[str, float, float], list[tuple[Any, ...]]] = {}
    for operator, sigma, strength, *spot in run.query(_SPOTS, given):
        groups.setdefault((operator, sigma, strength), []).append(tuple(spot))
    return [_answer_map(run, *key, spots) for key, spots in groups.items()]


def _answer_map(run: Run, operator: str, sigma: float, strength: float, spots: list[tuple[Any, ...]]) -> AnswerMap:
    xs, ys = (sorted({spot[axis] for spot in spots}) for axis in (0, 1))
    by_place = {(x, y): rest for x, y, *rest in spots}
    table = [[by_place.get((x, y), (None, None, None)) for x in xs] for y in ys]
    right, predictions, confidences = ([[place[part] for place in row] for row in table] for part in range(3))
    known = [[float("nan") if value is None else value for value in row] for row in confidences]
    return AnswerMap(
        operator=operator,
        title=f"{run.title(operator)}, σ {sigma:.3g} px",
        size=sigma,
        xs=xs,
        ys=ys,
        extent=2 * sigma,
        parameters=("x", "y", sigma, strength),
        predictions=predictions,
        confidences=confidences,
        layers=(
            Layer("right or wrong", RIGHT_OR_WRONG, [[None if one is None else int(one) for one in row] for row in right]),
            confidence_layer(known),
        ),
    )
