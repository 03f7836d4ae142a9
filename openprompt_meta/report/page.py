"""The page: one HTML file that needs nothing else, on a screen and on paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from openprompt_meta.config.loading import load_config, shipped_yamls
from openprompt_meta.config.schema import RunConfig, component_sections, describe
from openprompt_meta.html_templates import render_html
from openprompt_meta.report.figures.comparison import Baselines
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.runs.evaluation import TasksSummary, summarise_tasks
from openprompt_meta.version import __version__

# -- what a reader asks first -----------------------------------------------------------------------------------------

_CLASSES = {"test": "test", "valid": "validation"}


@dataclass(frozen=True)
class RunSummary:
    """What a reader asks first, answered in words; ``behind`` is said before, if no training at all is better."""

    label: str
    behind: str
    how_good: str
    against_what: str
    on_what: str
    how_sure: str


def summarise_run(run: FinishedRun, baselines: Baselines | None) -> RunSummary:
    """The answers for one run; ``baselines`` are its figure's numbers, if they could be had."""
    accuracy, meta = run.accuracy, run.config.meta
    transductive = "transductive" in run.results.get("test_accuracy", {})
    spread = (
        f"the trainings of {accuracy.seeds} seeds differ by a deviation of {100 * accuracy.deviation:.2f} points"
        if accuracy.deviation is not None
        else "one training only, so what another seed would give is not known"
    )
    interval = "?" if accuracy.interval is None else f"{100 * accuracy.interval:.2f}"
    return RunSummary(
        label=run.label,
        behind=_behind(baselines),
        how_good=f"{100 * accuracy.mean:.2f} ± {interval} %",
        against_what=_against(run, baselines),
        on_what=(
            f"{accuracy.tasks} tasks of {run.config.dataset.name}'s {_CLASSES[meta.test_classes]} classes: {meta.way} "
            f"that were never trained on, {meta.shot} examples and {meta.query} queries of each; "
            f"{run.config.plm.model_path}, {'tuned' if run.config.tunes_model else 'frozen'}"
            + ("; transductive, that is, it has looked at all queries of a task at once" if transductive else "")
        ),
        how_sure=f"± is the 95 % interval over tasks; {spread}",
    )


def _behind(baselines: Baselines | None) -> str:
    if baselines is None:
        return ""
    gain = baselines.gain_over(baselines.best)
    if gain.mean >= 0 or gain.interval is None or -gain.mean <= gain.interval:
        return ""
    return f"Training has not paid off here: {baselines.best}, which needs none, is better."


def _against(run: FinishedRun, baselines: Baselines | None) -> str:
    chance = f"chance is {100 / run.config.meta.way:.0f} %"
    if baselines is None:
        return chance
    name = baselines.best
    own, other = summarise_tasks(baselines.run), summarise_tasks(baselines.without_training[name])
    return (
        f"on the same {own.tasks} tasks (seed {baselines.seed}) this run has {own} %, and {name}, which needs no "
        f"training, {other} %: {_verdict(baselines.gain_over(name))}; {chance}"
    )


def _verdict(gain: TasksSummary) -> str:
    points = f"{100 * abs(gain.mean):.2f}"
    half = "" if gain.interval is None else f" ± {100 * gain.interval:.2f}"
    said = f"{'better' if gain.mean > 0 else 'worse'} by {points}{half} points" if gain.mean else "no difference"
    if gain.interval is None or abs(gain.mean) <= gain.interval:
        return f"{said}, which cannot be told from chance"
    return said


# -- what was set otherwise than in the paper -------------------------------------------------------------------------

# Where a run was, not what it did.
_PLACES = (
    "dataset.path",
    "run.folder",
    "run.loggers",
    "run.tensorboard",
    "run.checkpoint_every",
    "run.device",
    "run.threads",
)


def paper_configuration(config: RunConfig) -> RunConfig:
    """What the paper sets for the data set of a run: the YAML that ships for it; else the configuration's defaults.

    The paper has 1 and 5 shots; other numbers are compared with 5.
    """
    name = f"{config.dataset.name}/{1 if config.meta.shot == 1 else 5}shot-bert"
    return load_config(shipped_yamls()[name]) if name in shipped_yamls() else RunConfig()


def differences_from_paper(configs: Sequence[RunConfig]) -> list[list[str]]:
    """Keys that some run set otherwise than the paper: key, the paper's value, each run's value.

    The paper's values are those of :func:`paper_configuration`; where the paper says nothing, it is ours.
    """
    papers = [paper_configuration(config) for config in configs]
    rows = []
    for key in describe():
        values = [config.value_at(key.path) for config in configs]
        theirs = [paper.value_at(key.path) for paper in papers]
        if key.path in _PLACES or _is_idle(key.section, configs) or values == theirs:
            continue
        rows.append([key.path, " / ".join(dict.fromkeys(map(_shown, theirs))), *map(_shown, values)])
    return rows


def _is_idle(section: str, configs: Sequence[RunConfig]) -> bool:
    return section in component_sections() and all(section not in config.sections_in_use for config in configs)


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


# -- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """One picture with what it says; ``label`` is the run's, if it is of one."""

    label: str
    svg: bytes
    caption: str
    table: list[list[str]] = field(default_factory=list)

    @property
    def svg_base64(self) -> str:
        """The picture as an address on the page has it."""
        return base64.b64encode(self.svg).decode("ascii")


@dataclass(frozen=True)
class FigureSection:
    """One kind of figure, for all runs or for each; ``trouble`` is why a part of it is missing."""

    name: str
    title: str
    question: str
    pictures: list[Picture]
    trouble: str = ""


def render_page(
    runs: Sequence[FinishedRun],
    summaries: Sequence[RunSummary],
    sections: Sequence[FigureSection],
    command: str,
    more: Sequence[str] = (),
) -> str:
    """The whole page. Nothing in it is fetched from anywhere, which its own policy enforces.

    ``more`` are commands that make figures which are not on it.
    """
    names = [run.label for run in runs] if len(runs) > 1 else ["this run"]
    rows = differences_from_paper([run.config for run in runs])
    return render_html(
        "openprompt_meta.report",
        "page.html.jinja",
        title=f"{runs[0].setting}: {', '.join(run.label for run in runs)}",
        runs=runs,
        summaries=summaries,
        differences=[["key", "paper", *names], *rows] if rows else [],
        sections=sections,
        command=command,
        more=more,
        version=__version__,
    )
