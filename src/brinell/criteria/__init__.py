"""Criteria: what counts as broken. Importing this package registers all of them, without importing torch."""

import brinell.criteria.classification
import brinell.criteria.detection
import brinell.criteria.embedding
import brinell.criteria.segmentation  # noqa: F401
