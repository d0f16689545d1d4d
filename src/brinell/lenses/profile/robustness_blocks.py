"""What the report says over all operators: benchmark figures, calibration, and the classes, slices and images that suffer
most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.groups import Group
from brinell.lenses.profile.replicates import TITLES, UNBOUNDED
from brinell.lenses.profile.robustness import REPLICATED, Robustness
from brinell.report.section import Block, Cell, Table, share
from brinell.runs.statistics import Estimate

Read = Callable[[Robustness], Estimate | None]
_FIGURES: tuple[tuple[str, Read], ...] = (
    ("accuracy under change", lambda found: found.accuracy),
    ("accuracy under the worst operator", lambda found: found.worst),
    ("right at every level of every operator", lambda found: found.always),
)
_ERRORS: tuple[tuple[str, Read], ...] = (
    ("mCE", lambda found: found.mce),
    ("relative mCE", lambda found: found.relative_mce),
)


def robustness_blocks(findings: ProfileFindings) -> Iterator[Block]:
    """Yield corruption errors where a run has any, figures over all operators, and what suffers most."""
    found = [findings.robustness[model] for model in findings.models if model in findings.robustness]
    if len(found) < len(findings.models):
        return
    if any(each.errors for each in found):
        yield _corruption_errors(findings, found)
    rows = [[Cell(name), *(_share(read(each)) for each in found)] for name, read in _FIGURES]
    rows.append([Cell("worst operator"), *(Cell(findings.title(each.worst_operator)) for each in found)])
    rows += [
        [Cell(TITLES[name][0]), *(_figure(getattr(each, name), shares=name not in UNBOUNDED) for each in found)]
        for name in REPLICATED
        if any(getattr(each, name) is not None for each in found)
    ]
    if any(each.effective is not None for each in found):
        baseline = next(each.baseline for each in found if each.baseline is not None)
        rows.append([Cell(f"effective robustness against {baseline}"), *(_points(each.effective) for each in found)])
    yield Block(
        title="Over all degradations",
        sentence="Levels from 1 on, every operator counting equally. ECE is the gap between confidence and accuracy. "
        "Effective robustness is accuracy under change above what the baseline's loss lets expect at the same clean "
        "accuracy.",
        table=Table(["figure", *findings.models], rows),
        folded=True,
    )
    yield from _affected(findings)
    yield from _slices(findings)


def _corruption_errors(findings: ProfileFindings, found: list[Robustness]) -> Block:
    rows = [[Cell(name), *(_hundredths(read(each)) for each in found)] for name, read in _ERRORS]
    for operator in sorted({name for each in found for name in each.errors}):
        rows.append([Cell(findings.title(operator)), *(_hundredths(each.errors.get(operator)) for each in found)])
    return Block(
        title="Corruption errors (ImageNet-C)",
        sentence="A model's error relative to AlexNet's, which is 100; their mean is mCE. Lower is better.",
        table=Table(["corruption", *findings.models], rows),
    )


def _affected(findings: ProfileFindings) -> Iterator[Block]:
    """Yield the classes and images that lose most, and the classes that lose least."""
    rows = []
    for model in findings.models:
        affected = findings.affected.get(model)
        if affected is not None:
            rows += [_group(model, "most affected class", group) for group in affected.most]
            rows += [_group(model, "least affected class", group) for group in affected.least]
            rows += [
                [
                    Cell(model),
                    Cell("worst image"),
                    Cell("/".join(name.split("/")[-2:])),
                    Cell("1"),
                    Cell("100%", 1.0),
                    Cell(f"{kept:.0%}", kept),
                ]
                for name, kept in affected.images
            ]
    if rows:
        yield Block(
            title="Classes and images that suffer most",
            sentence="Accuracy on clean images and its mean over all levels from 1 on; images are those that are right "
            "when clean.",
            table=Table(["model", "", "name", "images", "clean", "under change"], rows),
            folded=True,
        )


def _slices(findings: ProfileFindings) -> Iterator[Block]:
    """Yield the slices of each column of metadata, those that lose most on average first."""
    found = [findings.affected[model] for model in findings.models if model in findings.affected]
    for column in dict.fromkeys(name for one in found for name in one.slices):
        groups = [{group.name: group for group in one.slices.get(column, ())} for one in found]
        names = {name: group for own in reversed(groups) for name, group in own.items()}
        losses = {name: sum(own[name].lost for own in groups if name in own) for name in names}
        rows = []
        for name in sorted(names, key=lambda each: (-losses[each], each)):
            row = [Cell(name), Cell(str(names[name].images), names[name].images)]
            for own in groups:
                row += _slice_cells(own.get(name))
            rows.append(row)
        heads = ["clean", "under change", "worst image"]
        yield Block(
            title=f"By {column}",
            sentence="Accuracy on clean images and its mean over all degradations and levels from 1 on; what loses most "
            "comes first. The worst image is right when clean and wrong most often under change.",
            table=Table(
                [column, "images", *heads * len(found)],
                rows,
                [("", 2), *((model, len(heads)) for model in findings.models if model in findings.affected)],
            ),
            folded=True,
        )


def _slice_cells(group: Group | None) -> list[Cell]:
    if group is None:
        return [Cell("–")] * 3
    return [Cell(f"{group.clean:.0%}", group.clean), share(group.accuracy), Cell(group.worst or "–")]


def _group(model: str, kind: str, group: Group) -> list[Cell]:
    clean = Cell(f"{group.clean:.0%}", group.clean)
    return [Cell(model), Cell(kind), Cell(group.name), Cell(str(group.images), group.images), clean, share(group.accuracy)]


def _figure(found: Estimate | None, *, shares: bool) -> Cell:
    if found is None or shares:
        return _share(found)
    return Cell(f"{found.value:.3g}", found.value, f"{found.low:.3g} to {found.high:.3g}")


def _share(found: Estimate | None) -> Cell:
    return Cell("–") if found is None else share(found)


def _hundredths(found: Estimate | None) -> Cell:
    if found is None:
        return Cell("–")
    return Cell(f"{100 * found.value:.1f}", found.value, f"{100 * found.low:.1f} to {100 * found.high:.1f}")


def _points(found: Estimate | None) -> Cell:
    if found is None:
        return Cell("–")
    return Cell(f"{100 * found.value:+.1f} points", found.value, f"{100 * found.low:+.1f} to {100 * found.high:+.1f}")
