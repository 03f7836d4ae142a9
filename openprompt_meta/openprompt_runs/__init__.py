"""OpenPrompt's own runs, from its YAMLs and with its runners, on any device and without pickle.

* :mod:`~openprompt_meta.openprompt_runs.config`: a YAML with command-line overrides, checked before anything loads.
* :mod:`~openprompt_meta.openprompt_runs.runners`: OpenPrompt's runners, freed of CUDA and pickle.
* :mod:`~openprompt_meta.openprompt_runs.run`: the whole run, and our data sets as OpenPrompt's.
"""

from openprompt_meta.openprompt_runs.config import make_config, parse_openprompt_overrides, read_config
from openprompt_meta.openprompt_runs.run import (
    CONFIG_FILE,
    OpenPromptResult,
    resume_openprompt,
    run_openprompt,
    test_openprompt,
)

__all__ = [
    "CONFIG_FILE",
    "OpenPromptResult",
    "make_config",
    "parse_openprompt_overrides",
    "read_config",
    "resume_openprompt",
    "run_openprompt",
    "test_openprompt",
]
