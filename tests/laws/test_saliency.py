"""Saliency maps against the papers' formulas in plain loops, the default layer, and shifts against brute force."""

from __future__ import annotations

import copy
import importlib.util
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from brinell import Execution, open_dataset, wrap
from brinell.models.model import Model
from brinell.saliency.cam import METHODS, gradcam_plus_plus_weights, gradcam_weights
from brinell.saliency.layers import NoSaliency, arrange_tokens
from brinell.saliency.mapper import open_mapper
from brinell.saliency.shift import compare_maps, fullest_cell, hot_pixels

EAGER = Execution(device="cpu", runtime="torch")


def filled(shape: tuple[int, ...], key: int) -> Tensor:
    """Numbers in -1..1 that look like weights."""
    count = math.prod(shape)
    return torch.sin(torch.arange(count, dtype=torch.float32) * (1.7 + key) + key).view(shape)


def with_weights(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for key, value in enumerate(module.parameters()):
            value.copy_(filled(tuple(value.shape), key) * (0.5 if value.ndim > 1 else 0.1))
    return module


class Plain(nn.Module):
    """Two convolutions, an in-place activation, a pool and a head with a convolution of one place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.second = nn.Conv2d(4, 6, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.squeeze = nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.relu(self.second(self.relu(self.first(images))))
        pooled = self.squeeze(maps.mean((2, 3), keepdim=True))  # squeeze and excitation: no places
        return self.head((maps * torch.sigmoid(pooled)).square().mean((2, 3)))


class Tokens(nn.Module):
    """Patches, one attention, a class token: behind the attention, nothing else speaks for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 8, stride=8)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.before = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.after = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch(images).flatten(2).transpose(1, 2)
        tokens = self.before(torch.cat([self.token.expand(len(images), -1, -1), patches], 1))
        mixed = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.head(self.after(mixed)[:, 0])


@pytest.fixture(scope="module")
def plain() -> Model:
    return wrap(with_weights(Plain()), size=32, name="plain", execution=EAGER)


@pytest.fixture(scope="module")
def tokens() -> Model:
    return wrap(with_weights(Tokens()), size=(32, 48), name="tokens", execution=EAGER)


def inputs(count: int, height: int = 32, width: int = 32) -> Tensor:
    return (filled((count, 3, height, width), 3) * 127 + 128).to(torch.uint8)


def by_hand(activations: np.ndarray, gradients: np.ndarray, method: str) -> np.ndarray:
    """Eq. 19 and 20 of Grad-CAM++, eq. 1 and 2 of Grad-CAM, and ODAM without smoothing, place by place."""
    channels, height, width = activations.shape
    total = np.zeros((height, width))
    for k in range(channels):
        if method == "odam":
            total += [[gradients[k, i, j] * activations[k, i, j] for j in range(width)] for i in range(height)]
            continue
        weight = 0.0
        mass = sum(activations[k, a, b] for a in range(height) for b in range(width))
        for i in range(height):
            for j in range(width):
                g = gradients[k, i, j]
                if method == "gradcam":
                    weight += g / (height * width)
                    continue
                below = 2 * g**2 + mass * g**3
                weight += (g**2 / below if below != 0 else 0.0) * max(g, 0.0)
        total += weight * activations[k]
    total = np.maximum(total, 0)
    return total / total.max()


@pytest.mark.parametrize("method", METHODS)
def test_maps_are_the_papers_formulas(plain: Model, method: str) -> None:
    mapper = open_mapper(plain, method)  # type: ignore[arg-type]
    images, classes = inputs(3), torch.tensor([0, 3, 4])
    net = plain.internals.module  # type: ignore[union-attr]
    assert isinstance(net, Plain)
    with mapper:
        maps = mapper.maps(images, classes)
    assert maps.shape == (3, 32, 32)
    for place in range(3):
        # the same network again, cut in two by hand
        inner = net.relu(net.first(plain.preprocess.normalise(images[place : place + 1])))
        layer = net.relu(net.second(inner)).detach().double().requires_grad_()
        squeeze, head = copy.deepcopy(net.squeeze).double(), copy.deepcopy(net.head).double()
        features = (layer * torch.sigmoid(squeeze(layer.mean((2, 3), keepdim=True)))).square().mean((2, 3))
        score = head(features)[0, classes[place]]
        gradient = torch.autograd.grad(score, layer)[0]
        small = torch.from_numpy(by_hand(layer[0].detach().numpy(), gradient[0].numpy(), method))
        low = small - small.min()
        large = nn.functional.interpolate((low / low.max())[None, None], (32, 32), mode="bilinear")[0, 0]
        assert torch.allclose(maps[place].double(), large, atol=2e-5)


