"""Learning within a task (base learner) and across tasks (meta-learners)."""

from openprompt_meta.learners.base_learner import BaseLearner, OpenTasks
from openprompt_meta.learners.maml import Adaptation, MamlLearner
from openprompt_meta.learners.meta_learner import MetaLearner, MetaStep, TaskOutcome
from openprompt_meta.learners.task import Batch, Task

__all__ = [
    "Adaptation",
    "BaseLearner",
    "Batch",
    "MamlLearner",
    "MetaLearner",
    "MetaStep",
    "OpenTasks",
    "Task",
    "TaskOutcome",
]
