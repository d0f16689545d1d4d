"""What profiles can be compared by: one number per image."""

from __future__ import annotations

from brinell.lenses.profile.curves import AREA_BY_IMAGE
from brinell.lenses.profile.limits import accuracy_at
from brinell.lenses.profile.robustness import ERROR_MEASURES
from brinell.lenses.reader import Measure

MEASURES = (
    Measure(
        name="area",
        lens="profile",
        what="mean accuracy over all levels",
        better="higher",
        unit="points",
        sql=AREA_BY_IMAGE,
        with_white_box=False,
    ),
    Measure(
        name="accuracy",
        lens="profile",
        what="accuracy",
        better="higher",
        unit="points",
        sql="select model, operator, level, image, correct::int as value from rows where lens = 'profile'",
        yes_or_no=True,
        by_level=True,
        ranked=False,
        with_white_box=False,
        by_amount=accuracy_at,
    ),
    *ERROR_MEASURES,
)
