"""Valid programs to run and to spoil."""

from __future__ import annotations

from collections.abc import Iterable

from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction
from assay.npu_backend.tensor import Range, Role, Tensor


def whole(tensor: Tensor) -> tuple[Range, ...]:
    """The box of a whole tensor."""
    return tuple((0, size) for size in tensor.shape)


def program(tensors: Iterable[Tensor], instructions: Iterable[Instruction], name: str = "test") -> Program:
    """A program of these."""
    return Program(name, {tensor.name: tensor for tensor in tensors}, tuple(instructions))


def linear(rows: int, inner: int, columns: int, *, row_tile: int, column_tile: int, dtype: str = "float32") -> Program:
    """relu(x w + b), tiled over rows and columns, the weight of each column tile loaded once."""
    x, w = Tensor("x", (rows, inner), dtype, Role.INPUT), Tensor("w", (inner, columns), dtype, Role.WEIGHT)
    b, y = Tensor("b", (columns,), dtype, Role.WEIGHT), Tensor("y", (rows, columns), dtype, Role.OUTPUT)
    tensors, code = [x, w, b, y], []
    for c in range(0, columns, column_tile):
        cs = (c, min(columns, c + column_tile))
        wide = cs[1] - cs[0]
        tensors += [Tensor(f"w{c}", (inner, wide), dtype, Role.TILE), Tensor(f"b{c}", (wide,), dtype, Role.TILE)]
        code += [
            isa.LoadTile(out=f"w{c}", source="w", ranges=((0, inner), cs)),
            isa.LoadTile(out=f"b{c}", source="b", ranges=(cs,)),
        ]
        for r in range(0, rows, row_tile):
            rs = (r, min(rows, r + row_tile))
            high = rs[1] - rs[0]
            tag = f"{c}_{r}"
            tensors += [
                Tensor(f"x{tag}", (high, inner), dtype, Role.TILE),
                Tensor(f"m{tag}", (high, wide), dtype, Role.TILE),
                Tensor(f"r{tag}", (high, wide), dtype, Role.TILE),
            ]
            code += [
                isa.LoadTile(out=f"x{tag}", source="x", ranges=(rs, (0, inner))),
                isa.MatMul(out=f"m{tag}", a=f"x{tag}", b=f"w{c}", bias=f"b{c}"),
                isa.Relu(out=f"r{tag}", x=f"m{tag}", fused=True),
                isa.StoreTile(out="y", source=f"r{tag}", ranges=(rs, cs)),
            ]
    return program(tensors, code)
