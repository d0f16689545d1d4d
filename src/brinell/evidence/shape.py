"""What record.json looks like, for docs/schema."""

from __future__ import annotations

from typing import Literal

_STATE = Literal["passed", "failed", "untested"]
_CHECK = {
    "rule": str,
    "measure": str,
    "model": str,
    "operator": str | None,
    "level": int | None,
    "detail": str,
    "slice": str | None,
    "images": int,
    "min": float,  # of the requirement; null without one
    "max": float,
    "require": Literal["interval", "estimate"],
    "never": bool,  # whether the figure, such as a level, is never reached
    "state": str,
    "value": float,
    "low": float,
    "high": float,
    "unit": str,
}

SHAPE = {
    "version": int,
    "date": str,  # of the record, YYYY-MM-DD
    "title": str,
    "responsible": str,
    "operating_domain": str,
    "passed": bool,
    "verdict": str,
    "requirements": [{"name": str, "requirement": str, "state": _STATE, "findings": [str], "checks": [_CHECK]}],
    "tested": [{"lens": str, "operator": str, "title": str, "unit": str, "rows": int}],
    "sample": str,  # what a budget left out; empty if nothing
    "not_tested": [str],
    "degradation": {str: {str: str}},  # verdicts by lens and model
    "data": {
        "name": str,
        "description": str,
        "images": int,
        "used": int,
        "sides": [int | None],  # shortest and longest side in pixels
        "labels": {str: int},
        "excluded": [{"image": str, "reason": str}],
        "left_out": str,
    },
    "models": {str: str},  # where each came from
    "environment": {str: object},
    "measured": str,  # when the run began
    "run": str,  # its folder
    "hashes": {
        "plan": str,
        "models": {str: str},
        "images": str,
        "data_files": {str: str},
        "run_files": {str: str},
        "code": str,
    },
    "clauses": [{"clause": str, "supports": str}],
}
