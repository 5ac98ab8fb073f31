"""Bytes that Qualcomm's own compiler for Hexagon V75 moves for one layer: `python -m benchmarks.peers.qnn NUMBER`.

Needs onnxruntime-qnn. The layer becomes an ONNX graph of quantize and dequantize nodes around it, with 8-bit inputs and
outputs; the compiler writes a schematic with `bandwidth_information` (bytes of each operation) and `tcm_block_info` (places
in VTCM). Nothing runs on a device, and the cycles that the emulator reports are host time, so they are not read.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.layers import LAYERS, Layer

_MOVED = re.compile(r'"dram_read": (\d+) , "dram_write": (\d+) , "vtcm_read": (\d+) , "vtcm_write": (\d+)')
_BLOCK = re.compile(r"^\s+\d+: \((0x[0-9a-f]+), (0x[0-9a-f]+)\)", re.MULTILINE)
SNAPDRAGON_8_GEN_3 = {"soc_model": "57", "htp_arch": "75"}


def main() -> None:
    """Prints what the compiler says of one layer, as JSON."""
    layer = LAYERS[int(sys.argv[1])]
    with tempfile.TemporaryDirectory() as folder:
        _write(layer, Path(folder) / "layer.onnx")
        _compile(Path(folder))
        (schematic,) = Path(folder).glob("*schematic.bin")
        print(json.dumps(read(schematic.read_text(encoding="utf-8", errors="replace"))))


def read(schematic: str) -> dict[str, int]:
    """DRAM and VTCM bytes of all operations, and the end of the highest block in VTCM."""
    moved = [tuple(map(int, found.groups())) for found in _MOVED.finditer(schematic)]
    blocks = schematic[schematic.index("tcm_block_info") :]
    ends = [int(start, 16) + int(size, 16) for start, size in _BLOCK.findall(blocks[: blocks.index("\n}")])]
    read_bytes, written, vtcm_read, vtcm_written = (sum(each) for each in zip(*moved, strict=True))
    return {
        "dram_read": read_bytes, "dram_written": written, "vtcm_moved": vtcm_read + vtcm_written,
        "vtcm_peak": max(ends, default=0), "operations": len(moved),
    }  # fmt: skip


def _write(layer: Layer, path: Path) -> None:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = numpy.random.default_rng(0)
    values: dict[str, Any] = {
        "x.scale": numpy.float32(0.02), "x.zero": numpy.uint8(128), "w.scale": numpy.float32(0.01),
        "w.zero": numpy.int8(0), "b.scale": numpy.float32(0.0002), "b.zero": numpy.int32(0),
        "y.scale": numpy.float32(0.05), "y.zero": numpy.uint8(128),
        "w": random.integers(-127, 127, layer.weights).astype(numpy.int8),
        "b": random.integers(-1000, 1000, layer.outputs).astype(numpy.int32),
    }  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", [n, f"{n}.scale", f"{n}.zero"], [f"{n}.float"]) for n in "xwb"]
    operands = ["x.float", "w.float", "b.float"]
    if layer.kernel:
        side, out = layer.size, layer.results[-1]
        rest = max(0, (out - 1) * layer.stride + layer.kernel - side)
        nodes.append(
            helper.make_node(
                "Conv", operands, ["y.float"], kernel_shape=[layer.kernel] * 2, group=layer.groups,
                strides=[layer.stride] * 2, pads=[rest // 2, rest // 2, rest - rest // 2, rest - rest // 2],
            )
        )  # fmt: skip
    else:
        nodes.append(helper.make_node("Gemm", operands, ["y.float"], transB=1))
    nodes.append(helper.make_node("QuantizeLinear", ["y.float", "y.scale", "y.zero"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, layer.inputs)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, layer.results)],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def _compile(folder: Path) -> None:
    import os

    import onnxruntime
    import onnxruntime_qnn

    os.chdir(folder)  # the schematic is written into the working directory
    onnxruntime.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNNExecutionProvider")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name, value in {
        "ep.context_enable": "1", "ep.context_file_path": str(folder / "context.onnx"), "ep.context_embed_mode": "0",
        "session.disable_cpu_ep_fallback": "1",
    }.items():  # fmt: skip
        options.add_session_config_entry(name, value)
    provider = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(), "profiling_level": "optrace",
        "profiling_file_path": str(folder / "profile.csv"), **SNAPDRAGON_8_GEN_3,
    }  # fmt: skip
    options.add_provider_for_devices([device], provider)
    onnxruntime.InferenceSession(str(folder / "layer.onnx"), options)


if __name__ == "__main__":
    main()
