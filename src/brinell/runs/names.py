"""Names that runs store and reports show."""

MEDIAN = "median"  # the tag of a picture of the typical image, next to those of the images that break first
