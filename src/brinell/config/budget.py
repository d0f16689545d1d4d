"""A budget: how much of a run's queries is made."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from brinell.errors import ConfigError

_EXPECTED = "expected a share (0.1 or 10%), a number of queries (20000) or an interval's half-width (±1%)"

CELLS = 0.1  # share of the cells of each image, such as levels, that a run which may stop early queries


class Budget(BaseModel):
    """One of three: a share of the queries, their number, or how narrow the interval of the headline figure has to be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float | None = Field(None, gt=0, le=1, description="Share of the queries of a full run.")
    queries: int | None = Field(None, ge=1, description="Number of queries, for every lens and model together.")
    width: float | None = Field(None, gt=0, lt=0.5, description="Half the width of the headline figure's interval.")

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return value
        return _parse_number(value) if isinstance(value, (int, float)) else _parse_text(value)

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if sum(given is not None for given in (self.share, self.queries, self.width)) != 1:
            raise ConfigError(f"a budget has exactly one of share, queries and width; {_EXPECTED}")
        return self


def _parse_number(value: float) -> dict[str, float]:
    return {"share": value} if 0 < value <= 1 and not (isinstance(value, int) and value > 1) else {"queries": value}


def _parse_text(text: str) -> dict[str, float]:
    found = re.fullmatch(r"(±|\+-|\+/-)?\s*([0-9][0-9_,]*(?:\.[0-9]*)?|\.[0-9]+)\s*(%)?", text.strip())
    if found is None:
        raise ConfigError(f"budget {text!r}: {_EXPECTED}")
    narrow, digits, percent = found.groups()
    number = float(digits.replace(",", "").replace("_", "")) / (100 if percent else 1)
    if narrow:
        return {"width": number}
    return {"share": number} if percent or number <= 1 else {"queries": number}
