"""The fragility lens (fragile recognition, ICLR 2019): windows whose answer flips after one pixel of shift or two of
shrink.

Every square window of an image is queried, and the smaller windows inside it. The answers are maps; where neighbours
differ, recognition is fragile. Maps are stored as files next to the rows; a row counts the fragile windows of one
image, size and kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from urllib.parse import quote

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.fragility.counts import (
    CUT,
    MINIMAL_IMAGE,
    NO_END,
    NOT_RECOGNISED,
    STATES,
    TOO_SMALL,
    Row,
    columns_of,
    counted_rows,
)
from brinell.lenses.fragility.fragile import Answers
from brinell.lenses.fragility.maps import LEVELS, Maps, packed
from brinell.lenses.fragility.minimal import Descent, Windows, descend, first_windows
from brinell.lenses.fragility.options import LOCATION, MINIMAL, SMALLEST, VIEWS, FragilityOptions
from brinell.lenses.fragility.pictures import draw
from brinell.lenses.fragility.windows import Grid, Neighbourhood, called, opposite_windows, window_side
from brinell.lenses.method import Categorical, Files, Measuring, Method, Nullable, Outcome, Shard, Size, Trials
from brinell.models.activations import activations
from brinell.models.model import Model, probe_images
from brinell.perturb.change import Change
from brinell.perturb.view import View
from brinell.perturb.windows import PARAMETERS, location_view, title_of, window_view
from brinell.registry import nearest
from brinell.types import id_text

PIECE = 16_384  # windows that are asked about at once: what is lost when a run is stopped
UNIT = 16_384  # windows of a unit, as far as images allow


def measure(shard: Shard, operator: View, options: FragilityOptions) -> Measuring:
    """Map every sample's windows and count the fragile ones; or search its minimal images."""
    assert shard.sizes is not None
    located = operator.name == LOCATION
    if shard.clean.detections is not None and (located or options.fit == "own"):
        raise ConfigError(
            f"{shard.model} is a detector, whose boxes follow windows that are resized or padded, and no others"
        )
    if operator.name == MINIMAL:
        return (yield from _search(shard, operator, options))
    size = _size(operator)
    if located:
        view = location_view(operator.variant, shard.height, shard.width)
    else:
        view = window_view(operator.variant, options.fit, shard.height, shard.width)
    frames = [(shard.height, shard.width)] * shard.count if located else shard.sizes.tolist()
    hoods = [_neighbourhood(size, frame, (shard.height, shard.width), options) for frame in frames]
    grids = [(sample, grid) for sample, hood in enumerate(hoods) if hood for grid in _grids(hood, located)]
    answers = yield from _answered(shard, view, grids)
    rows: list[Row] = []
    files = {}
    for sample, hood in enumerate(hoods):
        if hood is None:
            rows.append({"sample": sample, "status": TOO_SMALL, "side": window_side(size, *frames[sample])})
            continue
        large = next(answers)
        small = None if located else next(answers)
        counted = counted_rows(hood, large, small, _box(shard, sample, located), options.neighbours)
        rows += [{"sample": sample, **row} for row in counted]
        name = f"{quote(shard.model, safe='')}/{quote(operator.id, safe='')}/{id_text(int(shard.ids[sample]))}.npz"
        files[name] = packed(Maps(large, small, options.stride))
    return columns_of(rows) | {"files": Files(files)}


def _size(operator: Change) -> float:
    return float(operator.variant.removesuffix("px"))


def _neighbourhood(
    size: float, frame: tuple[int, int], model_input: tuple[int, int], options: FragilityOptions
) -> Neighbourhood | None:
    """The windows of an image, or None where they don't fit into it, or it is too small for them to shrink."""
    side = window_side(size, *frame)
    if not SMALLEST <= side <= min(frame) or (options.fit == "pad" and side > min(model_input)):
        return None
    return Neighbourhood.of(side, *frame, options.stride)


def _grids(hood: Neighbourhood, located: bool) -> list[Grid]:
    return [hood.shifted] if located else [hood.shifted, hood.shrunk]


def _answered(shard: Shard, view: View, grids: list[tuple[int, Grid]]) -> Generator[Trials, Outcome, Iterator[Answers]]:
    """The answers to grids of windows of samples, one grid after the other."""
    read: list[tuple[Tensor, ...]] = []
    if grids:
        samples = torch.cat([torch.full((len(grid),), sample) for sample, grid in grids])
        corners = torch.cat([grid.corners() for _, grid in grids])
        sides = torch.cat([torch.full((len(grid), 1), grid.side) for _, grid in grids])
        parameters = torch.cat([corners, sides], 1).to(torch.float64)
        for start in range(0, len(samples), PIECE):
            part = slice(start, start + PIECE)
            outcome = yield Trials(samples[part], view, parameters[part])
            verdict = outcome.verdict
            of_windows = (~outcome.broken, verdict.prediction, verdict.probability, verdict.rank.clamp(max=LEVELS))
            read.append(tuple(values.cpu() for values in of_windows))

    def by_grid() -> Iterator[Answers]:
        lengths = [len(grid) for _, grid in grids]
        columns = [torch.split(torch.cat(values), lengths) for values in zip(*read, strict=True)]
        for (_, grid), *values in zip(grids, *columns, strict=True):
            yield Answers(grid, *(grid.as_map(each) for each in values))

    return by_grid()


