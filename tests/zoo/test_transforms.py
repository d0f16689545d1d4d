"""Operators as transforms of other libraries, with the real libraries."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from brinell.errors import ConfigError, DataError
from brinell.perturb import apply
from brinell.perturb.operator import OPERATORS
from brinell.perturb.property import PROPERTIES

pytestmark = pytest.mark.filterwarnings("ignore")

CHANGES = [
    *((one.id, 3) for one in OPERATORS.values() if not one.white_box),
    *((one.id, 0.3) for one in PROPERTIES.values()),
]
SHIFT = ("horizontal_translation", 0.25)  # 8 of 32 pixels to the right


@pytest.fixture(scope="module")
def photo() -> Tensor:
    """A dark image with a bright rectangle, uint8 (3, 24, 32)."""
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 60, (3, 24, 32), np.uint8))
    image[:, 4:10, 6:12] = 250
    return image


@pytest.fixture(scope="module")
def array(photo: Tensor) -> np.ndarray:
    return photo.permute(1, 2, 0).contiguous().numpy()


class TestTorchvision:
    vision = pytest.importorskip("torchvision", reason="needs torchvision: make test-zoo", exc_type=ImportError)

    @pytest.mark.parametrize(("operator", "severity"), CHANGES)
    def test_every_operator(self, operator: str, severity: float, photo: Tensor) -> None:
        from torchvision import tv_tensors
        from torchvision.transforms import v2

        from brinell.adapters.torchvision import Perturb

        pipeline = v2.Compose([Perturb(operator, severity, seed=2), v2.ToDtype(torch.float32, scale=True)])
        changed = pipeline(tv_tensors.Image(photo))
        assert isinstance(changed, tv_tensors.Image)
        expected = apply(photo, operator, severity, seed=2)
        assert torch.equal((changed.as_subclass(Tensor) * 255).round().to(torch.uint8), expected)

    def test_boxes_masks_and_keypoints_of_a_sample(self, photo: Tensor) -> None:
        from torchvision import tv_tensors

        from brinell.adapters.torchvision import Perturb

        sample = {
            "image": tv_tensors.Image(photo),
            "boxes": tv_tensors.BoundingBoxes([[6, 4, 6, 6]], format="XYWH", canvas_size=(24, 32), dtype=torch.float32),
            "masks": tv_tensors.Mask((photo[:1] > 100).to(torch.uint8)),
            "points": tv_tensors.KeyPoints([[6.0, 4.0]], canvas_size=(24, 32)),
            "label": 7,
        }
        moved = Perturb(*SHIFT)(sample)
        assert torch.equal(moved["image"].as_subclass(Tensor), apply(photo, *SHIFT))
        assert moved["boxes"].format.name == "XYWH" and moved["boxes"].tolist() == [[14, 4, 6, 6]]
        assert isinstance(moved["masks"], tv_tensors.Mask)
        assert torch.equal(moved["masks"].as_subclass(Tensor)[0] > 0, moved["image"].as_subclass(Tensor)[0] > 100)
        assert moved["points"].tolist() == [[14, 4]] and moved["label"] == 7
        still = Perturb("fog", 0.4)(sample)
        assert still["boxes"].tolist() == [[6, 4, 6, 6]] and torch.equal(still["masks"], sample["masks"])

    def test_in_a_loader_with_workers_and_on_pictures_and_videos(self, photo: Tensor) -> None:
        from torchvision import tv_tensors

        from brinell.adapters.torchvision import Perturb

        fog = Perturb("fog", 0.4)
        assert "operator=fog" in repr(fog)
        assert torch.equal(pickle.loads(pickle.dumps(fog))(photo), fog(photo))
        picture = fog(Image.fromarray(photo.permute(1, 2, 0).contiguous().numpy()))
        assert isinstance(picture, Image.Image) and np.array_equal(
            np.asarray(picture).transpose(2, 0, 1), fog(photo).numpy()
        )
        video = fog(tv_tensors.Video(photo[None].expand(2, -1, -1, -1)))
        assert isinstance(video, tv_tensors.Video) and torch.equal(video[1].as_subclass(Tensor), fog(photo))
        with pytest.raises(ConfigError, match="expected a severity of fog"):
            Perturb("fog", 3)


class TestAlbumentations:
    library = pytest.importorskip("albumentations", reason="needs the extra albumentations", exc_type=ImportError)

    @pytest.mark.parametrize(("operator", "severity"), CHANGES)
    def test_every_operator(self, operator: str, severity: float, array: np.ndarray) -> None:
        from brinell.adapters.albumentations import Perturb

        found = Perturb(operator, severity, seed=2)(image=array)
        assert np.array_equal(found["image"], apply(array, operator, severity, seed=2))

    def test_masks_boxes_and_keypoints_in_compose(self, array: np.ndarray) -> None:
        import albumentations

        from brinell.adapters.albumentations import Perturb

        pipeline = albumentations.Compose(
            [Perturb(*SHIFT), albumentations.NoOp()],
            bbox_params=albumentations.BboxParams(format="coco", label_fields=["labels"]),
            keypoint_params=albumentations.KeypointParams(format="xy"),
        )
        mask = (array[..., 0] > 100).astype(np.int32) * 5
        found = pipeline(
            image=array, mask=mask, bboxes=[[6, 4, 6, 6], [28, 0, 4, 4]], labels=["a", "b"], keypoints=[(6, 4)]
        )
        assert np.array_equal(found["image"], apply(array, *SHIFT))
        assert np.array_equal(found["mask"] == 5, found["image"][..., 0] > 100) and found["mask"].dtype == np.int32
        assert np.allclose(found["bboxes"], [[14, 4, 6, 6]]) and list(found["labels"]) == ["a"]
        assert np.allclose(found["keypoints"], [(14, 4)])
        restored = albumentations.from_dict(albumentations.to_dict(albumentations.Compose([Perturb("fog", 0.4, seed=3)])))
        assert np.array_equal(restored(image=array)["image"], apply(array, "fog", 0.4, seed=3))


class TestDatasets:
    hub = pytest.importorskip("datasets", reason="needs the extra datasets", exc_type=ImportError)

    def rows(self, array: np.ndarray) -> Any:
        import datasets

        objects = {"bbox": [[6.0, 4.0, 6.0, 6.0], [28.0, 0.0, 4.0, 4.0]], "category": [1, 2]}
        pictures = [Image.fromarray(array), Image.fromarray(array[::-1].copy())]
        masks = [Image.fromarray((array[..., 0] > 100).astype(np.uint8) * 9)] * 2
        columns = {"image": pictures, "mask": masks, "objects": [objects] * 2, "label": [0, 1]}
        return (
            datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image()).cast_column("mask", datasets.Image())
        )

    def test_map_a_stream_and_transforms_on_the_fly(self, array: np.ndarray) -> None:
        from brinell.adapters.mapping import perturb_batches

        rows, fog = self.rows(array), perturb_batches("fog", 0.4)
        expected = apply(array, "fog", 0.4)
        mapped = rows.map(fog, batched=True, batch_size=2)
        assert np.array_equal(np.asarray(mapped[0]["image"]), expected) and mapped["label"][:] == [0, 1]
        assert np.array_equal(np.asarray(next(iter(rows.to_iterable_dataset().map(fog, batched=True)))["image"]), expected)
        assert np.array_equal(np.asarray(rows.with_transform(fog)[0]["image"]), expected)

    def test_boxes_and_masks(self, array: np.ndarray) -> None:
        from brinell.adapters.mapping import perturb_batches

        moved = self.rows(array).map(perturb_batches(*SHIFT, mask="mask", objects="objects"), batched=True)
        assert moved[0]["objects"] == {"bbox": [[14.0, 4.0, 6.0, 6.0]], "category": [1]}
        assert np.array_equal(np.asarray(moved[0]["mask"]) == 9, np.asarray(moved[0]["image"])[..., 0] > 100)
        with pytest.raises(DataError, match="has no column 'picture'"):
            perturb_batches("fog", 0.4, image="picture")({"image": []})


class TestRay:
    ray = pytest.importorskip("ray", reason="needs ray", exc_type=ImportError)

    def test_map_batches(self, array: np.ndarray) -> None:
        import ray

        from brinell.adapters.mapping import perturb_batches

        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=100_000_000)
        try:
            images = np.stack([array, array[::-1]])
            data = ray.data.from_numpy(images)
            found = data.map_batches(perturb_batches("fog", 0.4, image="data")).take_all()
            assert np.array_equal(np.stack([row["data"] for row in found]), apply(images, "fog", 0.4))
        finally:
            ray.shutdown()
