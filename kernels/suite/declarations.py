"""The kernels of this laboratory as declarations, for `assay bench kernels/suite/declarations.py` and for the suite.

Cases and tolerances are read from `contract.yml`, which is fixed before anything is timed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from assay.kernels import model
from assay.kernels.declaration import Declaration, Parameters, Tolerance

CONTRACT = Path(__file__).parent / "contract.yml"
EPSILON = 1e-6
HEAD = 128
DTYPES = ("bfloat16", "float32")


@functools.cache
def contract() -> dict[str, Any]:
    """The contract file."""
    found: dict[str, Any] = yaml.safe_load(CONTRACT.read_text(encoding="utf-8"))
    return found


def tolerances(family: str) -> dict[str, Tolerance]:
    """By dtype."""
    return {dtype: Tolerance(**limits) for dtype, limits in contract()["tolerances"][family].items()}


def rowwise(operator: str, kernel: Callable[..., Any], *, name: str = "", residual: bool = False) -> Declaration:
    """softmax, rmsnorm or layernorm, the norms with weight (and bias), on the declared widths and dtypes."""
    norm = operator != "softmax"
    sizes = contract()["timed"]["residual" if residual else "rowwise"]
    cases = {
        f"{dtype}-c{width}": {
            "rows": sizes["bytes"] // (width * model.ITEMSIZE[dtype]),
            "columns": width,
            "dtype": dtype,
        }
        for dtype in DTYPES
        for width in sizes["widths"]
    }
    extra = contract()["norm-cases" if norm else "softmax-cases"]
    if residual:
        # The kernel rounds the sum, as two separate operators would, and normalises what it rounded. Around an offset of
        # 16 that rounding alone exceeds the tolerance, so that the float64 reference says nothing about the kernel.
        extra = {case: parameters for case, parameters in extra.items() if case != "offset"}
    checked = {
        f"{dtype}-{case}": {**parameters, "dtype": dtype}
        for dtype in DTYPES
        for case, parameters in {**contract()["rowwise-cases"], **extra}.items()
    }

    def cost(case: Parameters) -> model.Cost:
        size = (int(case["rows"]), int(case["columns"]), str(case["dtype"]))
        return model.norm(operator, *size, residual=residual) if norm else model.softmax(*size)

    return Declaration(
        name=name or ("add-" if residual else "") + operator,
        kernel=kernel,
        inputs=functools.partial(row_inputs, operator, residual),
        reference=functools.partial(_reference, operator),
        tolerances=tolerances("norm" if norm else "softmax"),
        cases=cases,
        contract_cases=checked,
        bytes=lambda case: cost(case).bytes,
        flops=lambda case: cost(case).flops,
    )


def row_inputs(
    operator: str, residual: bool, case: Parameters, generator: torch.Generator, device: torch.device
) -> dict[str, Any]:
    """x, and for the norms weight, bias and residual; values and layout as the case says."""
    dtype: torch.dtype = getattr(torch, str(case["dtype"]))
    shape = (int(case["rows"]), int(case["columns"]))
    values, layout = str(case.get("values", "random")), str(case.get("layout", "contiguous"))
    found: dict[str, Any] = {"x": laid_out(layout, shape, lambda size: draw(values, size, generator, device).to(dtype))}
    if residual:
        found["residual"] = laid_out(layout, shape, lambda size: draw("random", size, generator, device).to(dtype))
    if operator != "softmax":
        found["weight"] = (1 + draw("random", (shape[1],), generator, device) / 4).to(dtype)
    if operator == "layernorm":
        found["bias"] = draw("random", (shape[1],), generator, device).to(dtype)
    return found


def draw(values: str, shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """float32 values of a kind that the contract names."""
    base = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    if values == "large":
        return base * 1e4
    if values == "tiny":
        return base * 1e-20
    if values == "offset":
        return base + 16
    if values == "zero":
        return base * 0
    if values == "masked":
        hidden = torch.rand(shape, generator=generator, device=device) < 0.7
        hidden[:, 0] = False
        return base.masked_fill(hidden, -torch.inf)
    if values in ("all-masked", "infinite", "nan"):
        # Every other row is ordinary: a special row must not spill into its neighbours.
        special = {"all-masked": -torch.inf, "infinite": torch.inf, "nan": torch.nan}[values]
        base[::2, slice(None) if values == "all-masked" else slice(3, 4)] = special
    return base


def laid_out(layout: str, shape: tuple[int, int], make: Callable[[tuple[int, ...]], torch.Tensor]) -> torch.Tensor:
    """A matrix of `shape` with the strides that the layout names."""
    rows, columns = shape
    if layout == "sliced":
        return make((rows, columns + 64))[:, :columns]
    if layout == "misaligned":
        return make((rows, columns + 3))[:, 3:]
    if layout == "transposed":
        return make((columns, rows)).t()
    return make(shape)


def _reference(operator: str, x: torch.Tensor, **others: torch.Tensor) -> Any:
    if operator == "softmax":
        return torch.softmax(x, -1)
    residual = others.get("residual")
    h = x if residual is None else x + residual
    if operator == "layernorm":
        y = torch.nn.functional.layer_norm(h, (h.shape[-1],), others["weight"], others["bias"], EPSILON)
    else:
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPSILON) * others["weight"]
    return y if residual is None else (y, h)


def norm_backward(operator: str, kernel: Callable[..., Any]) -> Declaration:
    """Gradients of a norm from what its forward saved: of x, of the weight and of the bias."""
    sizes = contract()["timed"]["backward"]
    cases = {
        f"{dtype}-c{width}": {
            "rows": sizes["bytes"] // (width * model.ITEMSIZE[dtype]),
            "columns": width,
            "dtype": dtype,
        }
        for dtype in DTYPES
        for width in sizes["widths"]
    }

    def cost(case: Parameters) -> model.Cost:
        return model.norm_backward(operator, int(case["rows"]), int(case["columns"]), str(case["dtype"]))

    return Declaration(
        name=f"{operator}-backward",
        kernel=kernel,
        inputs=functools.partial(_backward_inputs, operator),
        reference=functools.partial(_backward_reference, operator),
        tolerances=tolerances("norm-backward"),
        cases=cases,
        contract_cases={
            f"{dtype}-{case}": {**parameters, "dtype": dtype}
            for dtype in DTYPES
            for case, parameters in contract()["backward-cases"].items()
        },
        bytes=lambda case: cost(case).bytes,
        flops=lambda case: cost(case).flops,
    )


def _backward_inputs(
    operator: str, case: Parameters, generator: torch.Generator, device: torch.device
) -> dict[str, Any]:
    """What the forward reads, the gradient of its result, and float32 (rows, 2): mean and 1/deviation, from float64."""
    found = row_inputs(operator, False, case, generator, device)
    x = found["x"]
    found["slope"] = laid_out(
        str(case.get("layout", "contiguous")),
        (int(case["rows"]), int(case["columns"])),
        lambda size: draw("random", size, generator, device).to(x.dtype),
    )
    wide = x.double()
    mean = wide.mean(-1) if operator == "layernorm" else wide.new_zeros(len(wide))
    square = (wide - mean[:, None]).pow(2).mean(-1)
    found["statistics"] = torch.stack([mean, torch.rsqrt(square + EPSILON)], -1).float()
    return found


def _backward_reference(operator: str, x: torch.Tensor, slope: torch.Tensor, **others: torch.Tensor) -> Any:
    parameters = {name: value.requires_grad_() for name, value in others.items() if name != "statistics"}
    with torch.enable_grad():
        y = _reference(operator, x.requires_grad_(), **parameters)
        return torch.autograd.grad(y, [x, *parameters.values()], slope)


def attention(kernel: Callable[..., Any], *, name: str = "attention") -> Declaration:
    """Causal attention on the declared lengths, with as many and with fewer key heads."""
    sizes = contract()["timed"]["attention"]
    cases = {
        f"{label}s{length}": {
            "batch": sizes["tokens"] // length, "heads": sizes["heads"], "kv-heads": kv_heads, "length": length,
            "dtype": "bfloat16",
        }
        for label, kv_heads in (("", sizes["heads"]), ("gqa-", sizes["grouped-kv-heads"]))
        for length in sizes["lengths"]
    }  # fmt: skip
    checked = {case: {**size, "dtype": "bfloat16"} for case, size in contract()["attention-cases"].items()}

    def cost(case: Parameters) -> model.Cost:
        return model.causal_attention(
            int(case["batch"]), int(case["heads"]), int(case["kv-heads"]), int(case["length"]), HEAD
        )

    return Declaration(
        name=name,
        kernel=kernel,
        inputs=attention_inputs,
        reference=_attention_reference,
        tolerances=tolerances("attention"),
        cases=cases,
        contract_cases=checked,
        bytes=lambda case: cost(case).bytes,
        flops=lambda case: cost(case).flops,
    )


def attention_inputs(case: Parameters, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
    """q, k, v: (batch, heads, length, 128), bfloat16."""
    batch, heads, kv_heads, length = (int(case[key]) for key in ("batch", "heads", "kv-heads", "length"))
    scale = {"tiny": 1e-20}.get(str(case.get("values", "random")), 1.0)

    def make(count: int) -> torch.Tensor:
        if case.get("layout") == "heads-last":
            base = torch.randn(batch, length, count, HEAD, generator=generator, device=device)
            return (base * scale).to(torch.bfloat16).transpose(1, 2)
        base = torch.randn(batch, count, length, HEAD, generator=generator, device=device)
        return (base * scale).to(torch.bfloat16)

    found = {"q": make(heads), "k": make(kv_heads), "v": make(kv_heads)}
    if case.get("values") == "large":
        found |= {"q": found["q"] * 30, "k": found["k"] * 30}
    return found


def _attention_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    group = q.shape[1] // k.shape[1]
    length = q.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    out = torch.empty_like(q)
    # One head at a time: the scores of all would be gigabytes.
    for batch in range(q.shape[0]):
        for head in range(q.shape[1]):
            scores = q[batch, head] @ k[batch, head // group].T * HEAD**-0.5
            out[batch, head] = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v[batch, head // group]
    return out


def _module(family: str, language: str) -> Any:
    """`assay.kernels.<family>.<language>`, imported at its first call: a declaration can be read without it."""
    return importlib.import_module(f"assay.kernels.{family}.{language}")


def _softmax(language: str, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = _module("rowwise", language).softmax(x)
    return y


def _norm(language: str, operator: str, x: torch.Tensor, **others: torch.Tensor) -> Any:
    y, total, _ = _module("rowwise", language).norm(
        operator, x, others["weight"], others.get("bias"), residual=others.get("residual"), epsilon=EPSILON
    )
    return y if total is None else (y, total)


def _norm_backward(operator: str, x: torch.Tensor, slope: torch.Tensor, **others: torch.Tensor) -> Any:
    found = _module("rowwise", "gradient").norm_backward(
        operator, x, slope, others["weight"], others["statistics"], bias="bias" in others
    )
    return tuple(gradient for gradient in found if gradient is not None)


def _attention(language: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = _module("attention", language).attention(q, k, v)
    return y


def _all(language: str, suffix: str) -> list[Declaration]:
    found = [rowwise("softmax", functools.partial(_softmax, language), name=f"softmax{suffix}")]
    for operator in ("rmsnorm", "layernorm"):
        kernel = functools.partial(_norm, language, operator)
        found.append(rowwise(operator, kernel, name=f"{operator}{suffix}"))
        found.append(rowwise(operator, kernel, name=f"add-{operator}{suffix}", residual=True))
    return [*found, attention(functools.partial(_attention, language), name=f"attention{suffix}")]


HOPPER: list[Declaration] = _all("hopper", "")
PORTABLE: list[Declaration] = _all("portable", "-triton")

BACKWARD: list[Declaration] = [
    norm_backward(operator, functools.partial(_norm_backward, operator)) for operator in ("rmsnorm", "layernorm")
]


def declared() -> Mapping[str, Declaration]:
    """All declarations by name."""
    return {declaration.name: declaration for declaration in (*HOPPER, *PORTABLE, *BACKWARD)}
