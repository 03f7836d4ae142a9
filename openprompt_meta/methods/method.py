"""What every method is to a run: something that judges tasks, and where tasks come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openprompt_meta.errors import ConfigError
from openprompt_meta.learners import TaskLearner
from openprompt_meta.methods.task_source import TaskSource
from openprompt_meta.model import MaskClassifier
from openprompt_meta.prompts import PromptPoolTemplate

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """A method ready to be trained, if it is one that trains, and tested.

    Attributes:
        learner: adapts to tasks and judges them; a :class:`~openprompt_meta.learners.MetaLearner` if there is
            something to learn across tasks.
        sources: tasks of the splits ``train``, ``valid`` and ``test``, the same for every method of a seed.
        num_parameters: how many numbers are tuned, across tasks or inside one.
        eval_steps: steps inside a task in validation and test.
        classifier: the language model with template and verbalizer, for methods that prompt.
    """

    learner: TaskLearner
    sources: Mapping[str, TaskSource]
    num_parameters: int
    eval_steps: int
    classifier: MaskClassifier | None = None

    @property
    def template(self) -> PromptPoolTemplate:
        """The classifier's."""
        if self.classifier is None:
            raise ConfigError("This method has no template. Choose one that prompts, such as method: metaprompter.")
        template: PromptPoolTemplate = self.classifier.template
        return template
