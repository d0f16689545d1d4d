"""How folders of images and masks are named. Importing this module imports neither torch nor Pillow."""

from __future__ import annotations

from pathlib import Path

#: folders of images and of their masks, in the order in which they are looked for
PAIRS = (
    ("images", "masks"),
    ("images", "annotations"),  # ADE20K
    ("images", "labels"),
    ("JPEGImages", "SegmentationClass"),  # Pascal VOC
)


def find_folders(root: Path) -> tuple[str, str] | None:
    """Return the folders of images and of masks that a folder has; None if there are none with PNG files."""
    for images, masks in PAIRS:
        if (root / images).is_dir() and next((root / masks).rglob("*.png"), None) is not None:
            return images, masks
    return None
