"""The queries that a run sent to services, and what they cost, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.classes import NO_ANSWER
from brinell.runs.run import Run


def describe_queries(manifest: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each model behind HTTP."""
    lines = []
    for model, counts in manifest.get("queries", {}).items():
        oldest = f" (the oldest from {counts['oldest']})" if counts["oldest"] else ""
        failed = f"; {counts['unanswered']:,} queries got no answer" if counts.get("unanswered") else ""
        cost = format_cost(counts["sent"], counts["price"], counts.get("currency", ""))
        lines.append(
            f"{model}: {counts['sent']:,} images sent{cost}, {counts['cached']:,} answers from the cache{oldest}{failed}."
        )
    return lines


def describe_invalid(run: Run) -> list[str]:
    """Return a sentence for each chat model: how many of its answers, as rows count them, were none of its choices."""
    lines = []
    for name, model in run.models.items():
        if NO_ANSWER in (model.classes or ()):
            given = [(model.classes or ()).index(NO_ANSWER), name]
            counted = "count(*) filter (prediction = ?), count(prediction)"
            [(wrong, total)] = run.query(f"select {counted} from rows where model = ?", given)
            lines.append(f"{name}: {wrong:,} of {total:,} answers are no valid answer.")
    return lines


def format_cost(queries: int, price: float | None, currency: str) -> str:
    """Return what queries cost, where the price is known."""
    unit = f" {currency}".rstrip()
    return "" if price is None else f" for {queries * price:,.2f}{unit} (at {price:g}{unit} each)"
