"""Compares where models look before and after a change, for the rows of any lens.

For each model and operator, changed images that fail are compared and, as a control, as many that don't; only images
that the model gets right when clean. Where a lens pairs failures with similar images that are right, those are
compared, otherwise the changed image and the clean one. The results go to saliency.parquet; the pairs that differ
most are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pyarrow as pa

from brinell.config.saliency import SaliencyOptions
from brinell.engine.clean import readable
from brinell.engine.progress import Reporter
from brinell.engine.setup import RunSetup
from brinell.lenses.lens import LENSES
from brinell.pictures import encode_webp, to_picture
from brinell.runs.run import Run
from brinell.saliency.batch import TABLE, ImageSource, MappedOperator, PairBatch
from brinell.saliency.layers import NoSaliency
from brinell.saliency.mapper import SaliencyMapper, open_mapper
from brinell.saliency.pairs import FOLDER, SaliencyPair, write_pairs
from brinell.saliency.selection import Rows, group_by_images, list_operators, select_rows, take

SHOWN = 2  # pairs that are drawn for each model and operator


def compare_saliency(
    run: Run, setup: RunSetup, options: SaliencyOptions, pool: ThreadPoolExecutor, reporter: Reporter
) -> None:
    """Compare saliency for all lenses and models of a run, unless that was done with the same options before."""
    chosen = options.model_dump(mode="json")
    if run.manifest.get("saliency", {}).get("options") == chosen and run.store.exists("saliency.parquet"):
        return
    entries = {entry.image: entry for entry in reversed(readable(run.store.table("samples")))}  # the first of equal images
    source = ImageSource(setup.dataset, entries, pool)
    layers, without, tables, pairs = {}, {}, [TABLE.empty_table()], []
    for model in setup.models:
        try:
            mapper = open_mapper(model, options.method_of(model.task), options.layer_of(model.name))
        except NoSaliency as reason:
            without[model.name] = str(reason)
            reporter.say(f"{model.name} has no saliency maps: {reason}")
            continue
        layers[model.name] = mapper.layer.title
        selected = list(_select(run, setup, options, mapper))
        advance = reporter.stage(f"saliency of {model.name}", sum(len(rows["image"]) for _, rows in selected), "pairs")
        with mapper:
            for mapped, rows in selected:
                table, indices = _compare_rows(mapped, rows, source, advance)
                tables.append(table)
                pairs += _draw_pairs(run, mapped, table, [take(rows, slice(i, i + 1)) for i in indices], source)
    run.store.write_table("saliency", pa.concat_tables(tables).unify_dictionaries())
    write_pairs(run, pairs)
    manifest = run.store.manifest()
    manifest["saliency"] = {"options": chosen, "layers": layers, "without": without}
    run.store.write_manifest(manifest)
    run.refresh()


def _select(
    run: Run, setup: RunSetup, options: SaliencyOptions, mapper: SaliencyMapper
) -> Iterator[tuple[MappedOperator, Rows]]:
    """Yield every operator of every lens, with the rows that are compared."""
    model = mapper.model.name
    for lens_options in setup.config.lenses:
        lens = LENSES[lens_options.name]
        for operator in list_operators(run, lens.name, model):
            rows = select_rows(run, lens.reader, lens=lens.name, model=model, operator=operator, most=options.pairs)
            yield MappedOperator(lens, lens_options, operator, mapper, options, setup.config.seed), rows


def _compare_rows(
    mapped: MappedOperator, rows: Rows, source: ImageSource, advance: Callable[[int], None]
) -> tuple[pa.Table, list[int]]:
    """Return the shifts of all chosen rows and of their controls, and the indices of the rows that they are of."""
    tables, indices = [TABLE.empty_table()], []
    for part in group_by_images(rows):
        batch = PairBatch(mapped, take(rows, part), source)
        for table, own in batch.compare(controlled=not rows["failed"].all()):
            tables.append(table)
            indices += part[own].tolist()
        advance(len(part))
    return pa.concat_tables(tables), indices


def _draw_pairs(
    run: Run, mapped: MappedOperator, table: pa.Table, rows: Sequence[Rows], source: ImageSource
) -> list[SaliencyPair]:
    """Draw the failing pairs whose maps have the least in common, each of another image; `rows` are those of the table."""
    records = [
        record | {"rows": own}
        for record, own in zip(table.to_pylist(), rows, strict=True)
        if record["failed"] and record["overlap"] is not None and record["shifted"] is not None
    ]
    records.sort(key=lambda record: (not record["shifted"], record["overlap"]))
    shown = list({record["image"]: record for record in reversed(records)}.values())[::-1][:SHOWN]
    pairs = []
    for number, record in enumerate(shown):
        batch = PairBatch(mapped, record["rows"], source)
        lens, model, operator = mapped.lens.name, batch.model.name, mapped.operator
        file = f"{FOLDER}/{quote(model, safe='')}/{lens}-{quote(operator, safe='')}-{number}.webp"
        run.store.write(encode_webp(to_picture(batch.draw(record))), *file.split("/"))
        facts = (lens, model, operator, record["image"], record["label"], record["prediction"])
        pairs.append(SaliencyPair(*facts, record["overlap"], record["shifted"], file, *batch.marks()))
    return pairs
