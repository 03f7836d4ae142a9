"""One family of exceptions. A message says what was given, what was expected and how to fix it.

And what every message passes on its way to a person: nothing that was given may steer a terminal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class OpenPromptMetaError(Exception):
    """Anything that this package refuses to do, with the reason and the remedy in its message."""


class ArtefactError(OpenPromptMetaError, ValueError):
    """A saved classifier that is missing, damaged, somebody else's or too new, or that cannot be written."""


class CompatibilityError(OpenPromptMetaError, ImportError):
    """A needed library is missing, or its version is outside the supported range."""


class ConfigError(OpenPromptMetaError, ValueError):
    """A run configuration that cannot be run as it stands."""


class DataError(OpenPromptMetaError, ValueError):
    """A data set, class split or episode that cannot be built as asked."""


class ModelError(OpenPromptMetaError, ValueError):
    """A language model that cannot do what it is asked for."""


class NotFiniteError(OpenPromptMetaError, ArithmeticError):
    """Learning ran into a loss that is infinite or not a number."""


class RunError(OpenPromptMetaError, RuntimeError):
    """A run folder or checkpoint that cannot be used as asked."""


class CheckpointError(RunError):
    """A checkpoint that is missing, damaged, somebody else's, or of another run."""


class ServiceError(OpenPromptMetaError, RuntimeError):
    """A service that cannot be started as asked."""


class TemplateError(OpenPromptMetaError, ValueError):
    """A template text, prompt pool or wrapped batch that does not fit."""


class VerbalizerError(OpenPromptMetaError, ValueError):
    """Label words, classes or support examples that a verbalizer cannot work with."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the nearest of ``options``, or the empty string if none is near."""
    nearest = difflib.get_close_matches(name, list(options), n=1, cutoff=0.6)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


# Control characters, halves of pairs, line ends other than "\n", and what turns the direction of writing.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text of any origin for a terminal: signs that would steer it are spelt as in JSON, line ends and tabs stay."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """The same on one line: a name can hold line ends, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
