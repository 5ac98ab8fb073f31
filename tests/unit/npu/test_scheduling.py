"""What host and NPU take in turn: a weight is turned where it is read, and never later than it is written to."""

from __future__ import annotations

from typing import Any

import torch
from tests.unit.npu.lowered import randn
from torch import fx, nn

from assay.npu_backend.isa import Reshape
from assay.npu_backend.register_backend import Report
from assay.npu_backend.scheduling import over_weights, turns


def simulated(model: nn.Module, *inputs: torch.Tensor) -> tuple[Any, Report]:
    report = Report()
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend="mock_npu", options={"mode": "simulate", "report": report})(*inputs)
    return found, report


def turned(report: Report) -> list[int]:
    """Transposes of each program."""
    return [sum(isinstance(i, Reshape) for i in program.instructions) for program in report.programs]


class Parted(nn.Module):
    """The host sorts between two products."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).sort(dim=-1).values)


def test_weights_are_turned_for_the_program_that_reads_them() -> None:
    model = Parted().eval()
    x = randn(5, 16)
    got, report = simulated(model, x)
    torch.testing.assert_close(got, model(x))
    assert turned(report) == [0, 0]
    assert [len(program.instructions) for program in report.programs] == [
        len(simulated(part.eval(), given)[1].programs[0].instructions)
        for part, given in ((model.first, x), (model.second, randn(5, 32)))
    ]


class Tied(nn.Module):
    """One weight of two products, on both sides of the host, turned once and used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.weight.t()
        return ((x @ turned).sort(dim=-1).values @ turned) @ self.weight


def test_a_turned_weight_that_two_programs_read() -> None:
    model = Tied()
    x = randn(3, 8)
    got, report = simulated(model, x)
    torch.testing.assert_close(got, model(x))
    assert len(report.programs) == 2


class Chain(nn.Module):
    """A weight goes through several nodes before the second program reads it; the host reads one on the way, or not."""

    def __init__(self, seen: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(6, 4))
        self.seen = seen

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = self.weight.t() * 0.5
        other = half.sort(dim=-1).values if self.seen else x
        return x.sort(dim=-1).values @ half.reshape(2, 12).t()[:4], other


def test_what_the_host_reads_is_ready_for_it() -> None:
    for seen in (False, True):
        model, x = Chain(seen), randn(3, 4)
        got, _ = simulated(model, x)
        torch.testing.assert_close(got, model(x))


def graph(written: bool, *, seen: bool = False, returned: bool = False) -> tuple[list[fx.Node], set[fx.Node]]:
    """`sort(x) @ t(w)`, with a write to `w` between the two if asked, and the host's nodes."""
    made = fx.Graph()
    x, w = made.placeholder("x"), made.placeholder("w")
    aten = torch.ops.aten
    turn = made.call_function(aten.t.default, (w,))
    early = made.call_function(aten.relu.default, (x,))
    host = made.call_function(aten.sin.default, (early,))
    hosts = {host}
    if seen:
        hosts.add(made.call_function(aten.sin.default, (turn,)))
    if written:
        hosts.add(made.call_function(aten.copy_.default, (w, w)))
    product = made.call_function(aten.mm.default, (host, turn))
    made.output((product, turn) if returned else product)
    return [node for node in made.nodes if node.op == "call_function"], hosts


def names(nodes: list[fx.Node], host: set[fx.Node]) -> list[list[str]]:
    sources = {node: list(node.all_input_nodes) for node in nodes}
    weights = {source for read in sources.values() for source in read if source.name == "w"}
    return [
        [node.name.replace("_default", "") for node in turn]
        for turn in turns(nodes, host, over_weights(sources, host, weights))
    ]


def test_a_node_over_weights_goes_with_its_first_reader() -> None:
    assert names(*graph(False)) == [["relu"], ["sin"], ["t", "mm"]]


def test_a_weight_that_is_written_to_is_read_before() -> None:
    assert names(*graph(True)) == [["t", "relu"], ["sin"], ["copy_"], ["mm"]]


def test_what_the_host_reads_or_the_graph_returns_does_not_wait() -> None:
    assert names(*graph(False, seen=True)) == [["t", "relu"], ["sin"], ["sin_1"], ["mm"]]
    assert names(*graph(False, returned=True)) == [["t", "relu"], ["sin"], ["mm"]]


def test_a_turned_weight_that_is_returned_is_computed_all_the_same() -> None:
    class Shown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(randn(5, 4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            turned = self.weight.t() * 2
            return x.sort(dim=-1).values @ turned, turned

    model, x = Shown(), randn(3, 4)
    got, _ = simulated(model, x)
    for a, b in zip(got, model(x), strict=True):
        torch.testing.assert_close(a, b)


class Places(nn.Module):
    """A table whose rows are chosen by a buffer, as Swin's position biases are, and by what is given, if asked."""

    def __init__(self, asked: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(randn(10, 4))
        self.register_buffer("places", torch.tensor([[3, 1], [9, 0]]))
        self.asked = asked

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        chosen = (self.table * 2)[self.places.view(-1)].sort(dim=-1).values
        return x @ chosen + (self.table[rows] if self.asked else self.table[:3])


def test_what_no_rule_lowers_is_no_fallback_over_weights_alone() -> None:
    x, rows = randn(3, 4), torch.tensor([5, 5, 2])
    for asked, fallbacks in ((False, []), (True, ["aten.index.Tensor"])):
        model = Places(asked)
        got, report = simulated(model, x, rows)
        torch.testing.assert_close(got, model(x, rows))
        assert [entry.op for entry in report.fallbacks] == fallbacks
        assert len(report.programs) == 1
        with torch.no_grad():  # weights that change are read again
            model.table.mul_(3)
        torch.testing.assert_close(simulated(model, x, rows)[0], model(x, rows))


def test_strict_mode_takes_what_is_computed_as_weights_are_loaded() -> None:
    model, x, rows = Places(False), randn(3, 4), torch.tensor([5, 5, 2])
    torch._dynamo.reset()
    strict = torch.compile(model, backend="mock_npu", options={"mode": "simulate", "strict": True})
    with torch.no_grad():
        torch.testing.assert_close(strict(x, rows), model(x, rows))
        model.table.mul_(3)
        torch.testing.assert_close(strict(x, rows), model(x, rows))
