"""Cycles that Arm's compiler Vela estimates for one layer: `python -m benchmarks.peers.vela NUMBER`.

Needs ethos-u-vela, whose own FlatBuffers classes write the TFLite file that it reads.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.layers import LAYERS, Layer

ACCELERATORS = ("ethos-u55-256", "ethos-u85-2048")


def main() -> None:
    """Prints cycles of the NPU, and of NPU and memory together, for each accelerator, as JSON."""
    layer = LAYERS[int(sys.argv[1])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.tflite"
        path.write_bytes(tflite(layer))
        print(json.dumps({name: _vela(path, name) for name in ACCELERATORS}))


def _vela(path: Path, accelerator: str) -> dict[str, int]:
    out = path.parent / accelerator
    command = [str(Path(sys.executable).parent / "vela"), str(path), f"--accelerator-config={accelerator}",
               f"--output-dir={out}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tables = list(out.glob("*summary*.csv"))
    if done.returncode or not tables:
        raise SystemExit(f"vela: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    (row,) = csv.DictReader(tables[0].open(encoding="utf-8"))
    return {"npu": round(float(row["cycles_npu"])), "total": round(float(row["cycles_total"]))}


def tflite(layer: Layer) -> bytes:
    """A TFLite file of one quantized layer; activations as (N, H, W, C)."""
    import flatbuffers
    import numpy
    from ethosu.vela.tflite import Model, Operator, OperatorCode, SubGraph, Tensor
    from ethosu.vela.tflite.BuiltinOperator import BuiltinOperator
    from ethosu.vela.tflite.BuiltinOptions import BuiltinOptions
    from ethosu.vela.tflite.TensorType import TensorType

    builder = flatbuffers.Builder(1 << 16)
    random = numpy.random.default_rng(0)
    depthwise = layer.groups > 1
    if layer.kernel:
        axes = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
        shapes = [
            tuple(layer.inputs[i] for i in (0, 2, 3, 1)),
            tuple(layer.weights[i] for i in axes),
            (layer.outputs,),
            tuple(layer.results[i] for i in (0, 2, 3, 1)),
        ]
        code = BuiltinOperator.DEPTHWISE_CONV_2D if depthwise else BuiltinOperator.CONV_2D
        kind = BuiltinOptions.DepthwiseConv2DOptions if depthwise else BuiltinOptions.Conv2DOptions
    else:
        shapes = [layer.inputs, layer.weights, (layer.outputs,), layer.results]
        code, kind = BuiltinOperator.FULLY_CONNECTED, BuiltinOptions.FullyConnectedOptions
    weights = random.integers(-127, 127, shapes[1]).astype(numpy.int8).tobytes()
    biases = random.integers(-1000, 1000, layer.outputs).astype(numpy.int32).tobytes()
    buffers = _vector(builder, [_buffer(builder, data) for data in (b"", weights, biases)])
    types = (TensorType.INT8, TensorType.INT8, TensorType.INT32, TensorType.INT8)
    scales = ((0.02, 0), (0.01, 0), (0.0002, 0), (0.05, 0))
    tensors = []
    for place, (name, shape) in enumerate(zip("xwby", shapes, strict=True)):
        label, quantized = builder.CreateString(name), _quantization(builder, *scales[place])
        sizes = builder.CreateNumpyVector(numpy.array(shape, numpy.int32))
        Tensor.Start(builder)
        Tensor.AddShape(builder, sizes)
        Tensor.AddType(builder, types[place])
        Tensor.AddBuffer(builder, {"w": 1, "b": 2}.get(name, 0))
        Tensor.AddName(builder, label)
        Tensor.AddQuantization(builder, quantized)
        tensors.append(Tensor.End(builder))
    table = _vector(builder, tensors)
    ins, outs = (builder.CreateNumpyVector(numpy.array(each, numpy.int32)) for each in ([0, 1, 2], [3]))
    options = _options(builder, layer)
    Operator.Start(builder)
    Operator.AddOpcodeIndex(builder, 0)
    Operator.AddInputs(builder, ins)
    Operator.AddOutputs(builder, outs)
    Operator.AddBuiltinOptionsType(builder, kind)
    Operator.AddBuiltinOptions(builder, options)
    operators = _vector(builder, [Operator.End(builder)])
    graph_ins, graph_outs = (builder.CreateNumpyVector(numpy.array(each, numpy.int32)) for each in ([0], [3]))
    SubGraph.Start(builder)
    SubGraph.AddTensors(builder, table)
    SubGraph.AddInputs(builder, graph_ins)
    SubGraph.AddOutputs(builder, graph_outs)
    SubGraph.AddOperators(builder, operators)
    graphs = _vector(builder, [SubGraph.End(builder)])
    OperatorCode.Start(builder)
    OperatorCode.AddDeprecatedBuiltinCode(builder, code)
    OperatorCode.AddBuiltinCode(builder, code)
    OperatorCode.AddVersion(builder, 3)
    codes = _vector(builder, [OperatorCode.End(builder)])
    text = builder.CreateString(layer.name)
    Model.Start(builder)
    Model.AddVersion(builder, 3)
    Model.AddOperatorCodes(builder, codes)
    Model.AddSubgraphs(builder, graphs)
    Model.AddDescription(builder, text)
    Model.AddBuffers(builder, buffers)
    builder.Finish(Model.End(builder), b"TFL3")
    return bytes(builder.Output())


def _vector(builder: Any, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _buffer(builder: Any, data: bytes) -> int:
    from ethosu.vela.tflite import Buffer

    held = builder.CreateByteVector(data) if data else 0
    Buffer.Start(builder)
    if held:
        Buffer.AddData(builder, held)
    return int(Buffer.End(builder))


def _quantization(builder: Any, scale: float, zero: int) -> int:
    import numpy
    from ethosu.vela.tflite import QuantizationParameters

    scales = builder.CreateNumpyVector(numpy.array([scale], numpy.float32))
    zeros = builder.CreateNumpyVector(numpy.array([zero], numpy.int64))
    QuantizationParameters.Start(builder)
    QuantizationParameters.AddScale(builder, scales)
    QuantizationParameters.AddZeroPoint(builder, zeros)
    return int(QuantizationParameters.End(builder))


def _options(builder: Any, layer: Layer) -> int:
    from ethosu.vela.tflite import Conv2DOptions, DepthwiseConv2DOptions, FullyConnectedOptions

    if not layer.kernel:
        FullyConnectedOptions.Start(builder)
        return int(FullyConnectedOptions.End(builder))
    options = DepthwiseConv2DOptions if layer.groups > 1 else Conv2DOptions
    options.Start(builder)
    options.AddPadding(builder, 0)  # SAME
    options.AddStrideW(builder, layer.stride)
    options.AddStrideH(builder, layer.stride)
    if layer.groups > 1:
        options.AddDepthMultiplier(builder, 1)
    return int(options.End(builder))


if __name__ == "__main__":
    main()
