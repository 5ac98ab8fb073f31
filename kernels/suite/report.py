"""The report page of the suite: tables and pictures from `results.json`, and nothing that is not in it.

python -m assay.kernels.suite.report RESULTS --out FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.kernels.suite.contenders import COPY, CUDNN, FLASH, FLEX, OURS
from assay.kernels.suite.pictures import Dot, heat_map, roofline
from assay.kernels.suite.records import losing
from assay.kernels.suite.sources import changed, digests
from assay.kernels.suite.timing import median, ratio

Results = Mapping[str, Any]
NOT_MEASURED = "not measured"
_ROWWISE = ("softmax", "rmsnorm", "layernorm", "add-rmsnorm", "add-layernorm")
_GOAL_SHORT, _GOAL_LONG, _LONG = 0.90, 0.85, 65_536


def main() -> None:
    """Writes report.md and its pictures."""
    parser = argparse.ArgumentParser(prog="python -m assay.kernels.suite.report", description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="results.json of the suite")
    parser.add_argument("--out", type=Path, required=True, help="folder of report.md and the pictures")
    chosen = parser.parse_args()
    results = json.loads(chosen.results.read_text(encoding="utf-8"))
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, text in files(results).items():
        (chosen.out / name).write_text(text, encoding="utf-8")


def files(results: Results) -> dict[str, str]:
    """File name -> contents."""
    ceilings = results["ceilings"]
    return {
        "heatmap.svg": heat_map("Row-wise kernels on " + _gpu(results), *shares(results)),
        "roofline.svg": roofline("Roofline, " + _gpu(results), ceilings["copy"], ceilings["matmul"], dots(results)),
        "report.md": report(results),
    }


def report(results: Results) -> str:
    """The page."""
    sections = [
        "# Kernels, measured",
        _head(results),
        "## Goals",
        goals(results),
        "## Contract",
        contract(results),
        "## Row-wise kernels",
        "![Share of copy bandwidth by operator and width](heatmap.svg)",
        rowwise(results),
        "## Causal attention",
        attention(results),
        "## Backward of the norms",
        backward(results),
        "## Losing regions",
        losing_regions(results),
        "## Roofline",
        "![Attained rate over intensity under the measured ceilings](roofline.svg)",
        "## Ablations",
        ablations(results),
        "## Bytes, measured against the model",
        traffic(results),
        "## Machine code",
        machine_code(results),
        "## Launch and first use",
        overheads(results),
        "## Reproduce",
        f"`{results['command']}` on the GPU, then `python -m assay.kernels.suite.report`. The raw seconds of every round "
        "are in `results.json` beside this page.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def shares(results: Results) -> tuple[list[str], list[str], dict[tuple[str, str], float]]:
    """Columns, rows and cells of the heat map."""
    widths: set[int] = set()
    cells: dict[tuple[str, str], float] = {}
    for case in results.get("rowwise", []):
        columns = int(case["parameters"]["columns"])
        widths.add(columns)
        cells[_row_name(case), _width(columns)] = share_of_copy(case)
    rows = [f"{name}, {dtype}" for name in _ROWWISE for dtype in ("bf16", "fp32")]
    return [_width(width) for width in sorted(widths)], rows, cells


def share_of_copy(case: Mapping[str, Any]) -> float:
    """Model bytes per second of our kernel over bytes per second of the copy that ran between its rounds."""
    copied = case["copy_bytes"] / median(case["seconds"][COPY])
    return float(case["bytes"] / median(case["seconds"][OURS]) / copied)


def dots(results: Results) -> list[Dot]:
    """Every case of ours in the roofline."""
    found = []
    for case in [*results.get("rowwise", []), *results.get("attention", [])]:
        rate = case["flops"] / median(case["seconds"][OURS])
        found.append(Dot(case["name"], f"{case['name']} {case['case']}", case["flops"] / case["bytes"], rate))
    return found


def goals(results: Results) -> str:
    """Each goal, with how many shapes meet it and the worst one."""
    lines = ["| Goal | Met | Worst shape |", "| --- | --- | --- |"]
    cases = results.get("rowwise", [])
    for label, goal, some in (
        (
            f"row-wise, up to 32,768 columns: {_GOAL_SHORT:.2f} of copy",
            _GOAL_SHORT,
            [c for c in cases if not _is_long(c)],
        ),
        (f"row-wise, 65,536 and more: {_GOAL_LONG:.2f} of copy", _GOAL_LONG, [c for c in cases if _is_long(c)]),
    ):
        if some:
            worst = min(some, key=share_of_copy)
            met = sum(share_of_copy(c) >= goal for c in some)
            lines.append(f"| {label} | {met} of {len(some)} | {_label(worst)}: {share_of_copy(worst):.2f} |")
    for peer, label in (
        ("eager", "row-wise, not slower than eager"),
        ("compile", "row-wise, not slower than torch.compile"),
    ):
        lines += _peer_goal(label, peer, cases)
    for peer, label in ((CUDNN, "attention, at least cuDNN"), (FLASH, "attention, above FlashAttention-2")):
        lines += _peer_goal(label, peer, results.get("attention", []))
    if not results.get("attention"):
        lines.append(f"| attention, at least cuDNN | {NOT_MEASURED} | the contract did not hold in this run |")
    return "\n".join(lines)


def _peer_goal(label: str, peer: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    some = [case for case in cases if peer in case["seconds"]]
    if not some:
        return []
    ratios = {_label(case): ratio(case["seconds"][peer], case["seconds"][OURS]) for case in some}
    worst = min(ratios, key=lambda name: ratios[name].value)
    met = sum(found.high >= 1.0 for found in ratios.values())
    return [f"| {label} | {met} of {len(some)} | {worst}: {_times(ratios[worst])} |"]


def contract(results: Results) -> str:
    """Cases passed by kernel, and every failure with its reason."""
    lines = ["| Kernel | Cases passed | Largest relative error |", "| --- | --- | --- |"]
    failures = []
    for name, found in results.get("contract", {}).items():
        good = [r for r in found if r["passed"]]
        worst = max((r["relative"] for r in good), default=0.0)
        lines.append(f"| {name} | {len(good)} of {len(found)} | {worst:.1e} |")
        failures += [f"- {name}, {r['case']}: {r['reason']}" for r in found if not r["passed"]]
    closing = "A kernel with a failure is not timed:\n\n" + "\n".join(failures) if failures else ""
    return "\n".join(lines) + ("\n\n" + closing if closing else "")


def rowwise(results: Results) -> str:
    """One row per shape: bandwidth, share of copy, and times as long as ours for each peer."""
    peers = ["assay-triton", "eager", "compile"]
    lines = [
        "Peers as multiples of our time, with 95% intervals: above 1, the peer is slower.\n",
        "| Shape | TB/s | of copy | " + " | ".join(peers) + " |",
        "| --- | --- | --- |" + " --- |" * len(peers),
    ]
    for case in results.get("rowwise", []):
        seconds = case["seconds"]
        against = [_times(ratio(seconds[peer], seconds[OURS])) if peer in seconds else NOT_MEASURED for peer in peers]
        speed = case["bytes"] / median(seconds[OURS]) / 1e12
        lines.append(f"| {_label(case)} | {speed:.2f} | {share_of_copy(case):.2f} | " + " | ".join(against) + " |")
    return "\n".join(lines)


def attention(results: Results) -> str:
    """TFLOP/s of all, and peers as multiples of our time."""
    cases = results.get("attention", [])
    if not cases:
        return f"{NOT_MEASURED.capitalize()}: the contract did not hold in this run."
    peers = [CUDNN, FLASH, FLEX, "assay-triton"]
    lines = ["| Case | " + " | ".join(["assay", *peers]) + " |", "| --- |" + " --- |" * (1 + len(peers))]
    for case in cases:
        seconds = case["seconds"]
        cells = [f"{case['flops'] / median(seconds[OURS]) / 1e12:.0f} TFLOP/s"]
        for peer in peers:
            if peer not in seconds:
                cells.append(NOT_MEASURED)
                continue
            rate = case["flops"] / median(seconds[peer]) / 1e12
            cells.append(f"{rate:.0f} ({_times(ratio(seconds[peer], seconds[OURS]))})")
        lines.append(f"| {case['case']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def backward(results: Results) -> str:
    """Backward of the norms."""
    lines = ["| Shape | TB/s | eager | compile | gradient error |", "| --- | --- | --- | --- | --- |"]
    for case in results.get("backward", []):
        seconds = case["seconds"]
        checked = {r["case"]: r["relative"] for r in results.get("contract", {}).get(case["name"], [])}
        error = checked[case["case"]] if checked else case["gradient_error"]
        speed = case["bytes"] / median(seconds[OURS]) / 1e12
        against = " | ".join(_times(ratio(seconds[peer], seconds[OURS])) for peer in ("eager", "compile"))
        lines.append(f"| {case['name']} {case['case']} | {speed:.2f} | {against} | {error:.1e} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_MEASURED.capitalize() + "."


def losing_regions(results: Results) -> str:
    """Shapes on which a peer is faster with its whole interval."""
    names = dict.fromkeys(
        case["name"] for stage in ("rowwise", "attention", "backward") for case in results.get(stage, [])
    )
    lines = [f"- {name}: {'; '.join(lost)}" for name in names if (lost := losing(results, name))]
    return "\n".join(lines) or "None: no peer is faster on any declared shape."


def ablations(results: Results) -> str:
    """Time of each variant as a multiple of the first."""
    lines = [
        "Time as a multiple of the kernel with everything on.\n",
        "| Case | Variant | Time |",
        "| --- | --- | --- |",
    ]
    for case in results.get("ablations", []):
        seconds = case["seconds"]
        base = next(iter(seconds))
        lines += [
            f"| {case['name']} {case['case']} | {variant} | {_times(ratio(times, seconds[base]))} |"
            for variant, times in seconds.items()
            if variant != base
        ]
    return "\n".join(lines) if len(lines) > 3 else NOT_MEASURED.capitalize() + "."


def traffic(results: Results) -> str:
    """Profiler bytes against the model."""
    found = results.get("traffic", [])
    if not found:
        return NOT_MEASURED.capitalize() + "."
    lines = ["| Kernel | Model, MB | Measured, MB | Measured / model |", "| --- | --- | --- | --- |"]
    for item in found:
        if item["measured"] is None:
            lines.append(f"| {item['name']} {item['case']} | – | {NOT_MEASURED} ({item['reason']}) | – |")
            continue
        share = item["measured"] / item["predicted"]
        lines.append(
            f"| {item['name']} {item['case']} | {item['predicted'] / 1e6:.1f} | {item['measured'] / 1e6:.1f} | {share:.3f} |"
        )
    return "\n".join(lines)


def machine_code(results: Results) -> str:
    """Registers, spills and instructions."""
    keys = ("registers", "stack_bytes", "ldl", "stl", "hgmma", "tma_loads", "loads_128_bit", "stores_128_bit")
    names = ("registers", "stack, bytes", "LDL", "STL", "HGMMA", "UTMALDG", "128-bit loads", "128-bit stores")
    found = results.get("machine-code", [])
    if not found:
        return "Read on any machine with `python -m assay.kernels.suite --only machine-code`; not part of this run."
    lines = ["| Kernel | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    lines += [f"| {code['kernel']} | " + " | ".join(str(code[key]) for key in keys) + " |" for code in found]
    return "\n".join(lines)


def overheads(results: Results) -> str:
    """Host time, graph time, first use."""
    lines = [
        "| Operator | Who | Host, us per call | In a CUDA graph, us | First call, ms |",
        "| --- | --- | --- | --- | --- |",
    ]
    for item in results.get("overheads", []):
        host = f"{1e6 * item['host_seconds']:.1f}" if "host_seconds" in item else "–"
        graph = f"{1e6 * item['graph_seconds']:.1f}" if "graph_seconds" in item else "–"
        first = f"{1e3 * item['first_seconds']:.0f}" if "first_seconds" in item else "–"
        lines.append(f"| {item['name']} | {item['contender']} | {host} | {graph} | {first} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_MEASURED.capitalize() + "."


def _head(results: Results) -> str:
    where = results.get("environment", {})
    machine = ", ".join(filter(None, [_gpu(results), where.get("driver", ""), *where.get("versions", [])]))
    note = " **A quick run: a tenth of the rounds.**" if results.get("quick") else ""
    moved = changed(results.get("sources", {}), digests())
    if moved:
        files = ", ".join(f"`kernels/{file}`" for file in moved)
        note += f"\n\n**Changed since this run, so that the tables speak of earlier kernels:** {files}."
    return (
        f"Measured on {machine}. Times are medians over rounds in which all contenders run once, in random order, on the "
        f"same inputs; ratios are medians of pairs with 95% block-bootstrap intervals.{note}"
    )


def _gpu(results: Results) -> str:
    return str(results.get("environment", {}).get("gpu", "one GPU"))


def _is_long(case: Mapping[str, Any]) -> bool:
    return int(case["parameters"]["columns"]) >= _LONG


def _label(case: Mapping[str, Any]) -> str:
    return f"{case['name']} {case['case']}"


def _row_name(case: Mapping[str, Any]) -> str:
    return f"{case['name']}, {'bf16' if case['parameters']['dtype'] == 'bfloat16' else 'fp32'}"


def _width(columns: int) -> str:
    return f"{columns // 1024}K"


def _times(found: Any) -> str:
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


if __name__ == "__main__":
    main()
