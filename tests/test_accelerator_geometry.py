"""What holds of motions on an accelerator: the CPU's images, scores and findings, to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.criteria import find_criterion
from brinell.engine.bench import Bench
from brinell.execution import Execution
from brinell.geometry import GROUPS, Frames, Group, flows, gram, jacobian, reach, scores
from brinell.lenses import GeometryOptions, MotionSearch
from brinell.lenses.geometry import geometry
from brinell.lenses.lens import Known, Words

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
    assert torch.allclose(there.moved(matrices).cpu(), here.moved(matrices), atol=1e-4)
    assert torch.allclose(scores(there, group, motion).cpu(), scores(here, group, motion), rtol=1e-3)
    products = [gram(jacobian(frames.images, frames, flows(group, frames))).cpu() for frames in (here, there)]
    assert torch.allclose(*products, rtol=1e-3)
    way = motion / motion.norm(dim=1, keepdim=True)
    rays = [reach(frames, group, way, torch.tensor([0.1, 0.3])).reach.cpu() for frames in (here, there)]
    assert torch.allclose(*rays, rtol=1e-2)


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
def test_the_same_findings_as_on_the_cpu(method: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        model = brinell.wrap(Net(), size=40, short_side=48, name="net", execution=Execution(device=device, runtime="torch"))
        images = pictures()
        bench = Bench(
            model,
            model.preprocess.canvases(images),
            torch.arange(4),
            torch.zeros(4, dtype=torch.int64),
            criterion=find_criterion("misclassification"),
            seed=0,
            batch=16,
            originals=list(images),
        )
        search = MotionSearch(GROUPS["rotation_translation"], method)  # type: ignore[arg-type]
        options = GeometryOptions(operators=("rotation_translation",), draws=3, radii=(0.2, 0.5))
        found.append(bench.drive(geometry(bench.shard(), search, options)))
    here, there = found
    status = [columns["status"] for columns in found]
    assert isinstance(status[0], Words) and isinstance(status[1], Words)
    assert (status[0].places == status[1].places).float().mean() >= 0.75
    scored = [columns["score"] for columns in (here, there)]
    assert isinstance(scored[0], Known) and isinstance(scored[1], Known)
    both = scored[0].known & scored[1].known
    close = torch.isclose(scored[0].values[both], scored[1].values[both], rtol=0.05)
    assert close.float().mean() >= 0.75
