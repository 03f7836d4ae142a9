"""What can be added to the package: each component declares itself once, and everything else asks its declaration.

A declaration says, without importing torch, what a component is called, which keys its section of a YAML has, where
its code is and what is true of it. Ours stand beside the code (``verbalizers/__init__.py`` and so on); those of
other packages are found by entry points in the groups ``openprompt_meta.verbalizers``, ``openprompt_meta.methods``,
``openprompt_meta.meta_learners``, ``openprompt_meta.readers`` and ``openprompt_meta.figures``, each the name of a
declaration object.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from openprompt_meta.compat.versions import entry_points_of
from openprompt_meta.sections import Problem, Section

if TYPE_CHECKING:
    from pathlib import Path


logger = logging.getLogger(__name__)

Kind = Literal["verbalizers", "methods", "meta_learners", "readers", "figures"]
_OURS: Mapping[Kind, str] = {
    "verbalizers": "openprompt_meta.verbalizers:VERBALIZERS",
    "methods": "openprompt_meta.methods:METHODS",
    "meta_learners": "openprompt_meta.learners:META_LEARNERS",
    "readers": "openprompt_meta.data.readers:READERS",
    "figures": "openprompt_meta.report.figures:FIGURES",
}


class VerbalizerSection(Section):
    """Settings of a verbalizer, and what follows from them."""

    @property
    def uses_words(self) -> bool:
        """Whether label words make a difference."""
        return self.needs_vocabulary_head

    @property
    def needs_vocabulary_head(self) -> bool:
        """Whether predictions need the language model's logits over the vocabulary."""
        return any(self.head_needed_by())

    @property
    def reads_names(self) -> bool:
        """Whether the words of each class are read as a text, and handed over with the support set."""
        return False

    @property
    def knows_classes_by_words(self) -> bool:
        """Whether a class needs no example."""
        return False

    @property
    def does_without_names(self) -> bool:
        """Whether words that are read add to examples, so that a task may bring none."""
        return False

    @property
    def learned(self) -> tuple[str, ...]:
        """Keys whose values are learned across tasks."""
        return ()

    @property
    def transductive(self) -> bool:
        """Whether a prediction depends on the texts that are predicted along with it."""
        return False

    def head_needed_by(self) -> Iterator[tuple[str, str, str]]:
        """Why a vocabulary head is needed: a key (or nothing, for the verbalizer itself), its value, what to do."""
        return iter(())

    def problems(self, name: str) -> Iterator[Problem]:
        """Values that are each fine and do not go together; ``name`` is the section's."""
        return iter(())


@dataclass(frozen=True)
class TaskWork:
    """What a method does with one task, counted in texts that go through the language model: estimates build on it.

    Attributes:
        read: texts read without gradient.
        learned: texts read forwards and backwards.
        steps: steps of an optimiser over all that is tuned.
        once: no text of a split is read twice, however many tasks it is in.
    """

    read: float = 0.0
    learned: float = 0.0
    steps: float = 0.0
    once: bool = False


