"""The search tree of stored boxes against a mask with one bit for each element."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.npu_backend.coverage import Coverage
from assay.npu_backend.tensor import Box

SHAPE = (5, 4, 6)
ranges = [st.tuples(st.integers(0, n - 1), st.integers(1, n)).map(sorted).filter(lambda r: r[0] < r[1]) for n in SHAPE]
a_box = st.tuples(*ranges).map(lambda box: tuple((low, high) for low, high in box))


@settings(deadline=None, max_examples=150)
@given(stored=st.lists(a_box, max_size=14), asked=st.lists(a_box, min_size=1, max_size=4))
def test_overlap_and_cover_are_those_of_a_mask(stored: list[Box], asked: list[Box]) -> None:
    mask, coverage = np.zeros(SHAPE, bool), Coverage()
    for box in stored:
        part = tuple(slice(*r) for r in box)
        free = not mask[part].any()
        assert coverage.add(box) == free
        if free:
            mask[part] = True
    assert coverage.elements == mask.sum()
    for box in asked:
        assert coverage.covers(box) == bool(mask[tuple(slice(*r) for r in box)].all())


def test_a_tensor_without_dimensions() -> None:
    coverage = Coverage()
    assert not coverage.covers(())
    assert coverage.add(())
    assert coverage.covers(())
    assert not coverage.add(())


def test_questions_to_a_grid_do_not_cost_the_boxes_that_they_miss() -> None:
    def seconds(side: int) -> float:
        start, coverage = time.process_time(), Coverage()
        for y in range(side):
            for x in range(side):
                assert coverage.add(((y, y + 1), (3 * x, 3 * x + 3)))
        assert all(coverage.covers(((y, y + 1), (3 * x + 1, 3 * x + 2))) for y in range(side) for x in range(side))
        return time.process_time() - start

    seconds(16)
    # Sixteen times the boxes; two questions of all against all would take 256 times as long.
    assert seconds(128) < 64 * max(seconds(32), 1e-3)
