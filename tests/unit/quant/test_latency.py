from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from assay.baselines.errors import InputError
from assay.quant.latency import measure_latency, median_interval


def test_median_interval_by_order_statistics() -> None:
    # Conover, Practical Nonparametric Statistics, table of sign-test intervals: n = 20 takes the 6th and 15th value.
    assert median_interval(list(range(1, 21))) == (6.0, 15.0)
    # n = 6 is the fewest with 95%: the whole range, at 96.9%.
    assert median_interval([3, 1, 2, 6, 5, 4]) == (1.0, 6.0)
    with pytest.raises(InputError, match="at least 6"):
        median_interval([1, 2, 3, 4, 5])


def test_the_interval_covers_the_median() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        low, high = median_interval(generator.lognormal(size=30).tolist())
        inside += low <= 1.0 <= high
    assert inside / 2000 >= 0.94


def test_warm_up_does_not_count() -> None:
    calls = count()
    # A clock that charges the first five calls a second each and the others a millisecond.
    now = [0.0]

    def call() -> None:
        now[0] += 1.0 if next(calls) < 5 else 0.001

    metric = measure_latency(call, repetitions=10, warm_up=5, clock=lambda: now[0])
    assert metric.value == pytest.approx(1.0)
    assert (metric.unit, metric.direction, metric.n, metric.scale) == ("ms", "lower", 10, "measure")
    assert metric.low == pytest.approx(1.0)
