"""The data set that a run's configuration names."""

from __future__ import annotations

from openprompt_meta.config import DatasetSection
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.loading import load
from openprompt_meta.data.readers import Records, read_processor
from openprompt_meta.errors import DataError, did_you_mean

__all__ = ["open_dataset"]


def open_dataset(section: DatasetSection) -> TextDataset:
    """Read, split and check the data of a ``dataset`` section. :class:`DataError` if that cannot be done."""
    return load(
        _source(section),
        format="auto" if section.format == "processor" else section.format,
        name=section.name,
        text_column=section.text_column,
        label_column=section.label_column,
        config=section.hub_config,
        split=section.splits,
        counts=section.split_counts,
        seed=section.split_seed,
        fold=section.split_fold,
        label_words=section.label_words,
        drop=section.drop,
        min_samples=section.min_samples,
    )


def _source(section: DatasetSection) -> str | Records:
    if section.format == "processor":
        from openprompt.data_utils import PROCESSORS

        if section.name not in PROCESSORS:
            raise DataError(
                f"OpenPrompt has no data processor {section.name!r}.{did_you_mean(section.name, PROCESSORS)} "
                f"It has: {', '.join(sorted(PROCESSORS))}."
            )
        return read_processor(PROCESSORS[section.name](), section.path or ".")
    return section.path or (f"hf:{section.name}" if section.format == "huggingface" else section.name)
