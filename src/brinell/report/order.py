"""Models in the same order everywhere on a page: that of the run, whatever a lens ranks them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brinell.report.section import Block, Gallery, Section, Table


def order_models(section: Section, models: Sequence[str]) -> Section:
    """Return a section whose tables, pictures and maps have the models in this order."""
    return replace(
        section,
        blocks=[_order_block(block, models) for block in section.blocks],
        galleries=[_order_gallery(gallery, models) for gallery in section.galleries],
        maps=section.maps
        and replace(
            section.maps, by_model={name: section.maps.by_model[name] for name in models if name in section.maps.by_model}
        ),
    )


def order_table(table: Table, models: Sequence[str]) -> Table:
    """Return a table whose columns, or groups of columns, have the models in this order; others stay where they are."""
    groups = list(table.groups) or [(head, 1) for head in table.heads]
    starts = [sum(count for _, count in groups[:number]) for number in range(len(groups))]
    own = [number for number, (text, _) in enumerate(groups) if text in models]
    if len({groups[number][1] for number in own}) > 1:
        return table  # groups of several widths
    order = list(range(len(groups)))
    for place, number in zip(own, sorted(own, key=lambda number: models.index(groups[number][0])), strict=True):
        order[place] = number
    columns = [starts[number] + offset for number in order for offset in range(groups[number][1])]
    return replace(
        table,
        heads=[table.heads[column] for column in columns],
        rows=[[row[column] for column in columns] for row in table.rows],
        groups=[groups[number] for number in order] if table.groups else (),
    )


def _order_block(block: Block, models: Sequence[str]) -> Block:
    return block if block.table is None else replace(block, table=order_table(block.table, models))


def _order_gallery(gallery: Gallery, models: Sequence[str]) -> Gallery:
    known = [group for group in gallery.groups if group.model in models]
    others = [group for group in gallery.groups if group.model not in models]
    return replace(gallery, groups=[*sorted(known, key=lambda group: models.index(group.model)), *others])
