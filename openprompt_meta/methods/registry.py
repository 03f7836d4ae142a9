"""`method:` of a run's configuration, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.methods.baselines import (
    build_contrastive,
    build_fine_tuning,
    build_logistic_regression,
    build_mask_prototypes,
    build_mean_prototypes,
    build_nearest_neighbours,
)
from openprompt_meta.methods.metaprompter import build_metaprompter
from openprompt_meta.methods.metaprompting import build_metaprompting
from openprompt_meta.methods.method import Method
from openprompt_meta.methods.verbalizer_tuning import build_verbalizer_tuning

__all__ = ["METHODS", "build_method"]

METHODS: Mapping[str, Callable[[RunConfig, LoadedMLM, TextDataset, int, bool], Method]] = {
    "metaprompter": build_metaprompter,
    "metaprompting": build_metaprompting,
    "verbalizer": build_verbalizer_tuning,
    "mask_prototypes": build_mask_prototypes,
    "mean_prototypes": build_mean_prototypes,
    "logistic_regression": build_logistic_regression,
    "nearest_neighbours": build_nearest_neighbours,
    "fine_tuning": build_fine_tuning,
    "contrastive": build_contrastive,
}
"""By their names in a configuration."""


def build_method(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Put the method that ``config.method`` names together for one seed.

    Args:
        config: the whole run.
        loaded: from ``load_language_model``. It is read, never changed, so seeds and methods may share it.
        dataset: the texts.
        seed: of whatever starts at random, and of the tasks, which are the same for all methods.
        show_progress: draw a progress bar while texts are encoded.
    """
    return METHODS[config.method](config, loaded, dataset, seed, show_progress)