def _box(shard: Shard, sample: int, located: bool) -> Tensor | None:
    """Where the object is, in the image's own pixels, if anyone knows."""
    if shard.boxes is None or located or bool(shard.boxes[sample].isnan().any()):
        return None
    return shard.boxes[sample]


def _search(shard: Shard, operator: View, options: FragilityOptions) -> Measuring:
    """A row for each minimal image, and one for each image without any, which tells why."""
    assert shard.sizes is not None
    view = window_view(operator.variant, options.fit, shard.height, shard.width)
    found = yield from descend(view, first_windows(shard.sizes), Descent(options.step, options.beam))
    windows = Windows(
        torch.cat([part.sample for part, *_ in found.parts] or [torch.zeros(0, dtype=torch.int64)]),
        torch.cat([part.corner for part, *_ in found.parts] or [torch.zeros(0, 2, dtype=torch.int64)]),
        torch.cat([part.side for part, *_ in found.parts] or [torch.zeros(0, dtype=torch.int64)]),
    )
    queries = torch.cat(found.queries).bincount(minlength=shard.count)
    without = torch.tensor([sample for sample in range(shard.count) if not bool((windows.sample == sample).any())])
    samples = torch.cat([windows.sample, without.to(torch.int64)])
    there = torch.arange(len(samples)) < len(windows)
    cut = torch.tensor([int(sample) in found.cut for sample in samples])
    empty = torch.zeros(len(without), dtype=torch.int64)
    ending = torch.tensor([NO_END if int(sample) in found.bottom else NOT_RECOGNISED for sample in samples])
    sure = torch.cat([torch.zeros(0), *(confidence for _, confidence, _ in found.parts)])
    label = torch.cat([torch.zeros(0, dtype=torch.int64), *(each for _, _, each in found.parts)])
    return {
        "sample": samples,
        "status": Categorical(torch.where(cut, CUT, torch.where(there, MINIMAL_IMAGE, ending)), STATES),
        "side": Nullable(torch.cat([windows.side, empty]), there),
        "x": Nullable(torch.cat([windows.corner[:, 0], empty]), there),
        "y": Nullable(torch.cat([windows.corner[:, 1], empty]), there),
        "probability": Nullable(torch.cat([sure, empty.to(torch.float32)]), there),
        "prediction": Nullable(torch.cat([label, empty]), there),
        "queries": queries[samples],
    }


def select_views(options: FragilityOptions) -> list[View]:
    """Return the views that the options name: every size of windows and locations, and the minimal search."""
    views = []
    for given in options.operators:
        for name in VIEWS if given == "all" else [given]:
            if name not in VIEWS:
                raise ConfigError(f"the fragility lens has no operator {name!r}; {nearest(name, [*VIEWS])}")
            sizes = [called(options.step)] if name == MINIMAL else [called(size) for size in options.sizes]
            look = window_view("", "own", 0, 0).look
            views += [View(name, size, look, title_of(name, size), PARAMETERS, "pixels", compares=False) for size in sizes]
    return list({view.id: view for view in views}.values())


def count_windows(options: FragilityOptions, operator: Change, image: Size, model_input: Size) -> int:
    """Return how many windows of an image are queried; for the minimal search, at most."""
    if operator.name == MINIMAL:
        descent = Descent(options.step, options.beam)
        return 3 + descent.generations(min(image)) * options.beam * (9 if options.step > 1 else 5)
    located = operator.name == LOCATION
    hood = _neighbourhood(_size(operator), model_input if located else image, model_input, options)
    return 0 if hood is None else sum(len(grid) for grid in _grids(hood, located))


def check(options: FragilityOptions, model: Model, sizes: Tensor) -> list[str]:
    """Return warnings about images (heights and widths, int64 (N, 2)) that are too small for a size; raise if all are."""
    if options.layers and model.detector is None:
        activations(model, probe_images(model.preprocess), options.layers)  # raises if the layers don't exist
    lines = []
    model_input = model.preprocess.height, model.preprocess.width
    for operator in select_views(options):
        counts = [count_windows(options, operator, (height, width), model_input) for height, width in sizes.tolist()]
        small = counts.count(0)
        if small == len(counts):
            smallest = tuple(sizes[sizes.amin(1).argmax()].tolist())
            side = window_side(_size(operator), *smallest)
            why = f"windows of {side} pixels in images of at most {smallest[1]}×{smallest[0]}"
            if operator.name == LOCATION:
                side = window_side(_size(operator), *model_input)
                why = f"objects of {side} pixels on a model_input of {model_input[1]}×{model_input[0]}, the model's input"
            if options.fit == "pad" and side > min(model_input):
                why += f", padded to {model_input[1]}×{model_input[0]}"
            raise ConfigError(f"size {operator.variant} fits no image: {why}; a window needs {SMALLEST} pixels and room")
        if small:
            lines.append(f"{small} of {len(counts)} images are too small for windows of size {operator.variant}")
    return lines


def replay(options: FragilityOptions, name: str, size: Size) -> View:
    """Return windows or locations by their id."""
    view, _, variant = name.partition(":")
    return location_view(variant, *size) if view == LOCATION else window_view(variant, options.fit, *size)


METHOD = Method(
    changes=select_views,
    measure=measure,
    trials=count_windows,
    replay=replay,
    by_window=True,
    with_originals=True,
    trials_per_unit=UNIT,
    check=check,
    draw=draw,
    opposite=opposite_windows,
)