def test_maps_do_not_depend_on_the_batch_or_on_threads(plain: Model) -> None:
    mapper = open_mapper(plain)
    images, classes = inputs(8), torch.arange(8) % 5
    with mapper, ThreadPoolExecutor(4) as pool:
        together = mapper.maps(images, classes)
        alone = list(pool.map(lambda place: mapper.maps(images[place : place + 1], classes[place : place + 1]), range(8)))
    assert torch.allclose(torch.cat(alone), together, atol=1e-5)
    assert torch.equal(plain.predict(images), plain.predict(images))
    assert not mapper.layer.module._forward_hooks  # nothing is left behind


def test_the_last_convolution_is_found_with_what_follows_it(plain: Model) -> None:
    found = open_mapper(plain).layer
    assert found.name == "relu"  # of the second convolution, and not the squeeze, which has no places
    assert found.title == "second, after relu", "a name that says where in the network it is"
    with open_mapper(plain, layer="second") as mapper:  # before an activation that overwrites it
        assert mapper.layer.name == "second"
        assert mapper.maps(inputs(2), torch.tensor([0, 1])).shape == (2, 32, 32)


@pytest.mark.parametrize(
    ("name", "layer", "title"),
    [
        ("squeezenet1_1", "features", "features"),  # and not the classifier, a convolution with a channel per class
        ("mobilenet_v2", "features", "features"),
        ("cifar10_resnet20", "blocks", "blocks"),
        ("mnist_lenet5_clean", "conv2", "conv2"),
    ],
)
def test_the_layer_before_the_classifier_is_chosen(name: str, layer: str, title: str, assets: Path) -> None:
    found = open_mapper(asset_net(name, assets)).layer
    assert (found.name, found.title) == (layer, title)


