"""The layout of a sheet of saliency maps, and a detector's boxes on it. No torch: reports import this."""

from __future__ import annotations

import io
from collections.abc import Sequence

from brinell.marks import Mark

GAP = 6  # pixels between the pictures of a sheet
COLUMNS = 3  # the image, the map over it, and its hot pixels
SIDE, TEXT = 360, 18  # pixels of a picture with boxes, and of their text


def draw_boxes(sheet: bytes, marks: Sequence[Sequence[Mark]]) -> bytes:
    """Return a sheet, as the bytes of a picture, with the marks of each of its rows on the row's image."""
    from PIL import Image

    from brinell.marks import draw_marks
    from brinell.pictures import encode_webp

    small = Image.open(io.BytesIO(sheet)).convert("RGB")
    width = (small.width - (COLUMNS - 1) * GAP) // COLUMNS
    height = (small.height - (len(marks) - 1) * GAP) // len(marks)
    scale = max(1.0, SIDE / min(width, height))
    large = small.resize((round(small.width * scale), round(small.height * scale)), Image.Resampling.BICUBIC)
    size = round(width * scale), round(height * scale)
    for row, own in enumerate(marks):
        top = round(row * (height + GAP) * scale)
        image = large.crop((0, top, size[0], top + size[1]))
        large.paste(draw_marks(image, own, text_size=TEXT), (0, top))
    return encode_webp(large, quality=85)
