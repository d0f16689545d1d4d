"""What holds of motions on an accelerator: the CPU's images, scores and findings, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.lenses.geometry.lens import measure
from brinell.lenses.geometry.options import GeometryOptions, SearchMethod
from brinell.motion import paths
from brinell.motion.frames import Frames
from brinell.motion.geodesic import geodesic_scores, trace_rays
from brinell.motion.groups import GROUPS, Group
from brinell.motion.jacobian import flows, gram, jacobian
from brinell.perturb.motion import Motion

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

groups = pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))


def pictures(count: int = 4, channels: int = 3, side: int = 48) -> Tensor:
    coarse = torch.rand(count, channels, 6, 6, generator=torch.Generator().manual_seed(3)) * 255
    return nn.functional.interpolate(coarse, (side, side), mode="bicubic").clamp(0, 255).to(torch.uint8)


@groups
def test_the_same_motions_as_on_the_cpu(group: Group) -> None:
    images = pictures().float() / 255
    motion = torch.randn(4, group.dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 0.02
    here, there = Frames.of(images), Frames.of(images.cuda())
    matrices = group.exp(motion)
    assert torch.allclose(there.move(matrices).cpu(), here.move(matrices), atol=1e-4)
    assert torch.allclose(geodesic_scores(there, group, motion).cpu(), geodesic_scores(here, group, motion), rtol=1e-3)
    products = [gram(jacobian(frames.images, frames, flows(group, frames))).cpu() for frames in (here, there)]
    assert torch.allclose(*products, rtol=1e-3)
    way = motion / motion.norm(dim=1, keepdim=True)
    rays = [trace_rays(frames, group, way, torch.tensor([0.1, 0.3])).reach.cpu() for frames in (here, there)]
    assert torch.allclose(*rays, rtol=1e-2)


@groups
def test_the_kernel_measures_the_paths_of_moved_images(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """With smaller images on the same canvas; and what it finds for an image does not depend on the others."""
    sizes = torch.tensor([[70, 90], [70, 41], [33, 90], [64, 64]])
    frames = Frames.of(torch.nn.functional.pad(pictures(4, 3, 70).float(), (0, 20)).cuda() / 255, sizes)
    motion = torch.randn(4, group.dimension, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.02
    motion *= torch.tensor([0.02 if part in ("b31", "b32") else 1.0 for part in group.parts])  # the horizon is far
    along, wanted = 10 * motion, torch.tensor([0.1, 0.3, 0.5])
    directions = motion / motion.norm(dim=1, keepdim=True)
    assert isinstance(paths.paths_along(frames, group, directions), paths.FusedPaths)
    fused = geodesic_scores(frames, group, along), trace_rays(frames, group, directions, wanted)
    steps = torch.linspace(0, 0.5, 150, dtype=torch.float64)[1:].repeat(4, 1)
    together = paths.paths_along(frames, group, directions).advance(steps)
    for row in range(4):
        index = torch.tensor([row])
        alone = paths.paths_along(frames.select(index), group, directions[index])
        assert torch.equal(alone.advance(steps[index]), together[index])
    monkeypatch.setattr(paths, "kernels_for", lambda name, tensor: None)
    made = geodesic_scores(frames, group, along), trace_rays(frames, group, directions, wanted)
    assert torch.allclose(fused[0], made[0], rtol=1e-3, atol=1e-5)
    assert (fused[1].reached == made[1].reached).float().mean() > 0.9
    both = fused[1].reached & made[1].reached
    assert torch.allclose(fused[1].reach[both], made[1].reach[both], rtol=1e-2, atol=1e-5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2), nn.Tanh(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
        )
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.layers(images)
        return found


@pytest.mark.parametrize("method", ["manifool", "manitest", "random", "grid"])
def test_the_same_findings_as_on_the_cpu(method: SearchMethod) -> None:
    """What each device finds holds on the other, too, and is as small.

    A search goes another way after the last digit of a score, so that single motions differ: what is compared is that
    the other device gives a motion the label and the score that were found here, and that means agree.
    """
    group, images = GROUPS["rotation_translation"], pictures(8)
    options = GeometryOptions(operators=(group.name,), draws=3, radii=(0.2, 0.5), grid_motions=125, grid_pixels=1.0)
    benches, found = [], []
    for device in ("cpu", "cuda"):
        model = brinell.wrap(Net(), size=40, short_side=48, name="net", execution=Execution(device=device, runtime="torch"))
        bench = Evaluator.of(
            model,
            model.preprocess.inputs(images),
            torch.arange(8),
            torch.zeros(8, dtype=torch.int64),
            criterion=find_criterion("misclassification"),
            seed=0,
            batch=64,
            originals=list(images),
        )
        benches.append(bench)
        columns: Any = bench.drive(measure(bench.shard(), Motion(group, method, searching=True), options))
        found.append(columns)
    assert torch.equal(*(bench.clean.verdict.prediction.cpu() for bench in benches))
    for columns, other in zip(found, reversed(benches), strict=True):
        told = columns["score"].valid
        rows, motion = columns["sample"][told], columns["motion"].values[told]
        assert len(rows) >= 4
        _, labels = other.stage.scores(rows, group.exp(motion))
        same = labels.cpu() == columns["prediction"].values[told]
        assert same.float().mean() >= 0.8  # a motion that was shortened to the edge may fall back
        again = geodesic_scores(other.stage.frames(rows), group, motion, min_change=options.min_change).cpu()
        assert torch.allclose(again, columns["score"].values[told], rtol=2e-3, atol=2e-3)
    means = [float(columns["score"].values[columns["score"].valid].mean()) for columns in found]
    assert means[0] == pytest.approx(means[1], rel=0.1)
    if method in ("random", "grid"):  # these follow no slope
        assert (found[0]["status"].codes == found[1]["status"].codes).float().mean() >= 0.8


@pytest.mark.parametrize("method", ["manifool", "random"])
def test_findings_depend_on_their_image_alone(method: SearchMethod) -> None:
    """They are the same again, and without the other images; slopes differ in their last bits from time to time."""
    group, images = GROUPS["similarity"], pictures(8)
    options = GeometryOptions(operators=(group.name,), draws=3, radii=(0.2, 0.5), max_steps=12)
    model = brinell.wrap(Net(), size=40, short_side=48, name="net", execution=Execution(device="cuda", runtime="torch"))

    def find(chosen: slice) -> list[tuple[Any, ...]]:
        some = images[chosen]
        bench = Evaluator.of(
            model,
            model.preprocess.inputs(some),
            torch.arange(8)[chosen],
            torch.zeros(len(some), dtype=torch.int64),
            criterion=find_criterion("misclassification"),
            seed=0,
            batch=64,
            originals=list(some),
        )
        columns: Any = bench.drive(measure(bench.shard(), Motion(group, method, searching=True), options))
        names = ("status", "score", "motion", "prediction")
        values = (columns[name].codes if name == "status" else columns[name].values for name in names)
        return list(zip(*(each.tolist() for each in values), strict=True))

    whole = find(slice(None))
    rows = len(whole) // 8
    for found, expected in ((find(slice(None)), whole), (find(slice(5, 7)), whole[5 * rows : 7 * rows])):
        for (status, score, motion, label), before in zip(found, expected, strict=True):
            assert (status, label) == (before[0], before[3])
            assert score == pytest.approx(before[1], rel=1e-4, nan_ok=True)
            assert motion == pytest.approx(before[2], abs=1e-3)
