"""The mapping of rows to threads covers every row, within what a block may have."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.kernels.rowwise.mapping import (
    LIMIT,
    TUNED,
    Mapping,
    candidates,
    choose,
    ranked,
    rule,
    tuned_text,
    vector_width,
)
from assay.kernels.suite.contenders import ablated

OPERATORS = ("softmax", "rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm")


def legal(mapping: Mapping, itemsize: int, inputs: int, parameters: int) -> None:
    assert mapping.threads <= 1024
    assert mapping.threads % 32 == 0
    assert mapping.threads % mapping.threads_per_row == 0
    assert mapping.cluster in (1, 2, 4, 8, 16)
    assert mapping.cluster == 1 or mapping.rows == 1
    assert mapping.threads_per_row % 32 == 0 or 32 % mapping.threads_per_row == 0
    assert not mapping.reread or (mapping.vector * itemsize == 16 and mapping.loads % mapping.reread == 0)
    assert not mapping.reread or not mapping.prefetch
    assert mapping.slots(inputs, parameters) * mapping.vector * itemsize <= 227 * 1024


@given(columns=st.integers(1, LIMIT), itemsize=st.sampled_from([2, 4]), alignment=st.sampled_from([2, 4, 8, 16, 256]))
def test_every_row_is_covered(columns: int, itemsize: int, alignment: int) -> None:
    vector = vector_width(columns, itemsize, max(alignment, itemsize))
    for operator in OPERATORS:
        mapping = choose(operator, columns, itemsize, vector)
        assert vector % mapping.vector == 0  # a load may be narrower than what is aligned, never wider
        assert mapping.columns >= columns
        inputs, parameters = (2 if operator.startswith("add") else 1), {"softmax": 0, "rmsnorm": 1}.get(operator, 2)
        legal(mapping, itemsize, inputs, parameters)


@given(columns=st.integers(1, LIMIT), itemsize=st.sampled_from([2, 4]), alignment=st.integers(1, 64))
def test_a_load_never_crosses_a_row_or_an_alignment(columns: int, itemsize: int, alignment: int) -> None:
    width = vector_width(columns, itemsize, alignment * itemsize)
    assert columns % width == 0
    assert width == 1 or (alignment * itemsize) % (width * itemsize) == 0
    assert width * itemsize <= 16


def test_the_rule_keeps_few_loads_a_thread_until_the_cluster_is_full() -> None:
    assert rule(1024, 8).loads == 4
    assert rule(LIMIT, 1).columns >= LIMIT
    assert rule(16, 8).rows > 1


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_was_tuned_is_among_the_candidates(operator: str) -> None:
    entries = [e for e in json.loads(TUNED.read_text())["mappings"] if e["operator"] == operator]
    assert {(e["itemsize"], e["columns"]) for e in entries} == {(i, 1024 << p) for i in (2, 4) for p in range(8)}
    for entry in entries:
        mapping = Mapping(**entry["mapping"])
        assert mapping.columns == entry["columns"]
        assert replace(mapping, read=0, write=0, pinned=0) in candidates(operator, entry["columns"], entry["itemsize"])
        assert mapping in ranked(operator, mapping)
        assert choose(operator, entry["columns"], entry["itemsize"], 16 // entry["itemsize"]) == mapping


@pytest.mark.parametrize("operator", OPERATORS[:3])
def test_what_is_ablated_is_legal_and_differs(operator: str) -> None:
    """The variants cover the row like the chosen mapping, each with something else than it."""
    for itemsize in (2, 4):
        for columns in (1024 << power for power in range(8)):
            variants = ablated(operator, columns, itemsize)
            chosen = variants.pop("all on")
            assert chosen == choose(operator, columns, itemsize, 16 // itemsize)
            for label, mapping in variants.items():
                assert mapping.columns >= columns, label
                assert mapping != chosen or label == "untuned mapping"
                legal(mapping, itemsize, 1, {"softmax": 0, "rmsnorm": 1, "layernorm": 2}[operator])


def test_every_rank_is_tried_and_only_norms_have_parameters_to_pin() -> None:
    mapping = Mapping(8, 4, 128, 32)
    assert {(m.read, m.write, m.pinned) for m in ranked("softmax", mapping)} == {
        (read, write, 0) for read, write in ((0, 0), (1, 0), (1, 1), (1, 2), (0, 1), (0, 2))
    }
    assert len(ranked("layernorm", mapping)) == 2 * len(ranked("softmax", mapping))
    assert all(replace(m, read=0, write=0, pinned=0) == mapping for m in ranked("layernorm", mapping))


def test_the_tuned_file_reads_back_what_was_written() -> None:
    mapping = Mapping(8, 4, 128, 32)
    text = tuned_text("a GPU", [("softmax", 2, 1024, mapping, 0.94321)])
    document = json.loads(text)
    assert document["device"] == "a GPU"
    assert Mapping(**document["mappings"][0]["mapping"]) == mapping
    assert document["mappings"][0]["copy"] == 0.943
