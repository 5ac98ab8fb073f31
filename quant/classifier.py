"""Any torch classifier as adapter: a function that returns the model, and one that returns labelled examples."""

from __future__ import annotations

import gc
import hashlib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.evaluation import item_key, response_key
from assay.baselines.evidence import Metric, Scalar, Subject
from assay.quant.latency import measure_latency, peak_memory, synchronize
from assay.quant.plan import MetricPlan, Plan, Row, TaskPlan
from assay.quant.sampling import SEED
from assay.quant.usercode import call, describe, load_function

LIBRARIES = ("torch", "torchvision", "numpy")


@dataclass(frozen=True)
class ClassifierOptions:
    """`model` and `dataset` are `module:function`. The rest is protocol, except the device and the format."""

    model: str
    dataset: str
    batch_size: int = 64
    device: str | None = None
    seed: int = SEED
    weight_format: str = ""
    task: str = ""
    """Name of the task; the dataset function's name if empty."""
    latency: bool = False


class Classifier:
    """An `Adapter` over a `torch.nn.Module` (or any callable from a batch of inputs to logits)."""

    def __init__(self, options: ClassifierOptions) -> None:
        if options.batch_size < 1:
            raise InputError(f"--batch-size is {options.batch_size}: give a number of examples, at least 1.")
        self._options = options
        self._task = options.task or options.dataset.rpartition(":")[2]
        self._device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._model: Callable[[Any], Any] | None = None
        self._examples: _Examples | None = None
        self._bytes = 0

    def prepare(self) -> Plan:
        """The plan. The model is built here: its weights are what the subject's digest names."""
        options = self._options
        make_data = load_function(options.dataset, "--dataset")
        make_model = load_function(options.model, "--model")
        torch.manual_seed(options.seed)
        examples = self._examples = _Examples(call(make_data, what=f"--dataset {options.dataset}"), options.dataset)
        model = call(make_model, what=f"--model {options.model}")
        if not callable(model):
            raise InputError(
                f"--model {options.model} returned a {type(model).__name__}: return a torch.nn.Module or a callable."
            )
        if isinstance(model, torch.nn.Module):
            model = call(
                lambda: model.to(self._device).eval(), what=f"--model {options.model}: moving it to {self._device}"
            )
        self._model = model
        tensors = list(_tensors(model))
        self._bytes = _distinct_bytes(tensors)
        subject = Subject(
            name=options.model,
            digest=_digest(model, make_model, tensors),
            format=options.weight_format or _format(tensors),
            backend="torch",
            configuration={"class": type(model).__name__, "weight_bytes": self._bytes},
        )
        first = examples.example(0)[0].unsqueeze(0).to(self._device)
        classes = len(self._logits(self._forward(first), 1)[0])
        protocol: dict[str, Scalar] = {
            "harness": "assay classifier",
            "dtype": str(first.dtype).removeprefix("torch."),
            "batch_size": options.batch_size,
            "seed": options.seed,
            "library.torch": metadata.version("torch"),
            f"task.{self._task}.examples": len(examples),
        }
        accuracy = MetricPlan("acc", scale="binary", chance=1 / classes, primary=True)
        return Plan(subject, protocol, (TaskPlan(self._task, len(examples), (accuracy,)),), LIBRARIES)

    def measure(self, task: str, indices: Sequence[int]) -> list[Row]:
        assert self._examples is not None
        rows: list[Row] = []
        order = sorted(indices)
        for start in range(0, len(order), self._options.batch_size):
            batch = order[start : start + self._options.batch_size]
            rows += self._rows([(index, *self._examples.example(index)) for index in batch])
        return rows

    def measures(self) -> dict[str, Metric]:
        assert self._examples is not None
        found = {"size": Metric(value=float(self._bytes), unit="bytes", direction="lower")} if self._bytes else {}
        if self._options.latency:
            inputs = self._examples.example(0)[0].unsqueeze(0).to(self._device)

            def forward() -> None:
                self._forward(inputs)
                synchronize(self._device)

            found["latency"] = measure_latency(forward)
            found.update(peak_memory(self._device))
        return found

    def facts(self) -> dict[str, Scalar]:
        return {}

    def close(self) -> None:
        self._model = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _rows(self, batch: list[tuple[int, torch.Tensor, int]]) -> list[Row]:
        try:
            inputs = torch.stack([example for _, example, _ in batch]).to(self._device)
        except RuntimeError as error:
            raise InputError(
                f"--dataset {self._options.dataset}: examples {batch[0][0]} to {batch[-1][0]} cannot be stacked"
                f" ({describe(error)})"
            ) from error
        logits = self._logits(self._forward(inputs), len(batch))
        rows = []
        for (index, example, label), values in zip(batch, logits, strict=True):
            if not all(math.isfinite(value) for value in values):
                raise InputError(
                    f"--model {self._options.model}: example {index} got logits that are not finite: the model is"
                    " broken; a failure is not a score."
                )
            if not 0 <= label < len(values):
                raise InputError(
                    f"--dataset {self._options.dataset}: example {index} has label {label}, and the model has"
                    f" {len(values)} classes."
                )
            ranked = sorted(values, reverse=True)
            best = values.index(ranked[0])
            rows.append(
                Row(
                    self._task,
                    "acc",
                    "none",
                    item_key(_content(example), label),
                    index,
                    float(best == label),
                    response=response_key(values),
                    answer=str(best),
                    margin=ranked[0] - ranked[1] if len(ranked) > 1 else None,
                    text=f"example {index}, label {label}",
                )
            )
        return rows

    def _forward(self, inputs: torch.Tensor) -> Any:
        model = self._model
        assert model is not None
        try:
            with torch.inference_mode():
                return model(inputs)
        except Exception as error:
            if "out of memory" in str(error).lower():
                raise ServiceError(
                    f"out of memory at batch size {len(inputs)}: give a smaller --batch-size."
                ) from error
            raise InputError(
                f"--model {self._options.model} raised {describe(error)} on a batch of shape {tuple(inputs.shape)}"
            ) from error

    def _logits(self, output: Any, count: int) -> list[list[float]]:
        found = getattr(output, "logits", output)
        if isinstance(found, tuple | list) and found:
            found = found[0]
        if not isinstance(found, torch.Tensor) or found.ndim != 2 or len(found) != count:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise InputError(
                f"--model {self._options.model} returned {shape} for {count} examples: return logits of shape (batch,"
                " classes)."
            )
        # Double holds every value of the smaller types exactly, so that the digest of a response is that of its bits.
        values: list[list[float]] = found.detach().cpu().double().tolist()
        return values


