"""The meta-learners that there are: the keys of each, and what is true of it. Knows no torch."""

from __future__ import annotations

from openprompt_meta.components import MetaLearnerDeclaration
from openprompt_meta.sections import Count, Section


class BmgSection(Section):
    """``bmg``: for ``meta.learner: bmg``, bootstrapped meta-gradients."""

    target_steps: Count = 5
    """L: how many steps further than J the target is, the last of them on the query set."""


META_LEARNERS = (
    MetaLearnerDeclaration(name="maml", title="MAML", implementation="openprompt_meta.learners.meta:MamlLearner"),
    MetaLearnerDeclaration(
        name="reptile",
        title="Reptile",
        implementation="openprompt_meta.learners.meta:ReptileLearner",
        second_order=False,
        learns_scalars=False,
    ),
    MetaLearnerDeclaration(
        name="bmg",
        title="BMG",
        implementation="openprompt_meta.learners.meta:BmgLearner",
        config=BmgSection,
        further_steps="target_steps",
    ),
)
