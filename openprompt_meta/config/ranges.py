"""Numbers that a key may take, written into its type: ``shot: Count = 5``.

A type checker sees the plain ``int`` or ``float``; :mod:`openprompt_meta.config.values` sees the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

__all__ = ["Count", "LearningRate", "NonNegative", "Positive", "Proportion", "Range", "Seed", "Steps"]


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included unless ``above`` is used for the lower one."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies within."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f"between {self.minimum:g} and {self.maximum:.10g}"
        if self.above is not None:
            return f"above {self.above:g}" + ("" if self.maximum is None else f" and at most {self.maximum:g}")
        if self.minimum is not None:
            return f"of at least {self.minimum:g}"
        return "" if self.maximum is None else f"of at most {self.maximum:g}"


Count = Annotated[int, Range(minimum=1)]
Steps = Annotated[int, Range(minimum=0)]
Seed = Annotated[int, Range(minimum=0, maximum=2**32 - 1)]  # what numpy and torch both take
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(minimum=0)]
Proportion = Annotated[float, Range(minimum=0, maximum=1)]
LearningRate = Positive
