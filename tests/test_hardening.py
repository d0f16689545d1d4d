"""Units of hardening: splits, augmentation, recipes, schedules, effects and configs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import brinell
from brinell.draws import key
from brinell.errors import ConfigError, DataError, ModelError
from brinell.hardening.augment import Augmentation
from brinell.hardening.effect import GroupEffect, HardeningEffect, Subject, effect_of
from brinell.hardening.options import AugmentOptions, HardenConfig, TrainingOptions, load_harden_config
from brinell.hardening.recipes import build_network, channel_statistics, normalise_by_set, recompute_batch_norms
from brinell.hardening.splits import part_sizes, split_originals
from brinell.hardening.training import rate_at, split_evenly
from brinell.models.excitation import SqueezeExcitation, add_excitation, choose_blocks
from brinell.models.preprocess import Preprocess
from brinell.perturb.operator import find_operator
from brinell.perturb.property import find_property
from brinell.runs.statistics import Estimate
from brinell.serve.server import Server
from conftest import PLAIN
from small_nets import CLASSES, SIDE, small, wrapped

SPLIT = (0.6, 0.2, 0.2)


def ids(numbers: range | list[int]) -> list[str]:
    return [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in numbers]


# ---- parts ----


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(3, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_every_class_is_in_every_part_as_its_share_says(sizes: list[int], seed: int) -> None:
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    classes = dict(zip(ids(range(len(owners))), owners, strict=True))
    found = split_originals(classes, SPLIT, seed)
    assert found.keys() == classes.keys()
    for number, size in enumerate(sizes):
        counts = Counter(found[one] for one, own in classes.items() if own == number)
        assert min(counts[part] for part in ("train", "validation", "test")) >= 1
        assert abs(counts["test"] - 0.2 * size) <= 0.5 or counts["test"] == 1
        assert tuple(counts[part] for part in ("train", "validation", "test")) == part_sizes(size, SPLIT)


def test_a_part_depends_on_nothing_but_seed_and_class() -> None:
    classes = {one: number % 4 for number, one in enumerate(ids(range(80)))}
    found = split_originals(classes, SPLIT, 3)
    assert split_originals(dict(reversed(classes.items())), SPLIT, 3) == found
    alone = {one: number for one, number in classes.items() if number != 2}  # other classes don't matter
    assert split_originals(alone, SPLIT, 3) == {one: found[one] for one in alone}
    assert split_originals(classes, SPLIT, 4) != found


def test_classes_with_one_image_are_refused_or_pooled() -> None:
    classes = dict(zip(ids(range(30)), [0] * 20 + list(range(1, 11)), strict=True))
    with pytest.raises(
        DataError, match=r"10 of 11 classes have too few originals for 3 parts, such as class 1 with 1;.*pool"
    ):
        split_originals(classes, SPLIT, 0)
    found = split_originals(classes, SPLIT, 0, pool=True)
    assert Counter(found[one] for one, own in classes.items() if own) == {"train": 6, "validation": 2, "test": 2}
    with pytest.raises(DataError, match="2 originals are too few for 3 parts"):
        split_originals(dict(list(classes.items())[-2:]), SPLIT, 0, pool=True)


def test_parts_without_a_share_are_empty() -> None:
    assert part_sizes(10, (0.8, 0.2, 0.0)) == (8, 2, 0)
    assert part_sizes(4, (0.1, 0.45, 0.45)) == (1, 2, 1)
    assert set(split_originals(dict.fromkeys(ids(range(2)), 0), (0.5, 0.5, 0.0), 0).values()) == {"train", "validation"}


# ---- changes while training ----


def pictures(count: int = 12, side: int = 24) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (count, 3, side, side), dtype=np.uint8))


NUMBERS = torch.arange(12) * 0x1234567 - 7


def augmentation(*operators: object, seed: int = 5, **options: object) -> Augmentation:
    return Augmentation.of(AugmentOptions.model_validate({"operators": list(operators), **options}), seed, "bilinear")


EVERY = [
    "white_fog",
    "noise",
    "jpeg",
    {"name": "fog", "strength": [0.1, 0.5]},
    "rotation",
    "highlight",
    "crop",
    "brightness",
]


@pytest.mark.parametrize("width", [1, 3])
def test_changes_depend_on_the_image_and_the_epoch_but_not_on_the_batch(width: int) -> None:
    images, change = pictures(), augmentation(*EVERY, share=0.8, depth=3, width=width)
    before = images.clone()
    together = change(images, NUMBERS, "1")
    assert torch.equal(images, before)
    order = torch.tensor([7, 3, 11, 0, 5, 1, 2, 10, 4, 9, 8, 6])
    assert torch.equal(change(images[order], NUMBERS[order], "1"), together[order])
    assert torch.equal(torch.cat([change(images[k : k + 1], NUMBERS[k : k + 1], "1") for k in range(12)]), together)
    changed = (together != images).flatten(1).any(1)
    assert 5 <= int(changed.sum()) < 12  # a share of them
    assert not torch.equal(change(images, NUMBERS, "2"), together)
    assert (change(images, NUMBERS, "2", always=True) != images).flatten(1).any(1).sum() >= 11


def test_changes_differ_between_images_and_epochs() -> None:
    images = pictures(1).expand(12, -1, -1, -1)
    for name in ("rotation", "brightness", "white_fog", "crop", "highlight"):
        change = augmentation(name, share=1)
        first, second = (change(images, NUMBERS, when) for when in ("1", "2"))
        assert len({bytes(one.numpy()) for one in first}) > 6, name
        assert (first != second).flatten(1).any(1).sum() > 6, name


def test_operators_are_those_of_the_lenses() -> None:
    images, when = pictures(), "4"
    seed = key(5, "change", when, 0, 0)
    for name, level in (("white_fog", 30), ("noise", 30), ("jpeg", 30)):
        made = augmentation({"name": name, "strength": [1, 1]}, share=1)(images, NUMBERS, when)
        assert torch.equal(made, find_operator(name).at(images, level, seed=seed, ids=NUMBERS))
    made = augmentation({"name": "noise", "strength": [0.1, 0.1]}, share=1)(images, NUMBERS, when)
    assert torch.equal(made, find_operator("noise").at(images, 3, seed=seed, ids=NUMBERS))
    made = augmentation({"name": "fog", "strength": [1, 1]}, share=1)(images, NUMBERS, when)
    ends = find_property("fog").tracks(24, 24)[0][-1:].expand(12, -1)
    assert torch.equal(made, find_property("fog").apply(images, ends, seed=seed, ids=NUMBERS))


def test_crops_are_windows_resized_as_pillow_does() -> None:
    images = pictures(6)
    made = augmentation({"name": "crop", "sizes": [0.5, 18]}, share=1)(images, NUMBERS[:6], "1")
    for image, crop in zip(images, made, strict=True):
        candidates = []
        for side in (12, 18):
            for top in range(24 - side + 1):
                for left in range(24 - side + 1):
                    window = image[:, top : top + side, left : left + side].permute(1, 2, 0).numpy()
                    whole = Image.fromarray(window).resize((24, 24), Image.Resampling.BILINEAR)
                    candidates.append(torch.equal(torch.from_numpy(np.array(whole)).permute(2, 0, 1), crop))
        assert sum(candidates) == 1


def test_a_spot_adds_light_and_a_mix_of_nothing_is_the_image() -> None:
    images = pictures() // 2
    lit = augmentation({"name": "highlight", "strength": [0.3, 0.3]}, share=1)(images, NUMBERS, "1")
    assert bool((lit >= images).all()) and int((lit.int() - images.int()).max()) in range(70, 78)  # 0.3 of 255
    mixed = augmentation({"name": "crop", "sizes": [1.0]}, share=1, width=3)(images, NUMBERS, "1")
    assert torch.equal(mixed, images)
    tops = augmentation({"name": "highlight", "sigmas": [0.05]}, share=1)(torch.zeros_like(images), NUMBERS, "1")
    places = tops.flatten(1).argmax(1)
    assert len(set(places.tolist())) > 8


def test_operators_that_can_t_be_used_in_training_are_refused() -> None:
    with pytest.raises(ConfigError, match="gradient_descent follows a model's gradient and can't be used in training"):
        augmentation("gradient_descent")
    with pytest.raises(ConfigError, match="no operator 'white_fogg' to train with; did you mean white_fog"):
        augmentation("white_fogg")
    with pytest.raises(ConfigError, match="as two increasing shares"):
        augmentation({"name": "fog", "strength": [0.5, 0.1]})


# ---- recipes ----


def config(**options: object) -> HardenConfig:
    return load_harden_config({"model": "fake:grey", "data": "nowhere", **options})


def test_new_blocks_change_nothing_until_they_learn() -> None:
    module, images = small(), torch.rand(5, 3, SIDE, SIDE)
    before = module(images)
    blocks = choose_blocks(module, images)
    assert blocks == {"features.0": 8, "features.1": 8}
    add_excitation(module, blocks, 2)
    gates = [part for part in module.modules() if isinstance(part, SqueezeExcitation)]
    assert len(gates) == 2 and torch.equal(module(images), before)
    rows = gates[0].squeeze.weight.detach()
    assert float((rows @ rows.T).fill_diagonal_(0).abs().max()) < 0.95 * float(rows.square().sum(1).min())  # all differ
    loss = module(images).square().sum()
    loss.backward()
    assert all(part.excite.weight.grad is not None and bool(part.excite.weight.grad.any()) for part in gates)
    assert choose_blocks(small(), images, ["features.*.0"]) == {"features.0.0": 8, "features.1.0": 8}
    with pytest.raises(ConfigError, match=r"called body; its blocks are features.0, features.1"):
        choose_blocks(small(), images, ["body"])


def test_the_layers_that_train_are_those_named() -> None:
    network = build_network(wrapped(), config(training={"layers": ["features.1", "head.bias"]}), torch.device("cpu"))
    training = [name for name, value in network.module.named_parameters() if value.requires_grad]
    assert training == ["features.1.0.weight", "features.1.0.bias", "features.1.1.weight", "features.1.1.bias", "head.bias"]
    with pytest.raises(ConfigError, match="no layer is named 'heads'; did you mean head"):
        build_network(wrapped(), config(training={"layers": ["heads"]}), torch.device("cpu"))
    only_head = config(training={"layers": "head"}, recipe="squeeze_excitation")
    with pytest.raises(ConfigError, match="no block that trains has feature maps; train more layers"):
        build_network(wrapped(), only_head, torch.device("cpu"))
    last = config(training={"layers": ["features.1", "head"]}, recipe="squeeze_excitation")
    excitation = build_network(wrapped(), last, torch.device("cpu")).excitation
    assert excitation is not None and excitation.blocks == {"features.1": 8}


def test_a_set_gets_the_statistics_that_the_network_expects() -> None:
    images = pictures(20)
    images[:, 0] = images[:, 0] // 2 + 90
    own = channel_statistics(images.split(7))
    plain = images.numpy().astype(np.float64) / 255
    assert own[0] == pytest.approx(plain.mean((0, 2, 3))) and own[1] == pytest.approx(plain.std((0, 2, 3)))
    told = normalise_by_set(Preprocess(24, 24, mean=(0.5,), std=(0.25,)), own, own).normalise(images)
    assert told.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert told.std((0, 2, 3), unbiased=False).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    clean = ((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))  # of a network that normalises inside
    inside = normalise_by_set(Preprocess(24, 24), own, clean).normalise(images)
    assert inside.mean((0, 2, 3)).tolist() == pytest.approx(clean[0], abs=1e-5)
    assert inside.std((0, 2, 3), unbiased=False).tolist() == pytest.approx(clean[1], abs=1e-5)


def test_batch_norms_are_recomputed_on_the_set() -> None:
    network = build_network(wrapped(), config(), torch.device("cpu"))
    images = pictures(16, SIDE)
    recompute_batch_norms(network, images.split(8))
    first = network.module.features[0]
    maps = first[0](network.preprocess.normalise(images))
    assert torch.allclose(first[1].running_mean, maps.mean((0, 2, 3)), atol=1e-5)
    assert not network.module.training and first[1].momentum == 0.1


# ---- rates ----


@given(count=st.integers(1, 700), batch=st.integers(2, 200))
@settings(max_examples=200, deadline=None)
def test_batches_hold_every_image_once_and_none_is_small(count: int, batch: int) -> None:
    batches = split_evenly(torch.randperm(count), batch)
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(count))
    sizes = [len(each) for each in batches]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(batch, 3)  # three are not left as two and one
    assert min(sizes) > 1 or count == 1


def test_rates_follow_their_schedule() -> None:
    def rates(**options: object) -> list[float]:
        return [rate_at(TrainingOptions.model_validate({"epochs": 4, "rate": 0.8, **options}), epoch) for epoch in range(5)]

    assert rates() == [0.8] * 5
    assert rates(schedule="halve") == pytest.approx([0.8, 0.4, 0.2, 0.1, 0.05])
    assert rates(schedule="halve", halve=2) == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2])
    assert rates(schedule="cosine") == pytest.approx([0.8, 0.6828, 0.4, 0.1172, 0], abs=1e-4)


# ---- the sentence ----


def test_the_effect_is_a_sentence() -> None:
    def effect(group: str, what: str, value: float, half: float) -> GroupEffect:
        change = Estimate(value, value - half, value + half)
        return GroupEffect(group, what, "area", (), "points", 100, 0.5, 0.6, change, 0.01)  # type: ignore[arg-type]

    found = HardeningEffect(
        (
            effect("trained", "robustness to fog", 11.2, 2.1),
            effect("held out", "held-out operators", 1.3, 1.9),
            effect("clean", "clean accuracy", -0.4, 0.6),
        )
    )
    assert found.sentence == (
        "robustness to fog +11.2 ± 2.1 points, held-out operators +1.3 ± 1.9, clean accuracy −0.4 ± 0.6"
    )
    assert found.rows()[1:] == [
        ("held-out operators (mean accuracy over all levels)", "50.0%", "60.0%", "+1.3 [−0.6, +3.2] points", "100"),
        ("clean accuracy", "50.0%", "60.0%", "−0.4 [−1.0, +0.2] points", "100"),
    ]


def test_an_effect_is_the_mean_of_differences() -> None:
    generator = np.random.default_rng(0)
    old = generator.random(200)
    new = old + generator.normal(0.05, 0.1, 200)
    new[3] = np.nan
    found = effect_of(old, new, Subject("trained", "x", "area"))
    gaps = np.delete(new - old, 3)
    assert found.change.value == pytest.approx(100 * gaps.mean()) and found.images == 199
    half = 100 * 1.97 * gaps.std(ddof=1) / 199**0.5
    assert found.change.high - found.change.value == pytest.approx(half, rel=0.15)
    lost = effect_of(np.ones(50), (np.arange(50) >= 5).astype(float), Subject("clean", "x", "clean"))
    assert lost.change.value == pytest.approx(-10) and lost.p == pytest.approx(2 * 0.5**5)


# ---- configs ----


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"trainin": {}}, "trainin is not an option; did you mean training"),
        ({"training": {"epoch": 3}}, "training.epoch is not an option; did you mean epochs"),
        ({"augment": {"operators": ["fog"], "shar": 1}}, "augment.shar is not an option; did you mean share"),
        ({"augment": {"operators": [{"name": "fog", "strenght": 1}]}}, "did you mean strength"),
        ({"parts": {"shares": [0.5, 0.2, 0.2]}}, "three numbers that add up to 1"),
        ({"parts": {"shares": [0.8, 0.2, 0.0]}}, "there are no images to measure"),
        ({"parts": {"shares": [0.8, 0.0, 0.2]}, "training": {"floor": 1}}, "training.floor needs validation images"),
        ({"training": {"clean": False}}, "nothing to train on"),
        ({"excitation": {"reduction": 4}}, "needs the recipe squeeze_excitation"),
        ({"recipe": "plane"}, "recipe: input should be 'plain', 'set_normalisation' or 'squeeze_excitation'"),
        ({"data": {"source": "x", "labels": "prediction"}}, "training needs true labels"),
        ({"measure": ["profile", "profile"]}, "measure lists a lens twice"),
        ({"measure": {"name": "profil"}}, "no lens 'profil'; did you mean profile"),
    ],
)
def test_a_config_s_errors_are_one_line(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_models_that_can_t_be_trained(assets: Path, tmp_path: Path) -> None:
    def refused(model: brinell.Model, told: str) -> None:
        with pytest.raises(ModelError, match=told):
            build_network(model, config(), torch.device("cpu"))

    onnx = brinell.open_model(f"onnx:{assets}/models/mnist_lenet5_clean.onnx?channels=1&size=28", PLAIN)
    refused(onnx, r"is not a torch module and can't be trained .*; use the module that it was exported")
    refused(brinell.open_model("fake:grey", PLAIN), "has no weights to train")
    half = brinell.wrap(small(), size=SIDE, classes=CLASSES, execution=PLAIN.model_copy(update={"precision": "bf16"}))
    refused(half, r"too coarse to train; leave execution.precision at fp32")
    found = brinell.wrap(torch.nn.Sequential(Boxes()), size=SIDE, classes=CLASSES, detection={}, execution=PLAIN)
    refused(found, "is a detector, but harden trains classifiers")
    execution = PLAIN.model_copy(update={"answers": str(tmp_path / "answers.sqlite")})
    with Server(wrapped(), port=0) as server:
        refused(
            brinell.open_model(server.start().url, execution), "is behind HTTP and can't be trained; use the torch module"
        )


class Boxes(torch.nn.Module):
    """Finds the same box in every image."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(torch.tensor([0.9, 0.1, 0.1]))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        count = len(images)
        return torch.tensor([0.1, 0.1, 0.9, 0.9]).expand(count, 1, 4), self.scores.expand(count, 1, 3)
