"""Who is measured against whom: our kernels, the framework eager and compiled, and the attention libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from assay.kernels.attention import hopper as attention_hopper
from assay.kernels.attention import portable as attention_portable
from assay.kernels.rowwise import gradient, hopper, portable
from assay.kernels.rowwise.mapping import Mapping as RowMapping
from assay.kernels.rowwise.mapping import choose, rule
from assay.kernels.suite.declarations import EPSILON

Inputs = Mapping[str, Any]
Contender = Callable[[Inputs], Any]

OURS, PORTABLE, EAGER, COMPILED, COPY = "assay", "assay-triton", "eager", "compile", "copy"
CUDNN, FLASH, FLEX = "cudnn", "flash-attention-2", "flex-attention"


def eager(operator: str, x: torch.Tensor, **others: torch.Tensor) -> Any:
    """The framework's operator, as users write it."""
    if operator == "softmax":
        return torch.softmax(x, -1)
    residual = others.get("residual")
    h = x if residual is None else x + residual
    shape = (h.shape[-1],)
    if operator == "layernorm":
        y = functional.layer_norm(h, shape, others["weight"], others["bias"], EPSILON)
    else:
        y = functional.rms_norm(h, shape, others["weight"], EPSILON)
    return y if residual is None else (y, h)


def compiled(operator: str) -> Callable[..., Any]:
    """`torch.compile` of the same, for one shape (`dynamic=False`), in a cache of its own."""
    torch._dynamo.reset()
    return torch.compile(functools.partial(eager, operator), dynamic=False)


def rowwise(operator: str) -> dict[str, Contender]:
    """Contenders of a row-wise operator; `compile` is for one shape, so they are made anew for each."""
    built = compiled(operator)
    if operator == "softmax":
        ours: Contender = lambda i: hopper.softmax(i["x"])  # noqa: E731
        triton: Contender = lambda i: portable.softmax(i["x"])  # noqa: E731
    else:
        ours = lambda i: hopper.norm(  # noqa: E731
            operator, i["x"], i["weight"], i.get("bias"), residual=i.get("residual"), epsilon=EPSILON
        )
        triton = lambda i: portable.norm(  # noqa: E731
            operator, i["x"], i["weight"], i.get("bias"), residual=i.get("residual"), epsilon=EPSILON
        )
    return {
        OURS: ours,
        PORTABLE: triton,
        EAGER: lambda i: eager(operator, **i),
        COMPILED: lambda i: built(**i),
    }


def ablated(operator: str, columns: int, itemsize: int) -> dict[str, RowMapping]:
    """Mappings of the CUDA C++ kernel with one transformation taken away, where the chosen one (`all on`) has it."""
    vector = 16 // itemsize
    chosen = choose(operator, columns, itemsize, vector)
    variants: dict[str, RowMapping] = {"all on": chosen, "untuned mapping": rule(columns, vector)}
    if chosen.prefetch:
        variants["no prefetch"] = replace(chosen, prefetch=0, resident=0)
    if chosen.reread:
        variants["kept in registers"] = replace(chosen, reread=0, min_blocks=1)
    if chosen.read or chosen.write or chosen.pinned:
        variants["no ranks in the second-level cache"] = replace(chosen, read=0, write=0, pinned=0)
    if chosen.resident:
        variants["parameters not resident"] = replace(chosen, resident=0)
    halved = chosen.loads // 2
    if halved:
        wider = replace(chosen, cluster=chosen.cluster * 2, loads=halved, reread=min(chosen.reread, halved))
        if chosen.cluster == 1 and chosen.threads_per_row >= 256:
            variants["cluster of 2"] = wider
        if 1 < chosen.cluster < 16:
            variants["twice the cluster"] = wider
    if chosen.loads * chosen.vector <= 32 and chosen.vector * itemsize > 4:
        variants["4-byte loads"] = replace(
            chosen,
            vector=4 // itemsize,
            loads=chosen.loads * chosen.vector * itemsize // 4,
            prefetch=0,
            resident=0,
            reread=0,
        )
    return variants


def rowwise_ablations(operator: str, columns: int, itemsize: int) -> dict[str, Contender]:
    """The ablated mappings to be called, and what softmax can do without besides."""
    variants = ablated(operator, columns, itemsize)
    found = {label: _with_mapping(operator, mapping) for label, mapping in variants.items()}
    if operator == "softmax":
        chosen = variants["all on"]
        apart = variants.get("kept in registers", chosen)
        found["loads past the first-level cache"] = lambda i: hopper.softmax(i["x"], no_allocate=True, mapping=chosen)
        found["two reductions"] = lambda i: hopper.softmax(i["x"], online=False, mapping=apart)
    return found


