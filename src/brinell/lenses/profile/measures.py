"""What profiles can be compared by: one number per image."""

from __future__ import annotations

from brinell.lenses.profile.curves import AREA_BY_IMAGE
from brinell.lenses.profile.limits import accuracy_at
from brinell.lenses.profile.robustness import ERROR_MEASURES
from brinell.lenses.reader import Measure
from brinell.runs.weights import weighted_mean

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
    Measure(
        name="iou",
        lens="profile",
        what="mean IoU of an image over all levels, of segmenters",
        better="higher",
        unit="points",
        sql=f"""select model, operator, image, {weighted_mean("iou")} as value from rows
                where lens = 'profile' and level > 0 and iou is not null group by all""",
        ranked=False,
        with_white_box=False,
    ),
    *ERROR_MEASURES,
)
