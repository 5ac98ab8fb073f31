"""The Triton path of the operators, interpreted on the CPU in a process of its own: Triton reads its switch when imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

SCRIPT = """
import json, torch
from torch.nn import functional as f
from assay.kernels import operators
from assay.kernels.operators import dispatch, proof
from assay.kernels.operators.eligibility import Path

ops, found = torch.ops.assay, {}

def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()

def norm(center, h, w, b, eps):
    return f.layer_norm(h, h.shape[-1:], w, b, eps) if center else f.rms_norm(h, h.shape[-1:], w, eps)

def compare(name, run, reference, leaves, layouts):
    wide = [t.detach().double().requires_grad_() for t in leaves]
    y, z = run(*leaves), reference(*wide)
    ys, zs = (y if isinstance(y, tuple) else (y,)), (z if isinstance(z, tuple) else (z,))
    slopes = [torch.randn(t.shape, generator=torch.Generator().manual_seed(3)) for t in ys]
    mine = torch.autograd.grad(ys, leaves, slopes)
    theirs = torch.autograd.grad(zs, wide, [s.double() for s in slopes])
    pairs = [*zip(ys, zs), *zip(mine, theirs)]
    found[name] = max(float((a.double() - b).abs().max()) for a, b in pairs)

x, r, w, b = leaf(5, 37), leaf(5, 37, seed=1), leaf(37, seed=2), leaf(37, seed=3)
compare("softmax", operators.softmax, lambda x: torch.softmax(x, -1), [x], 1)
compare("rms_norm", operators.rms_norm, lambda x, w: norm(False, x, w, None, 1e-6), [x, w], 1)
compare("layer_norm", operators.layer_norm, lambda x, w, b: norm(True, x, w, b, 1e-5), [x, w, b], 1)
compare("add_rms_norm", lambda x, r, w: operators.rms_norm(x, w, residual=r),
        lambda x, r, w: (norm(False, x + r, w, None, 1e-6), x + r), [x, r, w], 2)
compare("add_layer_norm", lambda x, r, w, b: operators.layer_norm(x, w, b, residual=r),
        lambda x, r, w, b: (norm(True, x + r, w, b, 1e-5), x + r), [x, r, w, b], 2)
q, k = (leaf(1, n, 20, 16, seed=n).detach() for n in (4, 2))
with torch.no_grad():
    y = operators.causal_attention(q, k, k)
    z = f.scaled_dot_product_attention(q.double(), k.double(), k.double(), is_causal=True, enable_gqa=True)
found["causal_attention"] = float((y.double() - z).abs().max())

strides = []
with torch.no_grad():
    wide = torch.randn(4, 64)
    for t in (wide, wide[:, :37], wide[0].expand(3, 64), torch.randn(1, 5).t(), torch.randn(2, 3, 8), torch.randn(7)):
        for real, meta in ((ops.softmax(t), ops.softmax(t.to("meta"))), *zip(ops.layer_norm(t), ops.layer_norm(t.to("meta")))):
            strides.append(real.stride() == meta.stride() and real.shape == meta.shape)
    q = torch.randn(1, 20, 4, 16).transpose(1, 2)
    strides.append(ops.causal_attention(q, q, q).stride() == ops.causal_attention(*[q.to("meta")] * 3).stride())
counts = dispatch.counts()
opcheck = proof.checked(ops.add_rms_norm.default, (x, r, w))
dispatch.clear()
with torch.no_grad():
    operators.softmax(torch.randn(8, 5).t()), operators.softmax(x.bfloat16()), operators.softmax(x)
    with dispatch.without(Path.TRITON):
        operators.softmax(x)
edge = [[t.path, t.reason, n] for t, n in dispatch.counts().items()]
print(json.dumps({"errors": found, "strides": strides, "opcheck": opcheck, "edge": edge,
                  "paths": sorted({(t.operator, str(t.path)) for t in counts})}))
"""


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_values_and_gradients_of_the_kernels_are_right(interpreted: dict[str, Any]) -> None:
    assert len(interpreted["errors"]) == 6
    assert max(interpreted["errors"].values()) < 2e-5


def test_it_was_the_kernels_that_ran(interpreted: dict[str, Any]) -> None:
    names = ("add_layer_norm", "add_rms_norm", "causal_attention", "layer_norm", "norm_backward", "rms_norm", "softmax")
    assert [p for p in interpreted["paths"] if p[0] in ("norm_backward", "softmax")] == [
        ["norm_backward", "Triton"],
        ["softmax", "Triton"],
    ]
    assert [p[0] for p in interpreted["paths"] if p[1] == "Triton"] == list(names)


def test_strides_are_those_of_the_fake(interpreted: dict[str, Any]) -> None:
    assert len(interpreted["strides"]) == 19
    assert all(interpreted["strides"])
    assert not any(interpreted["opcheck"].values())


def test_just_outside_the_framework_takes_over(interpreted: dict[str, Any]) -> None:
    assert sorted(interpreted["edge"]) == [
        ["Triton", "on cpu, not on a GPU", 1],
        ["framework", "dtype bfloat16", 1],
        ["framework", "on cpu, not on a GPU; Triton is switched off", 1],
        ["framework", "the last dimension is not of unit stride", 1],
    ]
