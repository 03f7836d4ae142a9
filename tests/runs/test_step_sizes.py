"""The outer loop's step sizes on their way."""

from __future__ import annotations

import pytest

from openprompt_meta.config.schema import MetaSection
from openprompt_meta.runs.training import step_share


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"outer_decay": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ({"outer_decay": "tenths"}, [1, 1, 0.1, 0.1, 0.01, 0.01]),
        ({"outer_warmup": 0.5}, [0, 1 / 3, 2 / 3, 1, 1, 1]),
        ({"outer_warmup": 0.5, "outer_decay": "linear"}, [0, 1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        ({"outer_warmup": 1.0, "outer_decay": "linear"}, [0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6]),
    ],
)
def test_they_rise_and_fall(keys: dict[str, object], expected: list[float]) -> None:
    meta = MetaSection.model_validate({"iterations": 6, **keys})
    assert [step_share(meta, iteration) for iteration in range(6)] == pytest.approx(expected)
