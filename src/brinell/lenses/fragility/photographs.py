"""Maps over photographs, for the report's map viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from brinell.lenses.fragility.exhibits import Photo
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.overlays import draw_overlays
from brinell.pictures import encode_webp
from brinell.report.section import Maps
from brinell.report.show import Context, inline, to_source

PHOTO_TEXT = 17  # pixels of a box's text on a photograph, which is shown nearly at its size
MAP_SIDE = 320  # pixels of a map's longer side at most


def make_maps(context: Context, findings: FragilityFindings, photos: Mapping[str, Sequence[Photo]]) -> Maps | None:
    """Return the maps over the photographs of each model; None if there are none."""
    if not any(photos.values()) or not (findings.windows or findings.minimal):
        return None
    sentence = (
        "Each point stands for the window around it. Maps of fragility: red windows are right and become wrong after a "
        "small change, blue ones are wrong and become right. Shown are the photographs with the most fragile windows"
        f"{' of those that were judged; the others are left blank' if findings.budget < 1 else ''}."
    )
    by_model = {
        model: [_photograph(context, findings, model, photo) for photo in photos.get(model, [])]
        for model in findings.models
    }
    if findings.windows:
        return Maps("Maps over the photographs", sentence, by_model)
    return Maps("Photographs", "The minimal images, as frames over the photographs.", by_model)


def _photograph(context: Context, findings: FragilityFindings, model: str, photo: Photo) -> dict[str, Any]:
    """Return what the page's map viewer needs: a photograph, and for each size its maps and the part that they cover."""
    sizes = [
        {
            "title": overlay.title,
            "side": overlay.side,
            "box": [round(100 * part, 3) for part in overlay.box],
            "maps": {kind: _map_source(picture) for kind, picture in overlay.maps.items()},
        }
        for overlay in draw_overlays(context.run, findings, model, photo)
    ]
    minimal = [
        {"side": side, "x": left, "y": top, "confidence": confidence}
        for one in findings.minimal
        if (one.model, one.image) == (model, photo.image)
        for side, left, top, confidence in one.windows
    ]
    source = inline(context.run, photo.file, photo.marks, text_size=PHOTO_TEXT)
    size = {"height": photo.height, "width": photo.width}
    return {"name": photo.name, "source": source, **size, "sizes": sizes, "minimal": minimal}


def _map_source(picture: Image.Image) -> str:
    """Return a map as the source of an image, no larger than the page shows it."""
    picture = picture.convert("RGBA")
    picture.thumbnail((MAP_SIDE, MAP_SIDE), Image.Resampling.NEAREST)
    return to_source(encode_webp(picture, lossless=True))
