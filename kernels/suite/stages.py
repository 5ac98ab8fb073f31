"""The stages of the suite. Each returns plain data for `results.json`; the driver writes after every one."""

from __future__ import annotations

import csv
import functools
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.kernels import contract as contracts
from assay.kernels import sass
from assay.kernels.attention import hopper as attention_hopper
from assay.kernels.attention import portable as attention_portable
from assay.kernels.cuda.program import Build, cubin
from assay.kernels.declaration import Declaration
from assay.kernels.rowwise import gradient as rows_gradient
from assay.kernels.rowwise import hopper as rows_hopper
from assay.kernels.rowwise import portable as rows_portable
from assay.kernels.rowwise.mapping import choose
from assay.kernels.suite import contenders as who
from assay.kernels.suite import timing
from assay.kernels.suite.declarations import BACKWARD, HEAD, HOPPER, contract, declared

Say = Callable[[str], None]
Result = dict[str, Any]

ROUNDS = {"rowwise": 60, "attention": 150, "backward": 40, "ablations": 40}
_SETS = 2
_L2_SETS_BYTES = 200 << 20


def ceilings(say: Say) -> Result:
    """Copy bandwidth (bytes read and written) and the bf16 matrix rate on random data, each the median of 30."""
    source = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = timing.interleaved({"copy": [lambda: target.copy_(source)], "matmul": [lambda: torch.mm(a, b)]}, 30, 1)
    found = {
        "copy": 2 * source.numel() / timing.median(times["copy"]),
        "matmul": 2 * 8192.0**3 / timing.median(times["matmul"]),
    }
    say(f"copy {found['copy'] / 1e12:.2f} TB/s, bf16 matmul {found['matmul'] / 1e12:.0f} TFLOP/s")
    return {**found, "unit": {"copy": "B/s", "matmul": "FLOP/s"}}


def machine_code(say: Say) -> list[Result]:
    """Registers, spills and instructions of every build that the declared shapes use. Needs no GPU."""
    codes = [(name, "CUDA C++", cubin(build)) for name, build in builds().items()]
    codes += [(name, "Triton", code()) for name, code in triton_builds().items()]
    found = [
        {"kernel": name, "language": language, **sass.disassemble(code).attributes()} for name, language, code in codes
    ]
    say(f"{len(found)} kernels disassembled")
    return found


