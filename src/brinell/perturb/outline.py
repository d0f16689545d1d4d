"""The outline of what a moved image shows, drawn on the clean one."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

_COLOUR = (228, 87, 46)
_SMALLEST = 120  # pixels: smaller images are enlarged


def outlined(clean: Tensor, moved: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the clean image (uint8 (C, H, W)) with the outline of what the moved one shows, and the moved one, in RGB."""
    height, width = clean.shape[1:]
    scale = max(1, -(-_SMALLEST // min(height, width)))
    middle = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    corners = torch.tensor([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]], dtype=torch.float64)
    corners[:, :2] *= middle
    seen = (matrix @ corners.T).T
    points = (seen[:, :2] / seen[:, 2:] + middle + 0.5) * scale
    first, second = (_enlarged(image, scale) for image in (clean, moved))
    ImageDraw.Draw(first).polygon([(float(x), float(y)) for x, y in points.tolist()], outline=_COLOUR, width=2)
    return _tensor(first), _tensor(second)


def _enlarged(image: Tensor, scale: int) -> Image.Image:
    array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(array)).convert("RGB")
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


def _tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)
