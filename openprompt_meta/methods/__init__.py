"""What the paper names, each put together from template, verbalizer, learner and what is tuned."""

from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.metaprompter import MetaPrompter, build_metaprompter
from openprompt_meta.methods.method import Method
from openprompt_meta.methods.registry import METHODS, build_method
from openprompt_meta.methods.task_source import TaskSource, Texts

__all__ = [
    "METHODS",
    "MetaPrompter",
    "Method",
    "TaskSource",
    "Texts",
    "build_metaprompter",
    "build_method",
    "load_language_model",
]