class MethodSection(Section):
    """Settings of a method, and what follows from them."""

    @property
    def tunes(self) -> str:
        """What the method learns, in words: ``the pool of prompts``."""
        return "nothing"

    @property
    def tunes_model(self) -> bool:
        """Whether it changes the language model's own weights."""
        return False

    @property
    def transductive(self) -> bool:
        """Whether a prediction depends on the texts that are predicted along with it."""
        return False

    @property
    def fixes_shots(self) -> bool:
        """Whether what is learned can be used with no other number of examples a class."""
        return False

    def problems(self, config: Any) -> Iterator[Problem]:
        """What of a run's whole configuration does not go together with this method."""
        return iter(())

    def evaluation_work(self, config: Any) -> TaskWork:
        """To evaluate a task; by default its texts are read once and for all."""
        return TaskWork(read=config.meta.way * (config.meta.shot + config.meta.query), once=True)

    def iteration_work(self, config: Any) -> TaskWork:
        """To learn from a task of a meta-iteration."""
        return TaskWork()


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What is true of a component.

    Attributes:
        name: in a YAML and on the command line.
        title: in tables and figures.
        implementation: its code, ``package.module:attribute``, imported when it is first used.
        config: the keys of its section; without any there is no section.
        section: what the section is called, if not by the component's name.
    """

    name: str
    title: str
    implementation: str
    config: type[Section] = Section
    section: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "section", self.section or self.name)

    def load(self) -> Any:
        """The implementation."""
        return _named(self.implementation)


@dataclass(frozen=True, kw_only=True)
class VerbalizerDeclaration(Declaration):
    """A verbalizer: its class takes ``tokenizer``, ``model`` and the keys of its section.

    Attributes:
        openprompt_lr: step size for its parameters in OpenPrompt's own runners; nothing if it has none to be stepped.
    """

    config: type[VerbalizerSection] = VerbalizerSection
    openprompt_lr: float | None = None


@dataclass(frozen=True, kw_only=True)
class MethodDeclaration(Declaration):
    """A method: a function of a run's configuration, language model, data set, seed and whether to show progress.

    Attributes:
        trains_across_tasks: whether there is a training loop before the test.
        uses_verbalizer: whether the chosen verbalizer is part of it.
        also_uses: sections of other components that it reads.
    """

    config: type[MethodSection] = MethodSection
    trains_across_tasks: bool = False
    uses_verbalizer: bool = False
    also_uses: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MetaLearnerDeclaration(Declaration):
    """A meta-learner: its class takes what a ``GradientLearner`` takes, and the keys of its section.

    Attributes:
        second_order: whether ``meta.first_order: false`` makes a difference.
        learns_scalars: whether it learns what no inner step changes, such as a verbalizer's ``learn``.
        further_steps: key of its section with how many steps further it takes each task, the last on the query set.
    """

    second_order: bool = True
    learns_scalars: bool = True
    further_steps: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReaderDeclaration(Declaration):
    """A reader of labelled texts, by its name in ``dataset.format``: a function from a ``Source`` to ``Records``.

    Attributes:
        recognises: whether it understands what stands at a path, for ``dataset.format: auto``; one without is used by
            name only.
        by_name: whether it finds a data set by ``dataset.name`` alone, as on a hub; the others need a path.
    """

    recognises: Callable[[Path], bool] | None = None
    by_name: bool = False


def verbalizers() -> Mapping[str, VerbalizerDeclaration]:
    """The verbalizers by their names in ``verbalizer:``."""
    return declared("verbalizers")


def methods() -> Mapping[str, MethodDeclaration]:
    """The methods by their names in ``method:``."""
    return declared("methods")


def meta_learners() -> Mapping[str, MetaLearnerDeclaration]:
    """The meta-learners by their names in ``meta.learner``."""
    return declared("meta_learners")


def readers() -> Mapping[str, ReaderDeclaration]:
    """The readers by their names in ``dataset.format``."""
    return declared("readers")


def figures() -> Mapping[str, Any]:
    """The figures by their names in ``openprompt-meta plot``."""
    return declared("figures")


@cache
def declared(kind: Kind) -> Mapping[str, Any]:
    """Ours, and those of other packages, by name. A package that cannot be used is left out, with a warning."""
    found = {declaration.name: declaration for declaration in _named(_OURS[kind])}
    own = set(found)
    for entry in entry_points_of(f"openprompt_meta.{kind}"):
        package = entry.dist.name if entry.dist else entry.value
        try:
            declaration = entry.load()
            name = declaration.name
        except Exception as error:  # whatever a foreign package does wrong, the others are still there
            logger.warning("%s of %s cannot be used and is left out: %s", entry.value, package, error)
            continue
        if name in own:
            logger.warning("%s of %s is left out: %r is the name of one of ours.", entry.value, package, name)
            continue
        found[name] = declaration
    return MappingProxyType(found)


def _named(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
