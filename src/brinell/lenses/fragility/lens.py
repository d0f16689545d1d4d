"""The fragility lens (fragile recognition, ICLR 2019): windows whose answer flips after one pixel of shift or two of
shrink.

Every square window of an image is queried, and the smaller windows inside it. The answers are maps; where neighbours
differ, recognition is fragile. Maps are stored as files next to the rows; a row counts the fragile windows of one
image, size and kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.fragility.chosen import ChosenWindows, QueriedGrid, choose_windows, complete
from brinell.lenses.fragility.counts import (
    CUT,
    MINIMAL_IMAGE,
    NO_END,
    NOT_RECOGNISED,
    STATUSES,
    TOO_SMALL,
    Row,
    count_rows,
    to_columns,
)
from brinell.lenses.fragility.fragile import WindowAnswers
from brinell.lenses.fragility.maps import LEVELS, Maps, pack
from brinell.lenses.fragility.minimal import Descent, descend, largest_windows
from brinell.lenses.fragility.names import LOCATION, MINIMAL, SHRINK, SMALLEST, VIEWS
from brinell.lenses.fragility.opposite import opposite_windows
from brinell.lenses.fragility.options import FragilityOptions
from brinell.lenses.fragility.pictures import draw
from brinell.lenses.fragility.windows import Array, Neighbourhood, format_size, stride_pixels, window_side
from brinell.lenses.method import Categorical, Files, Measuring, Method, Nullable, Outcome, Shard, Size, Trials
from brinell.models.activations import activations
from brinell.models.model import Model
from brinell.models.probe import probe_images
from brinell.perturb.change import Change
from brinell.perturb.view import View
from brinell.perturb.windows import PARAMETERS, location_view, title_of, window_view
from brinell.registry import VariantId, nearest
from brinell.types import id_text

PIECE = 16_384  # windows per query: what is lost when a run is interrupted
UNIT = 16_384  # windows per unit, as far as images allow


def measure(shard: Shard, operator: View, options: FragilityOptions) -> Measuring:
    """Map every sample's windows and count the fragile ones, or search its minimal images."""
    assert shard.sizes is not None
    located = operator.name == LOCATION
    followed = "boxes" if shard.clean.detections is not None else "masks" if shard.clean.overlap is not None else None
    if followed is not None and (located or options.fit == "own"):
        raise ConfigError(
            f"{shard.model} finds {followed}, which can only follow windows that are resized or padded; "
            'use the operator "windows" with another fit'
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
    strides = [stride_pixels(options.stride, *frame) for frame in frames]
    chosen = choose_windows(shard, operator, hoods, strides)
    grids = [part for sample, hood in enumerate(hoods) if hood for part in _grids(sample, hood, chosen[sample], located)]
    answers = yield from _query(view, grids)
    rows: list[Row] = []
    files = {}
    for sample, hood in enumerate(hoods):
        inclusion = chosen[sample].inclusion
        if hood is None:
            side = window_side(size, *frames[sample])
            rows.append({"sample": sample, "status": TOO_SMALL, "side": side, "inclusion": inclusion})
            continue
        large = next(answers)
        small = None if located else next(answers)
        if not inclusion:  # the budget has no window for this image
            continue
        name = f"{quote(shard.model, safe='')}/{quote(operator.id, safe='')}/{id_text(int(shard.ids[sample]))}.npz"
        maps = complete(Maps(large, small, strides[sample]), chosen[sample], shard.stored(name) if shard.resumed else None)
        hood = replace(hood, chosen=maps.chosen)
        counts = count_rows(hood, maps.large, maps.small, _box(shard, sample, located), neighbours=options.neighbours)
        rows += [{"sample": sample, "inclusion": inclusion, **row} for row in counts]
        files[name] = pack(maps)
    return to_columns(rows, sampled=shard.sampling is not None) | {"files": Files(files)}


def _size(operator: Change) -> float:
    return float(operator.variant.removesuffix("px"))


def _neighbourhood(size: float, frame: Size, model_input: Size, options: FragilityOptions) -> Neighbourhood | None:
    """Return the windows of an image; None if they don't fit into it, or are too small to shrink."""
    side = window_side(size, *frame)
    if not SMALLEST <= side <= min(frame) or (options.fit == "pad" and side > min(model_input)):
        return None
    return Neighbourhood.of(side, *frame, stride_pixels(options.stride, *frame))


def _grids(sample: int, hood: Neighbourhood, chosen: ChosenWindows, located: bool) -> list[QueriedGrid]:
    grids = [
        QueriedGrid(sample, grid, mask) for grid, mask in zip((hood.shifted, hood.shrunk), chosen.missing, strict=True)
    ]
    return grids[:1] if located else grids


def _query(view: View, grids: list[QueriedGrid]) -> Generator[Trials, Outcome, Iterator[WindowAnswers]]:
    """Query windows of samples and return the answers, one grid after the other."""
    answers: list[tuple[Array, ...]] = []
    counts = [grid.count for grid in grids]
    if sum(counts):
        samples = torch.tensor([grid.sample for grid in grids]).repeat_interleave(torch.tensor(counts))
        corners = torch.cat([torch.from_numpy(grid.corners()) for grid in grids])
        sides = torch.tensor([grid.grid.side for grid in grids]).repeat_interleave(torch.tensor(counts))[:, None]
        parameters = torch.cat([corners, sides], 1).to(torch.float64)
        for start in range(0, len(samples), PIECE):
            part = slice(start, start + PIECE)
            outcome = yield Trials(samples[part], view, parameters[part])
            verdict = outcome.verdict
            values = (~outcome.broken, verdict.prediction, verdict.probability, verdict.rank.clamp(max=LEVELS))
            answers.append(tuple(each.cpu().numpy() for each in values))
    columns = [np.split(np.concatenate(values), np.cumsum(counts)[:-1]) for values in zip(*answers, strict=True)]
    columns = columns or [[np.zeros(0, kind)] * len(grids) for kind in (bool, np.int64, np.float32, np.int64)]
    return (grid.answers(*values) for grid, *values in zip(grids, *columns, strict=True))


def _box(shard: Shard, sample: int, located: bool) -> Array | None:
    """Return the object's box in the image's own pixels, where it is known."""
    if shard.boxes is None or located or bool(shard.boxes[sample].isnan().any()):
        return None
    return shard.boxes[sample].numpy()


def _search(shard: Shard, operator: View, options: FragilityOptions) -> Measuring:
    """Return one row per minimal image, and one for each image without any, with the reason as its status."""
    assert shard.sizes is not None
    view = window_view(operator.variant, options.fit, shard.height, shard.width)
    found = yield from descend(view, largest_windows(shard.sizes), Descent(options.step, options.beam))
    windows = found.windows()
    queries = torch.cat(found.queries).bincount(minlength=shard.count)
    without = [sample for sample in range(shard.count) if not bool((windows.sample == sample).any())]
    samples = torch.cat([windows.sample, torch.tensor(without, dtype=torch.int64)])
    valid = torch.arange(len(samples)) < len(windows)
    cut = torch.tensor([int(sample) in found.cut for sample in samples])
    empty = torch.zeros(len(without), dtype=torch.int64)
    ending = torch.tensor([NO_END if int(sample) in found.bottom else NOT_RECOGNISED for sample in samples])
    return {
        "sample": samples,
        "status": Categorical(torch.where(cut, CUT, torch.where(valid, MINIMAL_IMAGE, ending)), STATUSES),
        "side": Nullable(torch.cat([windows.side, empty]), valid),
        "x": Nullable(torch.cat([windows.corner[:, 0], empty]), valid),
        "y": Nullable(torch.cat([windows.corner[:, 1], empty]), valid),
        "probability": Nullable(torch.cat([found.probabilities(), empty.to(torch.float32)]), valid),
        "prediction": Nullable(torch.cat([found.predictions(), empty]), valid),
        "queries": queries[samples],
    }


def select_views(options: FragilityOptions) -> list[View]:
    """Return the views that the options name: every size of windows and locations, and the minimal search.

    They name what is measured; `measure` makes the views that know the size of the model input.
    """
    look = window_view("", "own", 0, 0).look
    views = []
    for given in options.operators:
        for name in VIEWS if given == "all" else [given]:
            if name not in VIEWS:
                raise ConfigError(f"the fragility lens has no operator {name!r}; {nearest(name, [*VIEWS])}")
            sizes = [options.step] if name == MINIMAL else options.sizes
            for size in map(format_size, sizes):
                views.append(View(name, size, look, title_of(name, size), PARAMETERS, "pixels", same_scene=False))
    return list({view.id: view for view in views}.values())


def count_windows(options: FragilityOptions, operator: Change, image: Size, model_input: Size) -> int:
    """Return how many windows of an image are queried; for the minimal search, at most."""
    if operator.name == MINIMAL:
        descent = Descent(options.step, options.beam)
        return 3 + descent.generations(min(image)) * options.beam * (9 if options.step > 1 else 5)
    located = operator.name == LOCATION
    hood = _neighbourhood(_size(operator), model_input if located else image, model_input, options)
    return 0 if hood is None else len(hood.shifted) if located else len(hood)


def check(options: FragilityOptions, model: Model, sizes: Tensor) -> list[str]:
    """Return warnings about images (heights and widths, int64 (N, 2)) that are too small for a size; raise if all are."""
    if options.layers and model.detector is None:
        activations(model, probe_images(model.preprocess), options.layers)  # raises if the layers don't exist
    warnings = []
    model_input = model.preprocess.height, model.preprocess.width
    for operator in select_views(options):
        counts = [count_windows(options, operator, (height, width), model_input) for height, width in sizes.tolist()]
        small = counts.count(0)
        if small == len(counts):
            height, width = sizes[sizes.amin(1).argmax()].tolist()
            raise ConfigError(_describe_misfit(options, operator, (height, width), model_input))
        if small:
            warnings.append(f"{small} of {len(counts)} images are too small for windows of size {operator.variant}")
    return warnings


def _describe_misfit(options: FragilityOptions, operator: Change, largest: Size, model_input: Size) -> str:
    """Return why a size fits none of the images, of which the largest is given."""
    on_input = f"{model_input[1]}×{model_input[0]}"
    if operator.name == LOCATION:
        side = window_side(_size(operator), *model_input)
        reason = f"images of {side} pixels on a model input of {on_input}"
    else:
        side = window_side(_size(operator), *largest)
        reason = f"windows of {side} pixels in images of at most {largest[1]}×{largest[0]}"
    if options.fit == "pad" and side > min(model_input):
        reason += f", padded to {on_input}"
    return f"size {operator.variant} fits no image: {reason}; windows need at least {SMALLEST} pixels and must fit"


def sketch(options: FragilityOptions, times: float) -> FragilityOptions:
    """Return options with fewer windows: a larger stride, and a narrower minimal search."""
    stride = max(options.stride, round(options.stride * times**0.5))
    return options.model_copy(update={"stride": stride, "beam": max(4, round(options.beam / times))})


def replay(options: FragilityOptions, name: str, size: Size) -> View:
    """Return windows or locations by their id."""
    view, variant = VariantId.parse(name)
    return location_view(variant, *size) if view == LOCATION else window_view(variant, options.fit, *size)


METHOD = Method(
    changes=select_views,
    measure=measure,
    trials=count_windows,
    replay=replay,
    sketch=sketch,
    by_window=True,
    with_originals=True,
    trials_per_unit=UNIT,
    queries_per_cell=2 * (SHRINK + 1) ** 2,
    check=check,
    draw=draw,
    opposite=opposite_windows,
    catalogue=lambda: [Entry(name, (), description) for name, description in VIEWS.items()],
)
