"""Data sets for meta-learning: readers, splits by class, label words, checks, downloads and episodes.

dataset = load("demo")
episode = EpisodeSampler(dataset.train, ways=5, shots=5, queries=15, seed=0)[0]
"""

from __future__ import annotations

from openprompt_meta.data.checks import CheckReport, Finding, check
from openprompt_meta.data.cleaning import drop_conflicts, drop_duplicates, drop_small_classes
from openprompt_meta.data.dataset import SPLIT_NAMES, Split, TextDataset
from openprompt_meta.data.downloading import download
from openprompt_meta.data.episodes import Episode, EpisodeSampler
from openprompt_meta.data.facts import KNOWN_SETS, SetFacts, facts_of
from openprompt_meta.data.loading import load
from openprompt_meta.data.readers import (
    FORMATS,
    Records,
    read,
    read_authors_file,
    read_huggingface,
    read_layout,
    read_processor,
    read_table,
)
from openprompt_meta.data.splits import ClassSplit, random_class_split

__all__ = [
    "FORMATS",
    "KNOWN_SETS",
    "SPLIT_NAMES",
    "CheckReport",
    "ClassSplit",
    "Episode",
    "EpisodeSampler",
    "Finding",
    "Records",
    "SetFacts",
    "Split",
    "TextDataset",
    "check",
    "download",
    "drop_conflicts",
    "drop_duplicates",
    "drop_small_classes",
    "facts_of",
    "load",
    "random_class_split",
    "read",
    "read_authors_file",
    "read_huggingface",
    "read_layout",
    "read_processor",
    "read_table",
]
