"""Counts the queries that a run sends to services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from brinell.engine.context import RunContext
from brinell.engine.manifest import is_current
from brinell.engine.parts.part import ALONE, keep_answers


@contextmanager
def count_queries(context: RunContext) -> Iterator[None]:
    """Count the queries to services, and store them with the run whether it finishes or fails."""
    store, manifest = context.store, context.manifest
    services = {model.name: model.service for model in context.setup.models if model.service is not None}
    alone = manifest.get("parts", {}).get(ALONE, manifest).get("queries", {})
    held = alone if context.part is None else context.part.held.facts.get("queries", {})
    before = {name: counts.get("unanswered", 0) for name, counts in held.items()}
    own = "" if context.part is None else f", part {context.part.part}"
    for service in services.values():
        service.begin(f"{store.place()} of {manifest['created']}{own}")
    try:
        yield
    finally:
        if services and is_current(store, manifest):
            manifest["queries"] = {
                name: {
                    **asdict(service.counts),
                    "price": service.price,
                    "currency": service.currency,
                    "unanswered": before.get(name, 0) + service.unanswered,
                }
                for name, service in services.items()
            }
            answers = {name: _texts(service.seen) for name, service in services.items() if service.seen}
            if context.part is None:
                keep_answers(manifest, answers)
            elif answers:
                context.part.keep({"answers": answers})
            context.save("queries")


def _texts(seen: Mapping[int, str]) -> dict[str, str]:
    return {str(index): text for index, text in sorted(seen.items())}
