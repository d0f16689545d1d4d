"""The fragility lens (seed 4): where does one pixel of shift, or two of shrink, flip the answer?

Every square window of an image is asked about, and the smaller windows inside; their answers are maps, and where
neighbours in them differ, recognition is fragile. Maps are kept as files beside the rows; a row counts the fragile windows
of one image, size and kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Literal
from urllib.parse import quote

import torch
from pydantic import Field, field_validator, model_validator
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
from brinell.lenses.fragility.windows import SMALLEST, Grid, Neighbourhood, called, window_side
from brinell.lenses.lens import (
    LENSES,
    Again,
    Asking,
    Categorical,
    Change,
    Files,
    Lens,
    LensOptions,
    Nullable,
    Outcome,
    Shard,
    Trials,
)
from brinell.perturb.view import View
from brinell.perturb.windows import location_view, window_view
from brinell.registry import nearest
from brinell.types import id_text

LOOKS = {
    "windows": "all square windows of a size, and the smaller ones inside",
    "location": "the whole image, made small, at every place of a black model_input",
    "minimal": "a tree search for the smallest windows that are still recognised",
}
WINDOWS, LOCATION, MINIMAL = LOOKS
PIECE = 16_384  # windows that are asked about at once: what is lost when a run is stopped
UNIT = 16_384  # windows of a unit, as far as images allow


class FragilityOptions(LensOptions):
    """Which windows are asked about, and what counts as a small change.

    `operators`: "windows" of the image; "location", the whole image, small, on a black model input; "minimal", a search for
    minimal images. `sizes` are shares P of the shorter side in (0, 1], or pixels. With a `stride` one window in stride² is
    judged, each by its neighbours one pixel away. `fit` brings windows to the model's input: resized as Pillow does
    ("bilinear" …), padded with black ("pad"), or by the model's "own" preprocessing. A shift goes to 8 or 4 `neighbours`.
    The search shrinks windows to the share `step` (a whole number above 1: by so many pixels) and follows the `beam` most
    confident of each image. `layers` of a torch model are those whose activations are shown for a pair of windows: without
    names, its first and its last convolution.
    """

    name: Literal["fragility"] = "fragility"
    operators: tuple[str, ...] = (WINDOWS,)
    sizes: tuple[float, ...] = Field((0.2, 0.4, 0.6, 0.8), min_length=1)
    stride: int = Field(1, ge=1)
    fit: Literal["bilinear", "bicubic", "lanczos", "nearest", "pad", "own"] = "bilinear"
    neighbours: Literal[8, 4] = 8
    step: float = Field(0.8, gt=0, le=64)
    beam: int = Field(500, ge=1)
    layers: tuple[str, ...] = ()

    @field_validator("sizes", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [value] if isinstance(value, (int, float, str)) else value

    @field_validator("sizes")
    @classmethod
    def _possible(cls, sizes: tuple[float, ...]) -> tuple[float, ...]:
        for size in sizes:
            if not (0 < size <= 1 or (size > 1 and size.is_integer())):
                raise ConfigError(
                    f"a size is a share of the shorter side in (0, 1], or a whole number of pixels; not {size:g}"
                )
            if 1 < size < SMALLEST:
                raise ConfigError(f"windows of {size:g} pixels can't be shrunk by two; take {SMALLEST} or more")
        return tuple(dict.fromkeys(sizes))

    @model_validator(mode="after")
    def _searchable(self) -> FragilityOptions:
        if self.step > 1 and not self.step.is_integer():
            raise ConfigError(f"a step is a share of a window's side, or a whole number of pixels; not {self.step:g}")
        if self.fit == "pad" and {MINIMAL, "all"} & set(self.operators):
            raise ConfigError(
                "the search for minimal images begins at the whole image, which can't be padded; use another fit"
            )
        return self


def fragility(shard: Shard, operator: View, options: LensOptions) -> Asking:
    """Map every sample's windows, and count the fragile ones; or search its minimal images."""
    assert isinstance(options, FragilityOptions) and shard.sizes is not None
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


def _size(operator: View) -> float:
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


def _search(shard: Shard, operator: View, options: FragilityOptions) -> Asking:
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


def chosen_views(options: LensOptions) -> list[View]:
    """What is asked about: every size of windows and places, and the search."""
    assert isinstance(options, FragilityOptions)
    views = []
    for asked in options.operators:
        for look in LOOKS if asked == "all" else [asked]:
            if look not in LOOKS:
                raise ConfigError(f"the fragility lens has no {look!r} to look at; {nearest(look, [*LOOKS])}")
            sizes = [called(options.step)] if look == MINIMAL else [called(size) for size in options.sizes]
            views += [View(look, size, window_view(size, "own", 0, 0).inputs, compares=False) for size in sizes]
    return list({view.id: view for view in views}.values())


def windows_asked(options: LensOptions, operator: Change, image: tuple[int, int], model_input: tuple[int, int]) -> int:
    """How many windows of an image of a height and width are asked about; of a search, how many at most."""
    assert isinstance(options, FragilityOptions) and isinstance(operator, View)
    if operator.name == MINIMAL:
        descent = Descent(options.step, options.beam)
        return 3 + descent.generations(min(image)) * options.beam * (9 if options.step > 1 else 5)
    located = operator.name == LOCATION
    hood = _neighbourhood(_size(operator), model_input if located else image, model_input, options)
    return 0 if hood is None else sum(len(grid) for grid in _grids(hood, located))


def fits(options: LensOptions, sizes: Tensor, model_input: tuple[int, int]) -> list[str]:
    """What is to be said of images (their heights and widths, int64 (N, 2)) that are too small for a size of windows."""
    lines = []
    for operator in chosen_views(options):
        counts = [windows_asked(options, operator, (height, width), model_input) for height, width in sizes.tolist()]
        small = counts.count(0)
        if small == len(counts):
            smallest = tuple(sizes[sizes.amin(1).argmax()].tolist())
            assert isinstance(options, FragilityOptions)
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


def _named(options: FragilityOptions, name: str, size: tuple[int, int]) -> View:
    """Windows, or places, by their full name."""
    look, _, variant = name.partition(":")
    return location_view(variant, *size) if look == LOCATION else window_view(variant, options.fit, *size)


LENSES.add(
    "fragility",
    Lens(
        name="fragility",
        what="windows of an image whose answer one pixel of shift or two of shrink flips (ICLR 2019)",
        options=FragilityOptions,
        ask=fragility,
        operators=chosen_views,
        trials=lambda options, operator, *model_input: windows_asked(options, operator, model_input, model_input),
        originals=True,
        counted=windows_asked,
        fits=fits,
        trials_a_unit=UNIT,
        again=Again(_named),
    ),
)