def builds() -> dict[str, Build]:
    """The CUDA C++ builds of the declared shapes, by a name that says which."""
    found = {
        "attention": attention_hopper.Flags().build(),
        "attention, no overlap": attention_hopper.Flags(overlap=False).build(),
    }
    for operator in ("softmax", "rmsnorm", "layernorm"):
        for dtype, itemsize in (("bfloat16", 2), ("float32", 4)):
            for columns in contract()["timed"]["rowwise"]["widths"]:
                mapping = choose(operator, columns, itemsize, 16 // itemsize)
                switches = rows_hopper.switches(
                    columns, mapping, weight=operator != "softmax", bias=operator == "layernorm"
                )
                found[f"{operator}, {dtype}, {columns}"] = rows_hopper.build(operator, itemsize == 2, mapping, switches)
    return found


def triton_builds() -> dict[str, Callable[[], bytes]]:
    """Triton kernels compiled for Hopper, where the same code runs interpreted in the tests."""
    strides = [f"{tensor}_{axis}" for tensor in "qkvo" for axis in ("batch", "head", "row")]
    pointers = dict.fromkeys(("q", "k", "v", "out", "k_map", "v_map"), "*bf16")
    signature = {**pointers, **dict.fromkeys(("heads", "group", "length", *strides), "i32"), "scale": "fp32"}

    def attend(warps: int) -> Callable[[], bytes]:
        constants = {
            "ROWS": 128, "KEYS": 128, "HEAD": HEAD, "TMA": False, "SPLIT": True, "SPECIALIZE": False, "WIDEN": False,
        }  # fmt: skip
        kernel = attention_portable._attention
        return lambda: sass.triton_cubin(kernel, signature, constants, warps=warps, stages=2)

    def soft(columns: int) -> Callable[[], bytes]:
        types = {"x": "*bf16", "y": "*bf16", **dict.fromkeys(("rows", "columns", "x_stride", "y_stride"), "i32")}
        warps = rows_portable._warps(columns)
        return lambda: sass.triton_cubin(
            rows_portable._softmax_whole, types, {"ROWS": 1, "BLOCK": columns}, warps=warps
        )

    def backward(dtype: str) -> Callable[[], bytes]:
        tensors = dict.fromkeys(("h", "dy", "dtotal", "weight"), f"*{dtype}")
        sizes = dict.fromkeys(("rows", "columns", "stride", "dy_stride", "dtotal_stride"), "i32")
        types = {**tensors, "statistics": "*fp32", "dh": f"*{dtype}", "dweight": "*fp32", **sizes}
        constants = {"CENTER": False, "WEIGHT": True, "TOTAL": False, "PIECES": 4, "BLOCK": rows_gradient.PIECE}
        return lambda: sass.triton_cubin(rows_gradient._backward_long, types, constants, warps=rows_gradient.LONG_WARPS)

    return {
        "rmsnorm-backward, bfloat16, 16384": backward("bf16"),
        "rmsnorm-backward, float32, 16384": backward("fp32"),
        "attention-triton, 8 warps": attend(8),
        "attention-triton, 4 warps": attend(4),
        "softmax-triton, bfloat16, 4096": soft(4_096),
        "softmax-triton, bfloat16, 32768": soft(32_768),
    }


def contract_results(say: Say) -> dict[str, list[Result]]:
    """Every declaration on every case. A kernel that fails is not timed."""
    found: dict[str, list[Result]] = {}
    for name, declaration in declared().items():
        began = time.perf_counter()
        results = contracts.check(declaration, "cuda")
        found[name] = [
            {
                "case": r.case, "passed": r.passed, "relative": r.relative_error, "largest": r.largest_error,
                "reason": r.reason,
            }
            for r in results
        ]  # fmt: skip
        failed = [r for r in results if not r.passed]
        say(f"contract {name}: {len(results) - len(failed)} of {len(results)} ({time.perf_counter() - began:.0f} s)")
        for r in failed:
            say(f"  {r.case}: {r.reason}")
        torch.cuda.empty_cache()
    return found


def passed(results: Mapping[str, Sequence[Result]], name: str) -> bool:
    """Whether a declaration's contract holds on every case."""
    return bool(results.get(name)) and all(r["passed"] for r in results[name])


def rowwise_times(say: Say, results: Mapping[str, Sequence[Result]]) -> Iterator[Result]:
    """Softmax and norms over the declared widths against eager and compiled PyTorch, and a copy of the same bytes."""
    for declaration in HOPPER:
        if declaration.name == "attention":
            continue
        if not passed(results, declaration.name):
            say(f"{declaration.name} is not timed: its contract fails")
            continue
        operator = declaration.name.removeprefix("add-")
        for case, parameters in declaration.cases.items():
            generator = torch.Generator(device="cuda").manual_seed(len(case))
            inputs = declaration.inputs(parameters, generator, torch.device("cuda"))
            named = who.rowwise(operator)
            if not passed(results, declaration.name + "-triton"):
                named.pop(who.PORTABLE)
            target = torch.empty_like(inputs["x"])
            calls = {name: [_bound(call, inputs)] for name, call in named.items()}
            calls[who.COPY] = [functools.partial(target.copy_, inputs["x"])]
            times = timing.interleaved(calls, ROUNDS["rowwise"], seed=len(case))
            yield _case(declaration, case, times, copy_bytes=2 * target.numel() * target.element_size())
            del inputs, target, calls
            torch.cuda.empty_cache()
        say(f"timed {declaration.name}")


def attention_times(say: Say, results: Mapping[str, Sequence[Result]]) -> Iterator[Result]:
    """Causal attention over the declared lengths against cuDNN, FlashAttention-2 and FlexAttention."""
    declaration = declared()["attention"]
    if not passed(results, "attention"):
        say("attention is not timed: its contract fails")
        return
    for case, parameters in declaration.cases.items():
        sets = _rotated(declaration, parameters)
        grouped = parameters["kv-heads"] != parameters["heads"]
        named = who.attention(int(parameters["length"]), grouped)
        if not passed(results, "attention-triton"):
            named.pop(who.PORTABLE)
        calls = {name: [_bound(call, inputs) for inputs in sets] for name, call in named.items()}
        times = timing.interleaved(calls, ROUNDS["attention"], seed=len(case))
        yield {**_case(declaration, case, times), "kernels": _kernel_names(calls)}
        say(f"timed attention {case}")
        torch.cuda.empty_cache()


def backward_times(say: Say, results: Mapping[str, Sequence[Result]]) -> Iterator[Result]:
    """Backward of the norms over the declared widths, from saved tensors."""
    for declaration in BACKWARD:
        if not passed(results, declaration.name):
            say(f"{declaration.name} is not timed: its contract fails")
            continue
        for case, parameters in declaration.cases.items():
            generator = torch.Generator(device="cuda").manual_seed(len(case))
            inputs = declaration.inputs(parameters, generator, torch.device("cuda"))
            named = who.backward(declaration.name.removesuffix("-backward"), inputs)
            times = timing.interleaved({n: [c] for n, c in named.items()}, ROUNDS["backward"], seed=len(case))
            yield _case(declaration, case, times)
            del inputs, named
            torch.cuda.empty_cache()
        say(f"timed {declaration.name}")


def ablation_times(say: Say, results: Mapping[str, Sequence[Result]]) -> Iterator[Result]:
    """One transformation off at a time."""
    names = declared()
    plans: list[tuple[Declaration, str, Callable[[], dict[str, who.Contender]]]] = [
        (names["attention"], f"s{length}", who.attention_ablations)
        for length in contract()["timed"]["attention"]["lengths"]
    ]
    for operator, widths in (("softmax", (1024, 8192, 32768, 65536, 131072)), ("layernorm", (4096, 32768, 131072))):
        for columns in widths:
            plans += [
                (names[operator], f"{dtype}-c{columns}", _row_ablation(operator, columns, itemsize))
                for dtype, itemsize in (("bfloat16", 2), ("float32", 4))
            ]
    plans += [
        (names["softmax-triton"], f"bfloat16-c{columns}", who.portable_ablations) for columns in (1024, 32768, 131072)
    ]
    for declaration, case, variants in plans:
        if not passed(results, declaration.name):
            continue
        parameters = declaration.cases[case]
        sets = _rotated(declaration, parameters)
        kept: dict[str, list[Callable[[], Any]]] = {}
        expected = declaration.kernel(**sets[0])
        for label, call in variants().items():
            try:
                if not _agrees(call(sets[0]), expected):
                    say(f"ablation {declaration.name} {case}, {label}: gives another result, left out")
                    continue
            except Exception as error:  # a variant may not fit this GPU; that is a finding, not a failure
                say(f"ablation {declaration.name} {case}, {label}: does not run ({str(error)[:80]})")
                continue
            kept[label] = [_bound(call, inputs) for inputs in sets]
        times = timing.interleaved(kept, ROUNDS["ablations"], seed=len(case))
        yield _case(declaration, case, times)
        torch.cuda.empty_cache()
    say(f"timed {len(plans)} ablations")


def _row_ablation(operator: str, columns: int, itemsize: int) -> Callable[[], dict[str, who.Contender]]:
    return lambda: who.rowwise_ablations(operator, columns, itemsize)


def _agrees(out: Any, expected: Any) -> bool:
    a = out[0] if isinstance(out, tuple) else out
    b = expected[0] if isinstance(expected, tuple) else expected
    return bool(torch.allclose(a.float(), b.float(), atol=0.03, rtol=0.03))


def overheads(say: Say) -> list[Result]:
    """Host time of one call (enqueue only) and of the first call of a process, on small inputs."""
    found: list[Result] = []
    for name, case in (("softmax", "bfloat16-random"), ("layernorm", "bfloat16-random"), ("attention", "random")):
        declaration = declared()[name]
        generator = torch.Generator(device="cuda").manual_seed(1)
        inputs = declaration.inputs(declaration.contract_cases[case], generator, torch.device("cuda"))
        named: dict[str, Callable[[], Any]] = {
            who.OURS: functools.partial(declaration.kernel, **inputs),
            who.PORTABLE: functools.partial(declared()[name + "-triton"].kernel, **inputs),
        }
        if name == "attention":
            named[who.CUDNN] = functools.partial(who.library, torch.nn.attention.SDPBackend.CUDNN_ATTENTION, inputs)
        else:
            named[who.EAGER] = functools.partial(who.eager, name, **inputs)
        for label, call in named.items():
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(200):
                call()
            host = (time.perf_counter() - began) / 200
            torch.cuda.synchronize()
            found.append({"name": name, "contender": label, "host_seconds": host, "graph_seconds": _graph(call)})
    found += [
        {"name": name, "contender": who.OURS, "first_seconds": _first_use(name, case)}
        for name, case in (("softmax", "bfloat16-random"), ("attention", "random"))
    ]
    say("overheads measured")
    return found


def _graph(call: Callable[[], Any]) -> float:
    """Seconds of one launch inside a CUDA graph of 20."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            call()
    times = timing.interleaved({"graph": [graph.replay]}, 20, 1)
    return timing.median(times["graph"]) / 20


def _first_use(name: str, case: str) -> float:
    """Seconds of the first call in a fresh process with an empty cache: compile, load, launch, wait."""
    script = (
        "import time, torch\n"
        "from assay.kernels.suite.declarations import declared\n"
        f"d = declared()[{name!r}]\n"
        "g = torch.Generator(device='cuda').manual_seed(1)\n"
        f"i = d.inputs(d.contract_cases[{case!r}], g, torch.device('cuda'))\n"
        "torch.cuda.synchronize(); t = time.perf_counter(); d.kernel(**i); torch.cuda.synchronize()\n"
        "print(time.perf_counter() - t)\n"
    )
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True,
            env={**os.environ, "ASSAY_CACHE": empty},
        )  # fmt: skip
    return float(done.stdout.strip().splitlines()[-1])


PROFILED = (
    ("softmax", "bfloat16-c4096"), ("softmax", "float32-c32768"), ("softmax", "bfloat16-c131072"),
    ("rmsnorm", "bfloat16-c8192"), ("layernorm", "float32-c16384"), ("layernorm", "bfloat16-c131072"),
    ("add-rmsnorm", "bfloat16-c4096"), ("attention", "s512"), ("attention", "s1024"), ("attention", "s2048"),
    ("attention", "s4096"), ("attention-triton", "s4096"),
)  # fmt: skip
"""Kernels and cases whose bytes the profiler reads."""


def traffic(say: Say) -> list[Result]:
    """Device-memory bytes by Nsight Compute, against the byte model; the reason where counters cannot be read."""
    tool = shutil.which("ncu") or next(iter(sorted(map(str, Path("/opt/nvidia").glob("nsight-compute/*/ncu")))), None)
    found: list[Result] = []
    if tool is None:
        say("traffic: not measured, Nsight Compute is not installed")
        return [{"name": n, "case": c, "measured": None, "reason": "ncu is not installed"} for n, c in PROFILED]
    command = [
        tool, "--clock-control", "none", "--cache-control", "all", "--csv", "--profile-from-start", "off",
        "--metrics", "dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum",
        sys.executable, "-m", "assay.kernels.suite.profiled",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    launches = parse_ncu(done.stdout)
    if len(launches) != len(PROFILED):
        reason = (done.stderr or done.stdout).strip().splitlines()
        why = f"ncu read {len(launches)} of {len(PROFILED)} launches: {' / '.join(reason[-2:])[:200]}"
        say(f"traffic: not measured ({why})")
        return [{"name": n, "case": c, "measured": None, "reason": why} for n, c in PROFILED]
    for (name, case), launch in zip(PROFILED, launches, strict=True):
        declaration = declared()[name]
        predicted = declaration.bytes(declaration.cases[case])
        measured = launch["dram__bytes_read.sum"] + launch["dram__bytes_write.sum"]
        found.append(
            {
                "name": name, "case": case, "predicted": predicted, "measured": measured,
                "read": launch["dram__bytes_read.sum"], "written": launch["dram__bytes_write.sum"],
                "kernel": launch["kernel"],
            }
        )  # fmt: skip
        say(f"traffic {name} {case}: {measured / predicted:.3f} of the model")
    return found


def parse_ncu(text: str) -> list[dict[str, Any]]:
    """Launches of an `ncu --csv` listing, in order, each with its metrics in base units (bytes, seconds)."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    scale = {
        "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
        "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0,
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        launch = found.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]
    return list(found.values())


