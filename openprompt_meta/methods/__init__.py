"""What the paper names, each put together from template, verbalizer, learner and what is tuned."""

from openprompt_meta.methods.metaprompter import MetaPrompter, build_metaprompter, load_language_model
from openprompt_meta.methods.task_source import TaskSource

__all__ = ["MetaPrompter", "TaskSource", "build_metaprompter", "load_language_model"]