class _Examples:
    """Examples as (tensor, label), from an indexable data set of pairs or from a pair of arrays."""

    def __init__(self, data: Any, spec: str) -> None:
        self._spec = spec
        pair = isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(part, "shape") for part in data)
        self._arrays: tuple[Any, Any] | None = (data[0], data[1]) if pair else None
        self._data = data
        try:
            self._count = len(data[0]) if pair else len(data)
        except TypeError:
            raise InputError(
                f"--dataset {spec} returned a {type(data).__name__} without length: return an indexable data set, or"
                " (inputs, labels)."
            ) from None
        if pair and len(data[1]) != self._count:
            raise InputError(f"--dataset {spec} returned {self._count:,} inputs and {len(data[1]):,} labels.")
        if not self._count:
            raise InputError(f"--dataset {spec} returned no examples.")

    def __len__(self) -> int:
        return self._count

    def example(self, index: int) -> tuple[torch.Tensor, int]:
        if self._arrays is not None:
            inputs, label = self._arrays[0][index], self._arrays[1][index]
        else:
            pair = call(lambda: self._data[index], what=f"--dataset {self._spec}: example {index}")
            try:
                inputs, label = pair
            except (TypeError, ValueError):
                raise InputError(f"--dataset {self._spec}: example {index} is not a pair (input, label).") from None
        tensor = call(lambda: torch.as_tensor(inputs), what=f"--dataset {self._spec}: input {index} as a tensor")
        return tensor, self._as_label(label, index)

    def _as_label(self, label: Any, index: int) -> int:
        try:
            found = int(label)
        except (TypeError, ValueError):
            raise InputError(
                f"--dataset {self._spec}: example {index} has label {str(label)[:40]!r}, not a whole number."
            ) from None
        return found


def _content(example: torch.Tensor) -> bytes:
    """Digest of an input: type, shape and bytes."""
    array = example.detach().cpu().contiguous()
    raw = array.view(torch.uint8) if array.ndim else array.reshape(1).view(torch.uint8)
    return hashlib.sha256(f"{array.dtype}{tuple(array.shape)}".encode() + raw.numpy().tobytes()).digest()


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model's state by name, also those that quantized modules keep in tuples."""
    if not isinstance(model, torch.nn.Module):
        return

    def walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple | list):
            for number, part in enumerate(value):
                yield from walk(f"{name}.{number}", part)

    for name, value in model.state_dict().items():
        yield from walk(name, value)


def _raw(tensor: torch.Tensor) -> bytes:
    array = (tensor.int_repr() if tensor.is_quantized else tensor).detach().cpu().contiguous()
    return array.reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""


def _digest(model: Any, function: Callable[..., Any], tensors: list[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over the weights (names, types, shapes, contents), the architecture, and the file of the function."""
    hasher = hashlib.sha256()
    for name, tensor in tensors:
        scale = (
            f"{tensor.q_scale()},{tensor.q_zero_point()}"
            if tensor.is_quantized and tensor.qscheme() == torch.per_tensor_affine
            else ""
        )
        hasher.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0{scale}\0".encode())
        hasher.update(_raw(tensor))
    if isinstance(model, torch.nn.Module):
        hasher.update(str(model).encode())
    hasher.update(_source(function).encode())
    return f"sha256:{hasher.hexdigest()}"


def _source(function: Callable[..., Any]) -> str:
    """Source of the module that defines the function, or the function's name where there is none to read."""
    try:
        return inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", ""))


def _distinct_bytes(tensors: list[tuple[str, torch.Tensor]]) -> int:
    """Bytes of the weights; tensors that share their memory count once."""
    seen: dict[int, int] = {}
    for _, tensor in tensors:
        seen[tensor.data_ptr()] = max(seen.get(tensor.data_ptr(), 0), tensor.numel() * tensor.element_size())
    return sum(seen.values())


def _format(tensors: list[tuple[str, torch.Tensor]]) -> str:
    sizes: Counter[str] = Counter()
    for _, tensor in tensors:
        sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel() * tensor.element_size()
    return sizes.most_common(1)[0][0] if sizes else ""