def _case(
    declaration: Declaration, case: str, times: Mapping[str, list[float]], copy_bytes: float | None = None
) -> Result:
    parameters = declaration.cases[case]
    found: Result = {
        "name": declaration.name, "case": case, "parameters": dict(parameters),
        "bytes": declaration.bytes(parameters), "flops": declaration.flops(parameters), "seconds": dict(times),
    }  # fmt: skip
    if copy_bytes is not None:
        found["copy_bytes"] = copy_bytes
    return found


def _rotated(declaration: Declaration, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sets of inputs that together are larger than the L2 cache."""
    sets = []
    for number in range(_SETS):
        generator = torch.Generator(device="cuda").manual_seed(100 + number)
        sets.append(declaration.inputs(parameters, generator, torch.device("cuda")))
        held = sum(value.nbytes for value in sets[0].values() if isinstance(value, torch.Tensor))
        if held * (number + 1) > _L2_SETS_BYTES:
            break
    return sets


def _bound(call: who.Contender, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: call(inputs)


def _kernel_names(calls: Mapping[str, Sequence[Callable[[], Any]]]) -> dict[str, list[str]]:
    """What each contender really launched, by torch's profiler: a forced backend may still be another kernel."""
    found = {}
    for name, choices in calls.items():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            choices[0]()
            torch.cuda.synchronize()
        found[name] = sorted({event.name[:120] for event in profile.events() if event.device_type.name == "CUDA"})
    return found