def asset_net(name: str, assets: Path) -> Model:
    spec = importlib.util.spec_from_file_location("nets", assets / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    module, (channels, *size), _ = nets.load(name)
    return wrap(module, size=tuple(size), channels=channels, name=name, execution=EAGER)


def test_the_weights_of_channels_matter_in_squeezenet(assets: Path) -> None:
    """At the classifier, whose channels are the classes, Grad-CAM and Grad-CAM++ would both return the class's channel."""
    model = asset_net("squeezenet1_1", assets)
    images = torch.stack(
        [
            model.preprocess.model_input(sample.image)
            for sample in map(open_dataset(assets / "images" / "imagenet_dev_300").__getitem__, range(3))
        ]
    )
    classes = model.predict(images).argmax(1)

    def maps(method: str, layer: str | None = None) -> Tensor:
        with open_mapper(model, method, layer) as mapper:  # type: ignore[arg-type]
            return mapper.maps(images, classes)

    assert torch.allclose(maps("gradcam", "head"), maps("gradcam++", "head"), atol=1e-4)
    assert float((maps("gradcam") - maps("gradcam++")).abs().amax((1, 2)).min()) > 0.05


class Classes(nn.Module):
    """A classifier that is a convolution, in one of several shapes."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.classifier = nn.Conv2d(8, 5, 1)
        self.act = nn.ReLU()
        self.mix = nn.Linear(5, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.classifier(self.drop(self.features(images)))
        if self.form == "largest":
            return maps.amax((2, 3))
        scores: Tensor = self.act(maps).mean((2, 3))
        if self.form == "mixed":
            return self.mix(scores)  # type: ignore[no-any-return]
        return scores.softmax(1) if self.form == "softmax" else scores


@pytest.mark.parametrize(
    ("form", "layer", "title"),
    [
        ("mean", "drop", "features"),
        ("softmax", "drop", "features"),
        ("largest", "drop", "features"),
        ("mixed", "act", "classifier, after act"),  # as many channels as classes, but they are not the classes
    ],
)
def test_a_convolution_is_the_classifier_if_each_class_has_its_channel(form: str, layer: str, title: str) -> None:
    found = open_mapper(wrap(with_weights(Classes(form)), size=16, name=form, execution=EAGER)).layer
    assert (found.name, found.title) == (layer, title)


def test_a_transformer_is_looked_at_before_its_last_attention(tokens: Model) -> None:
    mapper = open_mapper(tokens)
    assert mapper.layer.name == "before"
    with mapper:
        maps = mapper.maps(inputs(2, 32, 48), torch.tensor([1, 2]))
    assert maps.shape == (2, 32, 48)
    assert bool((maps.amax((1, 2)) > 0.5).any())


def test_tokens_lie_row_by_row_behind_those_of_no_place() -> None:
    spread = arrange_tokens(1 + 6, 20, 30)
    assert spread is not None
    output = torch.arange(7.0)[None, :, None].expand(2, 7, 3)
    assert spread(output)[0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert arrange_tokens(197, 224, 224)(torch.zeros(1, 197, 4)).shape == (1, 4, 14, 14)  # type: ignore[misc]
    assert arrange_tokens(261, 224, 224)(torch.zeros(1, 261, 4)).shape == (1, 4, 16, 16)  # type: ignore[misc]
    assert arrange_tokens(10, 224, 224 * 5) is None


def test_a_model_without_maps_gets_a_reason(plain: Model) -> None:
    with pytest.raises(NoSaliency, match=r"no layer 'secnd'.*second"):
        open_mapper(plain, layer="secnd")
    with pytest.raises(NoSaliency, match="no image positions"):
        open_mapper(plain, layer="squeeze")
    linear = wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5)), size=8, execution=EAGER)
    with pytest.raises(NoSaliency, match="no convolution"):
        open_mapper(linear)
    with pytest.raises(NoSaliency, match="not a torch model"):
        open_mapper(Model("x", plain.forward, plain.preprocess, plain.device, "", 5, False))


def test_channels_without_gradient_weigh_nothing() -> None:
    activations, gradients = filled((1, 3, 4, 4), 1), torch.zeros(1, 3, 4, 4)
    assert torch.equal(gradcam_plus_plus_weights(activations, gradients), torch.zeros(1, 3))
    assert torch.equal(gradcam_weights(activations, gradients), torch.zeros(1, 3))


# ---- shifts ----


def test_hot_is_strictly_above_numpys_third_quartile() -> None:
    maps = filled((5, 9, 14), 2)
    for found, one in zip(hot_pixels(maps), maps.numpy(), strict=True):
        assert np.array_equal(found.numpy(), one > np.float32(np.quantile(one.astype(np.float64), 0.75)))
    assert not bool(hot_pixels(torch.ones(1, 6, 6)).any())
    quarter = torch.zeros(1, 4, 4)
    quarter[0, 0] = 1
    assert int(hot_pixels(quarter).sum()) == 4


def brute_cell(pixels: np.ndarray, cells: int) -> int:
    height, width = pixels.shape
    counts = []
    for row in range(cells):
        for column in range(cells):
            bottom = height if row == cells - 1 else (row + 1) * (height // cells)
            right = width if column == cells - 1 else (column + 1) * (width // cells)
            counts.append(int(pixels[row * (height // cells) : bottom, column * (width // cells) : right].sum()))
    return counts.index(max(counts)) if max(counts) else -1


@pytest.mark.parametrize(("height", "width"), [(25, 25), (28, 33), (24, 224)])
def test_the_papers_max_cell_is_the_fullest_one(height: int, width: int) -> None:
    pixels = filled((40, height, width), 5) > 0.6
    pixels[7] = False
    found, _ = fullest_cell(pixels, 5)
    assert found.tolist() == [brute_cell(one.numpy(), 5) for one in pixels]


def test_ties_go_to_the_first_cell_and_are_reported() -> None:
    pixels = torch.zeros(2, 10, 10, dtype=torch.bool)
    pixels[0, 9, 9] = pixels[0, 4, 4] = True
    pixels[1, 9, 9] = True
    cell, tied = fullest_cell(pixels, 5)
    assert cell.tolist() == [2 * 5 + 2, 24]
    assert tied.tolist() == [True, False]


def test_a_remainder_draws_the_papers_rule_and_not_equal_cells() -> None:
    everywhere = torch.ones(1, 224, 224, dtype=torch.bool)  # cells of 44 pixels, the last of 48
    assert fullest_cell(everywhere, 5)[0].tolist() == [24]
    heat = torch.ones(1, 224, 224)
    heat[0, 100:120, 60:80] = 2
    cell, tied = fullest_cell(everywhere, 5, heat)
    assert (cell.tolist(), tied.tolist()) == ([2 * 5 + 1], [True])  # all equally full: the hottest


def test_equal_cells_share_the_pixels_on_their_borders() -> None:
    pixels = torch.zeros(1, 3, 3, dtype=torch.bool)
    pixels[0, 1, 1] = True  # in the middle of four cells of one and a half
    assert fullest_cell(pixels, 2, torch.zeros(1, 3, 3)) == (torch.tensor([0]), torch.tensor([True]))
    pixels[0, 2, 2] = True
    assert fullest_cell(pixels, 2, torch.zeros(1, 3, 3))[0].tolist() == [3]


def test_the_shift_of_a_map_that_moves() -> None:
    clean, moved = torch.zeros(2, 20, 20), torch.zeros(2, 20, 20)
    clean[:, 2:6, 2:6] = 1.0
    moved[0, 2:6, 2:6] = 0.5  # as it was, only fainter
    moved[1, 14:18, 2:6] = 1.0
    found = compare_maps(clean, moved, 5)
    assert found.overlap.tolist() == [1.0, 0.0]
    assert found.distance.tolist() == pytest.approx([0.0, 12 / math.hypot(20, 20)])
    assert found.clean_cell.tolist() == [0, 0]
    assert (found.cell[0], found.cell[1] // 5) == (0, 3)


def test_an_empty_map_has_no_shift() -> None:
    clean = torch.zeros(1, 10, 10)
    clean[0, 2:4, 2:4] = 1
    found = compare_maps(clean, torch.zeros(1, 10, 10))
    assert found.cell.tolist() == [-1]
    assert found.distance.isnan().all()
    assert found.overlap.tolist() == [0.0]
    assert compare_maps(torch.zeros(1, 5, 5), torch.zeros(1, 5, 5)).overlap.isnan().all()
