"""What the compilers make of the kernels for Hopper, with no GPU here: the gate against spills and lost tensor cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("cuda.bindings.nvrtc")

from assay.baselines.errors import InputError
from assay.kernels import sass
from assay.kernels.attention import hopper
from assay.kernels.cuda.program import Build, cubin
from assay.kernels.rowwise import hopper as rows
from assay.kernels.rowwise.mapping import Mapping, choose
from assay.kernels.suite import stages


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))


def row(operator: str, dtype: str, columns: int) -> sass.Disassembly:
    itemsize = 2 if dtype == "bfloat16" else 4
    mapping = choose(operator, columns, itemsize, 16 // itemsize)
    switches = rows.switches(columns, mapping, weight=operator != "softmax", bias=operator == "layernorm")
    return sass.disassemble(cubin(rows.build(operator, itemsize == 2, mapping, switches)))


def test_attention_runs_on_the_tensor_cores_and_spills_nothing() -> None:
    code = sass.disassemble(cubin(hopper.Flags().build()))
    # 8 steps of Q K in the first block, 8 + 8 in the loop, 8 of P V in the last.
    assert code.count("HGMMA") == 32
    assert code.count("HMMA") == 0
    assert code.spills == code.stack_bytes == 0
    assert code.registers <= 168  # 65,536 registers over 384 threads
    assert code.count("UTMALDG") > 0
    assert code.count("UTMASTG") == 2
    assert code.count("USETMAXREG") == 2
    # One wait for each product that is read, and none that the compiler added because it could not tell.
    assert code.count("WARPGROUP.DEPBAR") == 4


@pytest.mark.parametrize("flag", ["persistent", "pingpong", "overlap", "lazy_rescale"])
def test_every_transformation_can_be_switched_off_without_spilling(flag: str) -> None:
    code = sass.disassemble(cubin(hopper.Flags(**{flag: False}).build()))
    assert code.spills == 0
    assert code.count("HGMMA") == 32


@pytest.mark.parametrize(
    ("operator", "dtype", "columns"),
    [
        ("softmax", "bfloat16", 1024),
        ("softmax", "float32", 32768),
        ("rmsnorm", "float32", 8192),
        ("layernorm", "bfloat16", 16384),
    ],
)
def test_rows_move_in_16_byte_accesses_and_stay_in_registers(operator: str, dtype: str, columns: int) -> None:
    code = row(operator, dtype, columns)
    mapping = choose(operator, columns, 2 if dtype == "bfloat16" else 4, 8 if dtype == "bfloat16" else 4)
    assert code.spills == 0
    assert code.width("STG") == {128: mapping.loads}
    assert code.registers * mapping.threads * mapping.min_blocks <= 65_536


def test_a_long_row_crosses_blocks_by_distributed_shared_memory() -> None:
    mapping = Mapping(vector=4, loads=8, threads=512, threads_per_row=512, cluster=8, prefetch=1)
    code = sass.disassemble(cubin(rows.build("softmax", False, mapping, rows.switches(131_072, mapping))))
    assert code.count("STAS") == 2  # st.async: maximum and sum go to every block of the cluster
    assert code.count("UCGABAR_ARV") == 2  # all meet when they begin and when they end, and at no row between
    assert code.width("LDGSTS").get(128, 0) > 0  # the next row comes by cp.async


def test_ranks_are_constants_beside_the_same_loads_and_stores() -> None:
    plain = Mapping(vector=8, loads=4, threads=128, threads_per_row=128)
    found = [
        sass.disassemble(cubin(rows.build("softmax", True, mapping, rows.switches(4096, mapping))))
        for mapping in (plain, replace(plain, read=1, write=2))
    ]
    assert [code.width("LDG") for code in found] == [code.width("STG") for code in found] == [{128: 4}] * 2
    assert found[0].count("UMOV") < found[1].count("UMOV")  # a policy is a constant in a uniform register


@pytest.mark.parametrize(("read", "first"), [(0, "LDG.E.128"), (1, "LDG.E.EL.128")])
def test_a_row_that_is_read_again_is_the_last_to_leave_until_then(read: int, first: str) -> None:
    mapping = Mapping(vector=8, loads=4, threads=128, threads_per_row=128, reread=4, read=read)
    code = sass.disassemble(cubin(rows.build("softmax", True, mapping, rows.switches(4096, mapping))))
    assert {name: n for name, n in code.instructions.items() if name.startswith("LDG")} == {first: 4, "LDG.E.EF.128": 4}


def test_a_spill_is_seen() -> None:
    # 4 warps cannot hold a 128x128 tile: known to spill, so the gate would catch a kernel that does.
    code = sass.disassemble(stages.triton_builds()["attention-triton, 4 warps"]())
    assert code.spills > 100
    assert code.stack_bytes > 0


def test_triton_attention_is_on_the_tensor_cores_too() -> None:
    code = sass.disassemble(stages.triton_builds()["attention-triton, 8 warps"]())
    assert code.count("HGMMA") == 32
    assert code.spills == 0


def test_a_cubin_is_built_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    build = Build.of(
        "rowwise.cu", "rowwise", OPERATOR=0, BF16=0, VECTOR=4, LOADS=1, THREADS=128, THREADS_PER_ROW=32, CLUSTER=1
    )
    first = cubin(build)
    (kept,) = (tmp_path / "assay" / "cubin").iterdir()
    kept.write_bytes(b"\x7fELF changed")
    assert cubin(build) == b"\x7fELF changed"
    assert first.startswith(b"\x7fELF")


def test_source_that_does_not_compile_is_one_line() -> None:
    with pytest.raises(InputError, match=r"rowwise\.cu does not compile: .*error"):
        cubin(
            Build.of(
                "rowwise.cu",
                "rowwise",
                OPERATOR=0,
                BF16=1,
                VECTOR=8,
                LOADS=1,
                THREADS=96,
                THREADS_PER_ROW=24,
                CLUSTER=1,
            )
        )


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(InputError, match="no cubin"):
        sass.disassemble(b"hello")
    with pytest.raises(InputError, match="does not read"):
        sass.disassemble(b"\x7fELF" + bytes(200))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_backward_of_a_long_row_keeps_its_sums_in_registers(dtype: str) -> None:
    code = sass.disassemble(stages.triton_builds()[f"rmsnorm-backward, {dtype}, 16384"]())
    assert code.registers * 512 <= 65_536
    assert code.spills <= 16  # of 128 registers, outside of the loop over rows
    assert set(code.width("STG")) == {128}
