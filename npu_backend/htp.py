"""The machine `htp_v75`: Hexagon V75 of Snapdragon 8 Gen 3, with rates fitted to published latencies.

What is known is written here; what is not is in htp_v75.json, which `make npu-calibrate` writes.

- VTCM is 8 MB (ExecuTorch, qc_schema.py, SM8650) and LPDDR5X gives 76.8 GB/s at most (Qualcomm's product brief): the fitted
  DRAM rate stays below that.
- The matrix unit (HMX) works on tiles of 32 x 32, so that channels, rows and columns count in steps of 32.
- Tensors of four dimensions lie channels last, so that a permutation between channels first and last moves nothing.
- A RESHAPE that adds or drops dimensions of 1 moves nothing.
- A CONCAT of floating tensors is written in place; of quantized ones it scales every operand anew.
- Clock and multiply-accumulates per cycle have no authoritative source. Times are fitted, and shown as cycles of a clock of
  1.37 GHz, at which 16,384 multiply-accumulates a cycle would be the 45 TOPS that the press reports.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from importlib.resources import files

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.isa import Instruction
from assay.npu_backend.machine import Machine, Unit, macs_of, unit_of
from assay.npu_backend.tensor import FLOATS, Tensor, Tensors
from assay.npu_backend.validation import VTCM_BYTES

CLOCK_HZ = 1.37e9
PEAK_DRAM = 76.8
"""GB/s of LPDDR5X."""
TILE = 32
"""Rows and columns of a tile of the matrix unit."""
_CHANNELS = ((0, 2, 3, 1), (0, 3, 1, 2))
"""Permutations between channels first and channels last."""

_AT_ONCE = (isa.Relu, isa.Quantize, isa.Dequantize, isa.ElementwiseAdd, isa.ElementwiseMul)
"""Riders that work on a result on its way to VTCM; tables, softmax and norms read it from there and write it again."""


@dataclass(frozen=True)
class Rates:
    """What is fitted. Times are in milliseconds, of a machine that nothing else uses."""

    fixed_ms: float
    """An inference that does nothing."""
    instruction_us: float
    """Start of an instruction on 8-bit tensors; twice that on 16-bit ones."""
    float_gmacs: float
    """10^9 multiply-accumulates of 16-bit floats in a millisecond."""
    int8_gmacs: float
    """The same of 8-bit integers; half as many for 16-bit activations with 8-bit weights, a quarter for 16 bits twice."""
    vtcm_gbs: float
    """10^9 bytes in a second between VTCM and the units."""
    dram_gbs: float
    """10^9 bytes in a second between DRAM and VTCM."""


def load_rates() -> Rates:
    """The rates that the package ships. Raises `InputError` when their file is damaged."""
    text = files("assay.npu_backend").joinpath("htp_v75.json").read_text()
    document = json.loads(text)
    if set(document) != {field.name for field in fields(Rates)}:
        raise InputError("npu_backend/htp_v75.json is damaged: write it again with make npu-calibrate.")
    return Rates(**document)


def dump_rates(rates: Rates) -> str:
    """Text of the file that `load_rates` reads: four digits, which is more than the fit knows."""
    return json.dumps({name: float(f"{value:.4g}") for name, value in asdict(rates).items()}, indent=1) + "\n"


@dataclass(frozen=True)
class Work:
    """What one instruction asks of the machine, before rates."""

    unit: Unit
    dram_bytes: int = 0
    vtcm_bytes: int = 0
    float_macs: float = 0.0
    int8_macs: float = 0.0
    """In multiply-accumulates of 8-bit integers."""
    starts: float = 0.0
    """Starts of an instruction on 8-bit tensors."""

    def milliseconds(self, rates: Rates) -> float:
        """How long it takes at these rates."""
        return (
            self.dram_bytes / (rates.dram_gbs * 1e6)
            + self.vtcm_bytes / (rates.vtcm_gbs * 1e6)
            + self.float_macs / (rates.float_gmacs * 1e9)
            + self.int8_macs / (rates.int8_gmacs * 1e9)
            + self.starts * rates.instruction_us / 1e3
        )


def work_of(instruction: Instruction, tensors: Tensors) -> Work:
    """What an instruction that is not in place asks of the machine.

    A rider (`fused`) starts nothing. One of `_AT_ONCE` works on a tile that is in the units already, and reads its other
    operands alone.
    """
    out = tensors[instruction.out]
    if isinstance(instruction, isa.LoadTile):
        return Work(Unit.LOAD, dram_bytes=out.bytes)
    if isinstance(instruction, isa.StoreTile):
        return Work(Unit.STORE, dram_bytes=tensors[instruction.source].bytes)
    operands = [tensors[name] for name in instruction.reads()]
    if instruction.fused:
        again = 0 if isinstance(instruction, _AT_ONCE) else _touched(instruction, operands[0], out)
        return Work(unit_of(instruction), vtcm_bytes=again + sum(t.bytes for t in operands[1:]))
    if _free(instruction, out, tensors):
        return Work(unit_of(instruction))
    starts = 1.0 if out.element_bits <= 8 else 2.0
    moved = _touched(instruction, operands[0], out) + sum(tensor.bytes for tensor in operands[1:])
    macs = _tiled_macs(instruction, tensors)
    floating, integer = _by_rate(macs, operands)
    return Work(unit_of(instruction), vtcm_bytes=moved, float_macs=floating, int8_macs=integer, starts=starts)


def _touched(instruction: Instruction, x: Tensor, out: Tensor) -> int:
    """Bytes of the first operand and the result that go between VTCM and a unit."""
    if isinstance(instruction, isa.Softmax):
        return 2 * x.bytes + 3 * out.bytes  # the maximum; exp, written; its sum known, read and written again
    if isinstance(instruction, isa.LayerNorm):
        return 2 * x.bytes + out.bytes  # mean and variance; then the result
    return x.bytes + out.bytes


def _free(instruction: Instruction, out: Tensor, tensors: Tensors) -> bool:
    if isinstance(instruction, isa.Reshape):
        if instruction.function == "permute":
            return instruction.order in _CHANNELS
        return _sides(tensors[instruction.x]) == _sides(out)
    return isinstance(instruction, isa.Concat) and out.stored in FLOATS


def _sides(tensor: Tensor) -> tuple[int, ...]:
    """The shape without dimensions of 1."""
    return tuple(size for size in tensor.shape if size != 1)


def _tiled_macs(instruction: Instruction, tensors: Tensors) -> float:
    """Multiply-accumulates of the matrix unit with every side in whole tiles; 0 for what the vector unit does.

    That is depthwise convolutions and products with one column, which are sums: their bytes are what they cost.
    """
    out = tensors[instruction.out].shape
    if isinstance(instruction, isa.Conv2d):
        outputs, inner = tensors[instruction.weight].shape[:2]
        if inner == 1:
            return 0.0
        sides = (inner, outputs // instruction.groups, out[2] * out[3])
    elif isinstance(instruction, isa.MatMul):
        if out[-1] == 1:
            return 0.0
        # Rows of a product with one matrix are one after the other, whatever dimensions lead.
        rows = out[-2] if len(tensors[instruction.b].shape) > 2 else math.prod(out[:-1])
        sides = (tensors[instruction.a].shape[-1], out[-1], rows)
    else:
        return 0.0
    return macs_of(instruction, tensors) * math.prod(-(-side // TILE) * TILE / side for side in sides)


def _by_rate(macs: float, operands: list[Tensor]) -> tuple[float, float]:
    """Multiply-accumulates at the rate of floats, and at that of 8-bit integers."""
    if not macs or any(tensor.stored in FLOATS for tensor in operands[:2]):
        return macs, 0.0
    passes = math.prod(-(-tensor.element_bits // 8) for tensor in operands[:2])
    return 0.0, macs * passes


@dataclass(frozen=True)
class Htp(Machine):
    """A machine whose instructions take what `work_of` says at `rates`."""

    rates: Rates | None = None

    def cycles(self, instruction: Instruction, tensors: Tensors) -> float:
        """Cycles of one instruction that is not in place."""
        assert self.rates is not None
        return work_of(instruction, tensors).milliseconds(self.rates) * self.clock_hz / 1e3


def htp_v75(rates: Rates) -> Htp:
    """The machine at given rates."""
    per_cycle = CLOCK_HZ / 1e3

    def moved(tensor: Tensor, elements: int) -> float:
        return elements * tensor.element_bits / 8 * CLOCK_HZ / (rates.dram_gbs * 1e9)

    macs = {"float16": rates.float_gmacs, "float32": rates.float_gmacs, "int8": rates.int8_gmacs}
    return Htp(
        name="htp_v75",
        vtcm_bytes=VTCM_BYTES,
        macs_per_cycle={dtype: rate * 1e9 / per_cycle for dtype, rate in macs.items()},
        load_per_cycle=moved,
        store_per_cycle=moved,
        vector_per_cycle=rates.vtcm_gbs * 1e9 / CLOCK_HZ,
        overlap=True,
        source="fitted to published latencies of torchvision models on Galaxy S24: docs/results/npu/calibration.md",
        clock_hz=CLOCK_HZ,
        fixed_cycles=round(rates.fixed_ms * per_cycle),
        rates=rates,
    )
