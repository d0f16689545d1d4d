"""The photographs lens's section of the report."""

from __future__ import annotations

from brinell.lenses.photographs import LENS
from brinell.lenses.photographs.findings import PhotographFindings
from brinell.report.exhibits import pair_groups
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Section, Table, share
from brinell.report.show import Context


def make_section(context: Context, findings: PhotographFindings) -> Section:
    """Return accuracies on the originals and their variants."""
    from brinell.lenses.photographs.charts import accuracies, scene_bars

    results = [findings.scenes[model] for model in findings.models]
    figures = {one.model: accuracies(one) for one in results}
    names = list(figures[results[0].model])
    rows = [[Cell(name), *(share(figures[one.model][name]) for one in results)] for name in names]
    rows += [
        [Cell(f"S ≥ {k}, original right"), *(share(one.over_right[k]) for one in results)] for k in results[0].over_right
    ]
    rows.append([Cell("scenes, variants"), *(Cell(f"{one.scenes}, {one.variants}") for one in results)])
    rows.append(
        [Cell("failing variants"), *(Cell(f"{one.failing} of {one.failing_scenes} scenes", one.failing) for one in results)]
    )
    return Section(
        question=LENS.question,
        topic="photographed variants",
        findings=findings,
        options=context.options,
        blocks=[
            Block(
                title="",
                figure=Figure(
                    "photographs",
                    "Accuracy on originals and on photographed variants for each model, with 95 % intervals. The table "
                    "below has the numbers.",
                    [scene_bars(findings)],
                    [
                        {"model": model, "figure": name, **vars(value)}
                        for model, own in figures.items()
                        for name, value in own.items()
                    ],
                    list(model_colours(findings.models).items()),
                ),
                sentence="“S-average” is the mean accuracy on a scene's variants. “S ≥ k” counts a scene as failed "
                "once k of its variants fail, or if its original is wrong; “original right” leaves out scenes whose "
                "original is wrong.",
                table=Table(["accuracy", *findings.models], rows),
                notes=[f"{findings.unpaired} photographs have no original or no variant and don't count."]
                if findings.unpaired
                else [],
            )
        ],
        galleries=[
            Gallery(
                "Variants that the model gets wrong",
                "Scenes whose original is right: the original, and the variant that is wrong with the most confidence.",
                pair_groups(context, LENS.name, findings),
            )
        ],
        method=["Every scene has an original and photographs of it under other conditions: photographed variants."],
    )
