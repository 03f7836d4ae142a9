"""Classifiers on a tiny model, and a service around one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from tests.helpers.services import new_classifier, running


@pytest.fixture(scope="session")
def unfitted(tiny_mlm_folder: Callable[[str], Path]) -> MetaPromptClassifier:
    return new_classifier(tiny_mlm_folder("bert"))


@pytest.fixture(scope="session")
def fitted(tiny_mlm_folder: Callable[[str], Path]) -> MetaPromptClassifier:
    return new_classifier(tiny_mlm_folder("bert"), fitted=True)


@pytest.fixture
def service(fitted: MetaPromptClassifier) -> Iterator[httpx.Client]:
    """A client of a service that came with the task of ``CLASSES``."""
    with running(fitted) as client:
        yield client
