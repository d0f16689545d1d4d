"""A finished run and what it found. Importing this needs no torch; what opens models again imports it late."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from brinell.errors import ConfigError, RunError
from brinell.lenses.analysis import analyses_of, find, find_one, require_rows
from brinell.lenses.rating import describe_untested, rate
from brinell.lenses.reader import Findings
from brinell.lenses.sample import describe_sample
from brinell.registry import nearest
from brinell.report.rows import Rows, sql_errors
from brinell.report.show import Chart, NamedChart
from brinell.runs.run import Run as OpenedRun
from brinell.runs.store import GATE

if TYPE_CHECKING:
    from brinell.comparison.gates import GateResult
    from brinell.comparison.rules import Gate
    from brinell.config.saliency import SaliencyOptions
    from brinell.curation.moved import ExportedMotions
    from brinell.engine.verification import Check
    from brinell.models.model import Model
    from brinell.report.page import Content, Shown
    from brinell.runs.hardness import Hardness
    from brinell.tracking.server import Server
    from brinell.tracking.track import Tracked

RunLike = "str | os.PathLike[str] | Run"


def merge(*runs: str | os.PathLike[str] | Run) -> Run:
    """Return several runs over the same images as one, to read and to report: their lenses and models side by side."""
    from brinell.runs.merged import MergedStore

    opened = [run if isinstance(run, Run) else Run(run) for run in runs]
    if not opened:
        raise ConfigError("expected at least one run to merge, got none")
    if len(opened) == 1:
        return opened[0]
    for run in opened:
        require_rows(run)
    return Run(MergedStore([run.store for run in opened]))


class Run(OpenedRun):
    """A run's folder: its rows and what follows from them. Shows its summary in a notebook."""

    @property
    def found(self) -> dict[str, Findings]:
        """What every lens found, by name; computed once."""
        return {name: self.findings_of(name) for name in require_rows(self)}

    def findings_of(self, lens: str) -> Findings:
        """Return what one lens found; computed once."""
        if lens not in self._found:
            self._found[lens] = find_one(self, lens)
        return self._found[lens]

    @cached_property
    def _found(self) -> dict[str, Findings]:
        return {}

    def refresh(self, *lenses: str) -> None:
        """Read the manifest and the tables again, after something was written; findings of these lenses are outdated."""
        super().refresh()
        for lens in lenses:
            self._found.pop(lens, None)

    def rows(self, sql: str = "select * from rows") -> Rows:
        """Query the tables `rows`, `samples` and `clean`. The result has .df(), .arrow(), .fetchall() and more."""
        with sql_errors():
            result: duckdb.DuckDBPyRelation | None = self.connection.sql(sql)
        if result is None:
            raise RunError("the query returns nothing; start it with select")
        return Rows(result, self)

    def summary(self, lens: str | None = None, **options: Any) -> Findings:
        """Return what a lens found (default: the run's first one). Options are those of `brinell summary`."""
        found = self.findings(**options)
        lens = lens or next(iter(found))
        if lens not in found:
            raise ConfigError(f"this run has no lens {lens!r}; {nearest(lens, list(found))}")
        return found[lens]

    def findings(self, **options: Any) -> dict[str, Findings]:
        """Return what every lens found, by the lens's name."""
        return find(self, options) if options else self.found

    def report(
        self,
        rules: str | os.PathLike[str] | Mapping[str, Any] | Gate | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
    ) -> str:
        """Write the HTML report into the run's folder, or to the file `out`, and return its path.

        It begins with the result of `rules`, or of those that the run was last checked by (see `brinell.gate`).
        """
        from brinell.report.page import write_report  # imports Jinja

        return write_report(self._content(rules), out)

    def _content(self, rules: str | os.PathLike[str] | Mapping[str, Any] | Gate | None = None) -> Content:
        """Return what the report is made of."""
        from brinell.report.page import Content

        return Content(self, self.shown(), rate(self), describe_untested(self), self._gate(rules), describe_sample(self))

    def cards(self, folder: str = "cards", models: Sequence[str] = ()) -> list[str]:
        """Write the card of each model into a folder of the run: SVG, PNG, and Markdown for a Hugging Face model card."""
        from brinell.report.page import write_cards

        for model in models:
            if model not in self.models:
                raise ConfigError(f"this run has no model {model!r}; {nearest(model, list(self.models))}")
        return write_cards(self._content(), folder, models)

    def hardness(self) -> dict[str, dict[str, Hardness]]:
        """Return each model's hardness under each lens that defines it: 0 to 100, with its 95 % interval."""
        return {one.lens: dict(one.models) for one in rate(self)}

    def _gate(self, rules: str | os.PathLike[str] | Mapping[str, Any] | Gate | None) -> GateResult | None:
        """Return the result of the given or the stored rules; stored ones can't be checked on an unfinished run."""
        if rules is None and not (self.finished and self.store.exists(GATE)):
            return None
        from brinell.comparison.gates import check_run, stored_rules
        from brinell.comparison.rules import read_gate

        chosen = stored_rules(self) if rules is None else rules
        return check_run(read_gate(Path(chosen) if isinstance(chosen, (str, os.PathLike)) else chosen), self)

    def figures(self, folder: str = "figures") -> list[str]:
        """Write all figures as SVG and PNG into a folder of the run."""
        from brinell.report.page import write_figures

        return write_figures(self, self.shown(), folder)

    def shown(self) -> list[Shown]:
        """Return what each lens found, with how it is shown."""
        return [self.shown_of(name) for name in self.found]

    def shown_of(self, lens: str) -> Shown:
        """Return what one lens found, with how it is shown."""
        return analyses_of(self)[lens].show, lens, self.findings_of(lens)

    def figure(self, name: str | None = None, **choice: str | None) -> Chart:
        """Return one figure as an Altair chart, which notebooks show as SVG (default: the first of the run's first lens).

        An unknown name raises with the names there are; `choice` selects what it shows, such as model=… or operator=….
        """
        charts: dict[str, tuple[Findings, NamedChart]] = {
            key: (findings, chart) for show, _, findings in self.shown() for key, chart in show.named.items()
        }
        name = name or next(iter(charts))
        if name not in charts:
            raise ConfigError(f"there is no figure {name!r}; known: {', '.join(charts)}")
        findings, chart = charts[name]
        for key, value in choice.items():
            if key not in chart.choices:
                raise ConfigError(f"the figure {name!r} has no choice {key!r}; {nearest(key, list(chart.choices))}")
            known = chart.choices[key](findings)
            if value is not None and value not in known:
                raise ConfigError(f"this run has no {key} {value!r}; {nearest(value, known)}")
        from brinell.report.figures import draw_offline

        return draw_offline(chart.draw(findings, **choice))

    def track(self, to: str | Server | None = None, *, experiment: str | None = None, quiet: bool = False) -> Tracked:
        """Log the run to an MLflow server: a parent run with the report, and a nested one per lens and operator.

        `to` is the server's URI (default: MLFLOW_TRACKING_URI). Logging is idempotent.
        """
        from brinell.engine.progress import reporter
        from brinell.tracking.server import Server
        from brinell.tracking.track import Content, track

        server = to if isinstance(to, Server) else Server(to, experiment)
        with reporter(quiet) as progress:
            return track(Content(self, self.found, self.report, self.figures), server, progress)

    def saliency(
        self,
        options: Mapping[str, Any] | SaliencyOptions | None = None,
        *,
        models: Sequence[Model] | None = None,
        data: Any = None,
        trust: bool = False,
        quiet: bool = False,
    ) -> Findings:
        """Compare where the models look on clean and on changed images.

        Models and data are opened again as the run names them; what was given as an object has to be given again. `trust`
        allows models that run code when they are opened.
        """
        from brinell.saliency.rerun import add_saliency  # imports torch

        add_saliency(self, options, models=models, data=data, trust=trust, quiet=quiet)
        self.refresh("saliency")
        return self.findings_of("saliency")

    def verify(
        self,
        sample: int = 12,
        *,
        seed: int = 0,
        models: Sequence[Model] | None = None,
        data: Any = None,
        trust: bool = False,
        quiet: bool = False,
    ) -> list[Check]:
        """Check that the run's files are complete, whole and its own, and replay a sample of its rows.

        `sample` is how many pairs of an image and an operator are measured again; 0: none, and no model is opened.
        """
        from brinell.engine.progress import reporter
        from brinell.engine.reopening import reopen  # imports torch
        from brinell.engine.verification import verify_files, verify_rows

        checks = verify_files(self)
        if sample == 0 or not all(check.passed for check in checks):
            return checks
        setup = reopen(self, models=models, data=data, trust=trust, call="verify")
        with reporter(quiet) as progress:
            return [*checks, verify_rows(self, setup, sample=sample, seed=seed, progress=progress)]

    def export_moved(
        self,
        file: str | os.PathLike[str],
        operator: str,
        *,
        score: float | None = None,
        data: Any = None,
    ) -> ExportedMotions:
        """Write the images as the run's motions left them, with their true labels: data to train on.

        `operator` is as in the rows: "affine:manifool" for the smallest motions, "affine:random" for random ones of a
        score. The file is an .npz or a folder. Data that was given to the run as an object has to be given again.
        """
        from brinell.curation.moved import export_moved  # imports torch

        return export_moved(self, Path(file), operator, score=score, data=data)

    def to_json(self, **options: Any) -> dict[str, Any]:
        """Return everything that the run found as plain data, in one versioned shape."""
        return {
            "version": 1,  # of the schema (see `brinell.schemas`)
            "run": self.folder,
            "lenses": {name: findings.to_json() for name, findings in self.findings(**options).items()},
            "queries": self.manifest.get("queries", {}),
            "sample": {"share": self.share, "words": describe_sample(self)} if self.sampled else None,
        }

    def _repr_html_(self) -> str:
        return "".join(findings._repr_html_() for findings in self.found.values())
