"""The order in which host and NPU take the nodes of a graph, so that few programs come of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx


def turns(nodes: Sequence[fx.Node], host: Collection[fx.Node], folded: Collection[fx.Node]) -> list[list[fx.Node]]:
    """Nodes in turns: all that are ready for the host, one each; all that are ready for the NPU, together.

    `nodes` are in the order of the graph, and `host` those that PyTorch runs. `folded` (`over_weights`) wait for their first
    reader, so that the program that reads them folds them into the weight.
    """
    waiting = list(nodes)
    needs = _needs(waiting)
    done: set[fx.Node] = set()
    found: list[list[fx.Node]] = []
    while waiting:
        before = len(waiting)
        for on_host in (True, False):
            turn: set[fx.Node] = set()
            for node in waiting:
                if node in folded or (node in host) != on_host:
                    continue
                along = _with_sources(node, needs, folded, done)
                if all(needs[n] <= done | along for n in along):
                    turn |= along
                    done |= along
            ready = [node for node in waiting if node in turn]
            waiting = [node for node in waiting if node not in turn]
            found += [[node] for node in ready] if on_host else [ready] if ready else []
        assert len(waiting) < before
    return found


def over_weights(
    sources: Mapping[fx.Node, Sequence[fx.Node]],
    host: Collection[fx.Node],
    weights: Collection[fx.Node],
) -> set[fx.Node]:
    """Nodes for the NPU that read nothing but `weights` or each other, and that programs alone read.

    `sources`: every node in the order of the graph, and the tensors that it reads.
    """
    found: set[fx.Node] = set()
    for node, read in sources.items():
        kept = all(source in found or source in weights for source in read)
        if kept and node not in host and not ordered(node):
            found.add(node)
    places = {node: place for place, node in enumerate(sources)}
    writes = [place for node, place in places.items() if mutates(node)]
    for node in reversed(list(sources)):
        users: list[fx.Node] = list(node.users)  # the graph's output, which returns it, is one of them and has no place
        first = min((places.get(user, -1) for user in users), default=-1)
        written = any(places[node] < place <= first for place in writes)  # what it reads may be another by then
        if first < 0 or written or any(user in host for user in users):
            found.discard(node)
    return found


def _needs(nodes: Sequence[fx.Node]) -> dict[fx.Node, set[fx.Node]]:
    """What must be done before each node."""
    known = set(nodes)
    needs = {node: {source for source in node.all_input_nodes if source in known} for node in nodes}
    last = None
    for place, node in enumerate(nodes):
        if ordered(node):
            needs[node] |= {last} if last is not None else set()
            last = node
        if mutates(node):
            needs[node] |= set(nodes[:place])
    return needs


def _with_sources(
    node: fx.Node, needs: Mapping[fx.Node, set[fx.Node]], folded: Collection[fx.Node], done: Collection[fx.Node]
) -> set[fx.Node]:
    """A node, and the `folded` ones that it waits for, directly or through others of them."""
    found = {node}
    waiting = [node]
    while waiting:
        more = {n for n in needs[waiting.pop()] if n in folded and n not in done and n not in found}
        found |= more
        waiting += more
    return found


def mutates(node: fx.Node) -> bool:
    """Whether a node writes to what it reads."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def ordered(node: fx.Node) -> bool:
    """Whether a node must keep its place among those like it: it draws random numbers, writes or checks."""
    target = node.target
    random = isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
    return random or mutates(node) or node.is_impure()
