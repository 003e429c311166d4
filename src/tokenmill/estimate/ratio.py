"""From a stratified sample to a total: the combined ratio estimator and its error.

Each cell has an amount that was measured (tokens) and a measure whose total is known (bytes, or the
publisher's count of tokens). The total amount is the known total times the ratio of the two in the
sample; its error comes from the differences of residuals between neighbouring cells (Cochran,
Sampling Techniques, 6.11; Wolter, Introduction to Variance Estimation, 8.2).

Neighbours are compared, not only the two cells of each stratum: where the text changes within a
file, the change shows between two neighbours, while the two cells of its stratum may both be of one
kind. There is no correction for the share of the corpus that was sampled, so the interval is a
little too wide if that share is large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Numbers = npt.NDArray[np.float64]

CONFIDENCE = 0.95
_NORMAL_QUANTILE = 1.959964  # of CONFIDENCE, two-sided


@dataclass(frozen=True, slots=True)
class Total:
    value: float
    error: float = 0.0  # standard error
    degrees: int = 1  # of freedom

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true total lies, with CONFIDENCE."""
        margin = _t_quantile(self.degrees) * self.error
        return max(0.0, self.value - margin), self.value + margin


@dataclass(frozen=True, slots=True)
class Design:
    """How the cells were drawn: the weight and the group of each, in order."""

    weights: Numbers
    groups: npt.NDArray[np.int64]

    @staticmethod
    def of(weights: Sequence[float], groups: Sequence[int]) -> Design:
        return Design(np.asarray(weights, np.float64), np.asarray(groups, np.int64))

    def variance(self, residuals: Numbers) -> float:
        """The variance of the weighted sum of the cells' residuals."""
        differences = np.diff(self.weights * residuals) ** 2
        is_within = self.groups[1:] == self.groups[:-1]
        sums = np.bincount(self.groups[1:][is_within], differences[is_within], len(self._sizes))
        scale = self._sizes / (2 * np.maximum(1, self._sizes - 1))
        return float(np.sum(scale * sums))

    @property
    def degrees(self) -> int:
        """Of freedom: differences of neighbours are worth two thirds of independent ones."""
        return max(1, int(np.maximum(0, self._sizes - 1).sum()) * 2 // 3)

    @property
    def _sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.groups)


def ratio_total(amounts: Numbers, measures: Numbers, design: Design, known_total: float) -> Total:
    sample_total = float(np.sum(design.weights * measures))
    if not sample_total:
        return Total(0.0)
    ratio = float(np.sum(design.weights * amounts)) / sample_total
    error = math.sqrt(design.variance(amounts - ratio * measures))
    return Total(ratio * known_total, error * known_total / sample_total, design.degrees)


def _t_quantile(degrees: int) -> float:
    """Student's t: the expansion in 1/degrees (Abramowitz and Stegun 26.7.5); 0.3% off at 4."""
    z, v = _NORMAL_QUANTILE, degrees
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
