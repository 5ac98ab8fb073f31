"""Which boxes of a tensor have been stored: a search tree of ranges, one level for each axis.

A level keeps the ranges of its axis in order of their starts, and the longest of them, so that those that meet a range are
found by bisection. For tiles on a grid a question costs the boxes that it meets, whatever number there is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from assay.npu_backend.tensor import Box, Range, volume


@dataclass
class _Level:
    ranges: list[Range] = field(default_factory=list)
    longest: int = 0
    below: dict[Range, _Level] = field(default_factory=dict)

    def add(self, box: Box) -> None:
        if not box:
            return
        head = box[0]
        if head not in self.below:
            insort(self.ranges, head)
            self.longest = max(self.longest, head[1] - head[0])
            self.below[head] = _Level()
        self.below[head].add(box[1:])

    def shared(self, box: Box) -> int:
        if not box:
            return 1
        start, stop = box[0]
        total = 0
        for place in range(bisect_left(self.ranges, (start - self.longest + 1, 0)), len(self.ranges)):
            low, high = self.ranges[place]
            if low >= stop:
                break
            both = min(high, stop) - max(low, start)
            if both > 0:
                total += both * self.below[low, high].shared(box[1:])
        return total


class Coverage:
    """Boxes of one tensor that do not overlap."""

    def __init__(self) -> None:
        self._root = _Level()
        self._boxes = 0
        self.elements = 0
        """Elements of all boxes."""

    def add(self, box: Box) -> bool:
        """Adds a box; False, and nothing is added, when it overlaps one that is there."""
        if self._boxes and self._root.shared(box):
            return False
        self._root.add(box)
        self._boxes += 1
        self.elements += volume(box)
        return True

    def covers(self, box: Box) -> bool:
        """Whether every element of a box is in one of the boxes."""
        return bool(self._boxes) and self._root.shared(box) == volume(box)
