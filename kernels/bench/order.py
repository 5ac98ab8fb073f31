"""In which order the arms take their turns: drawn from a seed, recorded, and balanced."""

from __future__ import annotations

import random
from collections.abc import Sequence

BASE, CONTROL, HEAD = "base", "control", "head"


def turns(arms: Sequence[str], blocks: int, seed: int) -> list[tuple[str, ...]]:
    """For each block the order of the arms.

    Every order is followed by its mirror image, in random sequence (AB BA, or BA AB), so that a drift that is straight
    over two blocks cancels, and which comes first cannot be foreseen.
    """
    chance = random.Random(seed)
    found: list[tuple[str, ...]] = []
    while len(found) < blocks:
        order = list(arms)
        chance.shuffle(order)
        pair = [tuple(order), tuple(reversed(order))]
        chance.shuffle(pair)
        found += pair
    return found[:blocks]
