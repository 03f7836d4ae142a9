"""Learning within a task (base learner) and across tasks (meta-learners)."""

from openprompt_meta.learners.adaptation import Adaptation, Adapter
from openprompt_meta.learners.adapting import AdaptingLearner, GradientLearner
from openprompt_meta.learners.base_learner import BaseLearner, OpenTasks
from openprompt_meta.learners.bmg import BmgLearner
from openprompt_meta.learners.gradient_steps import InnerSteps
from openprompt_meta.learners.in_place import InPlace, Weights
from openprompt_meta.learners.inner_loop import InnerLoop
from openprompt_meta.learners.maml import MamlLearner
from openprompt_meta.learners.meta_learner import MetaLearner, MetaStep, TaskLearner, TaskOutcome
from openprompt_meta.learners.pool_clones import PoolClones
from openprompt_meta.learners.reptile import ReptileLearner
from openprompt_meta.learners.task import Batch, Task

__all__ = [
    "Adaptation",
    "Adapter",
    "AdaptingLearner",
    "BaseLearner",
    "Batch",
    "BmgLearner",
    "GradientLearner",
    "InPlace",
    "InnerLoop",
    "InnerSteps",
    "MamlLearner",
    "MetaLearner",
    "MetaStep",
    "OpenTasks",
    "PoolClones",
    "ReptileLearner",
    "Task",
    "TaskLearner",
    "TaskOutcome",
    "Weights",
]