def _with_mapping(operator: str, mapping: RowMapping) -> Contender:
    if operator == "softmax":
        return lambda i: hopper.softmax(i["x"], mapping=mapping)
    return lambda i: hopper.norm(operator, i["x"], i["weight"], i.get("bias"), epsilon=EPSILON, mapping=mapping)


def portable_ablations() -> dict[str, Contender]:
    """Variants of the Triton softmax."""
    flags = {
        "whole row": portable.Flags(whole_row=131_072),
        "block by block": portable.Flags(whole_row=0),
        "two statistics passes": portable.Flags(whole_row=0, online=False),
        "one row a program": portable.Flags(rows_per_program=1),
    }
    return {label: _portable_softmax(variant) for label, variant in flags.items()}


def _portable_softmax(flags: portable.Flags) -> Contender:
    return lambda i: portable.softmax(i["x"], flags=flags)


def attention(length: int, grouped: bool) -> dict[str, Contender]:
    """Contenders of causal attention."""
    found: dict[str, Contender] = {
        OURS: lambda i: attention_hopper.attention(**i),
        PORTABLE: lambda i: attention_portable.attention(**i),
        CUDNN: lambda i: library(torch.nn.attention.SDPBackend.CUDNN_ATTENTION, i),
        FLASH: lambda i: library(torch.nn.attention.SDPBackend.FLASH_ATTENTION, i),
        FLEX: flex(length, grouped),
    }
    return found


def library(backend: Any, inputs: Inputs) -> torch.Tensor:
    """scaled_dot_product_attention with its backend forced."""
    with torch.nn.attention.sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(
            inputs["q"],
            inputs["k"],
            inputs["v"],
            is_causal=True,
            enable_gqa=inputs["k"].shape[1] != inputs["q"].shape[1],
        )


def flex(length: int, grouped: bool) -> Contender:
    """FlexAttention, compiled for one length, with a causal block mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cuda")
    built = torch.compile(flex_attention, dynamic=False)
    return lambda i: built(i["q"], i["k"], i["v"], block_mask=mask, enable_gqa=grouped)


def attention_ablations() -> dict[str, Contender]:
    """The CUDA C++ kernel with one transformation off at a time, and the variants of the Triton kernel."""
    base = attention_hopper.Flags()
    off = {
        "all on": base,
        "no persistence": replace(base, persistent=False),
        "no ping-pong": replace(base, pingpong=False),
        "no overlap": replace(base, overlap=False),
        "always rescaled": replace(base, lazy_rescale=False),
        "none of the four": attention_hopper.Flags(False, False, False, False),
        "sections of 60% of L2": replace(base, l2_percent=60),
    }
    found = {label: _hopper_attention(flags) for label, flags in off.items()}
    triton = {
        "Triton": attention_portable.Flags(),
        "Triton, TMA": attention_portable.Flags(tma=True),
        "Triton, mask everywhere": attention_portable.Flags(split_diagonal=False),
        "Triton, 64 keys": attention_portable.Flags(keys=64),
        "Triton, 4 warps": attention_portable.Flags(warps=4),
        "Triton, no pipeline": attention_portable.Flags(stages=1),
    }
    return found | {label: _triton_attention(flags) for label, flags in triton.items()}


def _hopper_attention(flags: attention_hopper.Flags) -> Contender:
    return lambda i: attention_hopper.attention(**i, flags=flags)


def _triton_attention(flags: attention_portable.Flags) -> Contender:
    return lambda i: attention_portable.attention(**i, flags=flags)


def backward(operator: str, inputs: Inputs) -> dict[str, Callable[[], Any]]:
    """Gradients of a norm from saved tensors: ours, and the framework's eager and compiled graphs, already run forward."""
    names = [name for name in ("x", "weight", "bias") if name in inputs]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    slope = inputs["slope"]
    built = compiled(operator)
    eager_y, compiled_y = eager(operator, **leaves), built(**leaves)
    kept = hopper.norm(operator, inputs["x"], inputs["weight"], inputs.get("bias"), epsilon=EPSILON, statistics=True)[2]
    assert kept is not None
    wanted = [leaves[name] for name in names]
    return {
        OURS: lambda: gradient.norm_backward(
            operator, inputs["x"], slope, inputs["weight"], kept, bias="bias" in inputs
        ),
        EAGER: lambda: torch.autograd.grad(eager_y, wanted, slope, retain_graph=True),
        COMPILED: lambda: torch.autograd.grad(compiled_y, wanted, slope, retain_graph=True),
    }
