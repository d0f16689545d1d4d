"""A criterion for embedders, which needs no classes. Importing this module does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brinell.criteria.criterion import CRITERIA, Answer, Criterion, Namer, format_compared
from brinell.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@CRITERIA.register("embedding_moved")
def embedding_moved(distance: float = 0.3) -> Criterion:
    """The cosine distance of the embedding from that of the clean image (0 to 2) is more than this."""
    if not 0 <= distance <= 2:
        raise ConfigError(f"embedding_moved expects a cosine distance from 0 to 2, got {distance:g}")

    def explain(answer: Answer, name: Namer) -> list[str]:
        moved = _moved(answer).tolist()
        return [f"cosine distance {format_compared(each, distance)} is more than {distance:g}" for each in moved]

    return Criterion(
        f"embedding_moved({distance:g})", lambda answer: _moved(answer) > distance, embeddings=True, explain=explain
    )


def _moved(answer: Answer) -> Tensor:
    assert answer.distance is not None
    return answer.distance
