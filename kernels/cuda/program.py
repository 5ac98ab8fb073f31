"""From CUDA C++ source to a running kernel: NVRTC compiles, the driver launches; both come with torch's own wheels.

No nvcc, no host compiler and no header is needed, so a cubin can be made, and disassembled, on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError, ServiceError

ARCHITECTURE = "sm_90a"
"""Hopper with its architecture-specific instructions (wgmma, setmaxnreg)."""
FOLDER = Path(__file__).parent
_SUCCESS, _INVALID_CONTEXT = 0, 201
_STREAM_OFFSET = 32
"""Bytes from the start of CUlaunchConfig (7 sizes of 4 bytes, then an aligned pointer) to its stream."""


@dataclass(frozen=True)
class Build:
    """One variant of a source file: its macros decide the mapping and which transformations are on."""

    source: str
    """File name beside this module, for example `rowwise.cu`."""
    function: str
    defines: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, source: str, function: str, **defines: int) -> Build:
        """A build with its macros in a canonical order, so that equal variants share one cubin."""
        return cls(source, function, tuple(sorted(defines.items())))


def cubin(build: Build, architecture: str = ARCHITECTURE) -> bytes:
    """Machine code of a build, kept on disk by a digest of source, macros, architecture and compiler version.

    Raises `InputError` with the compiler's first error when the source does not compile.
    """
    text = (FOLDER / build.source).read_text(encoding="utf-8")
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device"]
    options += [f"-D{name}={value}" for name, value in build.defines]
    digest = hashlib.sha256("\0".join([text, *options, str(_nvrtc_version())]).encode()).hexdigest()
    kept = _cache() / f"{digest}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    code = _compile(text, build.source, options)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as partial:
        partial.write(code)
    Path(partial.name).replace(kept)
    return code


def _cache() -> Path:
    root = os.environ.get("ASSAY_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "assay" / "cubin"


@functools.cache
def _nvrtc_version() -> tuple[int, int]:
    nvrtc = _bindings("nvrtc")
    return tuple(_checked(nvrtc.nvrtcVersion(), "nvrtcVersion"))


def _bindings(name: str) -> Any:
    """`cuda.bindings.<name>`, imported late: a machine that never compiles does not need it."""
    import importlib

    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise InputError(
            f"the CUDA kernels need cuda-bindings ({error}): pip install 'cuda-bindings>=12.9'."
        ) from error


def _checked(answer: tuple[Any, ...], call: str) -> Sequence[Any]:
    """The values of a cuda-bindings answer. Raises `ServiceError` for every status but success."""
    status, *values = answer
    if int(status) != _SUCCESS:
        raise ServiceError(f"{call} failed: {getattr(status, 'name', status)}.")
    return values


def _compile(text: str, name: str, options: Sequence[str]) -> bytes:
    nvrtc = _bindings("nvrtc")
    (program,) = _checked(nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []), "nvrtcCreateProgram")
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if int(status) != _SUCCESS:
            (size,) = _checked(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
            log = bytes(size)
            nvrtc.nvrtcGetProgramLog(program, log)
            lines = [line for line in log.decode(errors="replace").splitlines() if "error" in line]
            raise InputError(f"{name} does not compile: {lines[0] if lines else status.name}")
        (size,) = _checked(nvrtc.nvrtcGetCUBINSize(program), "nvrtcGetCUBINSize")
        code = bytes(size)
        _checked(nvrtc.nvrtcGetCUBIN(program, code), "nvrtcGetCUBIN")
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def _library() -> ctypes.CDLL:
    """The driver, whose functions return a status."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise InputError(f"there is no CUDA driver ({error}): run this on a machine with an NVIDIA GPU.") from error


def _enter_context() -> None:
    """Makes the primary context of torch's current device current in this thread, where none is."""
    driver = _bindings("driver")
    (context,) = _checked(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")
    if int(context) == 0:
        import torch

        (device,) = _checked(driver.cuDeviceGet(torch.cuda.current_device()), "cuDeviceGet")
        (context,) = _checked(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")
        _checked(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")


class Launch:
    """A kernel on the current device, with its launch configuration; calling it enqueues one launch.

    Arguments are packed into one buffer that lives as long as the object, so that a call writes them and enqueues,
    nothing more; a lock keeps two threads from writing it at once.
    """

    def __init__(
        self,
        build: Build,
        types: Sequence[type[ctypes.Structure] | type[Any]],
        *,
        threads: int,
        shared: int = 0,
        cluster: int = 1,
    ) -> None:
        driver = _bindings("driver")
        self._driver = driver
        self._lock = threading.Lock()
        self._code = cubin(build)
        _enter_context()
        (module,) = _checked(driver.cuModuleLoadData(self._code), "cuModuleLoadData")
        (self._function,) = _checked(driver.cuModuleGetFunction(module, build.function.encode()), "cuModuleGetFunction")
        attribute = driver.CUfunction_attribute
        if shared:  # the default limit, 48 KB, is for dynamic and static shared memory together
            _checked(
                driver.cuFuncSetAttribute(
                    self._function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared
                ),
                "cuFuncSetAttribute",
            )
        if cluster > 8:
            _checked(
                driver.cuFuncSetAttribute(
                    self._function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1
                ),
                "cuFuncSetAttribute",
            )
        self._slots = [kind() for kind in types]
        self._pointers = (ctypes.c_void_p * len(self._slots))(*(ctypes.addressof(slot) for slot in self._slots))
        self._config = driver.CUlaunchConfig()
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = threads, 1, 1
        self._config.gridDimY = self._config.gridDimZ = 1
        self._config.sharedMemBytes = shared
        if cluster > 1:
            size = driver.CUlaunchAttribute()
            size.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster, 1, 1
            self._config.attrs, self._config.numAttrs = [size], 1
        # Through ctypes, a launch takes 2 us of the host; converting the same structures at every call would take 20.
        self._config_address = ctypes.c_void_p(int(self._config.getPtr()))
        self._sizes = (ctypes.c_uint * 7).from_address(int(self._config.getPtr()))
        self._stream = ctypes.c_void_p.from_address(int(self._config.getPtr()) + _STREAM_OFFSET)
        self._handle = ctypes.c_void_p(int(self._function))
        self._enqueue = _library().cuLaunchKernelEx

    @functools.cached_property
    def capacity(self) -> int:
        """Blocks that the device runs at one time."""
        driver = self._driver
        if self._config.numAttrs:
            cluster = self._config.attrs[0].value.clusterDim.x
            self._config.gridDimX = cluster
            (clusters,) = _checked(
                driver.cuOccupancyMaxActiveClusters(self._function, self._config), "cuOccupancyMaxActiveClusters"
            )
            return int(clusters * cluster)
        threads, shared = self._config.blockDimX, self._config.sharedMemBytes
        (blocks,) = _checked(
            driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self._function, threads, shared),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        )
        (device,) = _checked(driver.cuCtxGetDevice(), "cuCtxGetDevice")
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        (processors,) = _checked(driver.cuDeviceGetAttribute(attribute, device), "cuDeviceGetAttribute")
        return int(blocks * processors)

    def __call__(self, blocks: int, stream: int, *arguments: Any) -> None:
        """Enqueues `blocks` blocks on a stream. Arguments: numbers for ctypes numbers, bytes for structures."""
        with self._lock:
            for slot, argument in zip(self._slots, arguments, strict=True):
                if isinstance(argument, bytes):
                    ctypes.memmove(ctypes.addressof(slot), argument, len(argument))
                else:
                    slot.value = argument
            self._sizes[0] = blocks
            self._stream.value = stream
            status = self._enqueue(self._config_address, self._handle, self._pointers, None)
            if status == _INVALID_CONTEXT:  # the first driver call of a thread that has only used torch's cached memory
                _enter_context()
                status = self._enqueue(self._config_address, self._handle, self._pointers, None)
        if status != _SUCCESS:
            raise ServiceError(f"the kernel was not launched: {self._driver.CUresult(status).name}.")


class TensorMapBytes(ctypes.Structure):
    """A CUtensorMap as a kernel parameter: 128 opaque bytes."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


def tensor_map(address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
    """A TMA descriptor of a bfloat16 tensor, 128-byte swizzle, zeros outside.

    `sizes` and `box` in elements, innermost dimension first; `strides` in bytes, of every dimension but the innermost.
    Raises `ServiceError` when the driver refuses it (an address or stride that is no multiple of 16).
    """
    driver = _bindings("driver")
    u32, u64 = driver.cuuint32_t, driver.cuuint64_t
    rank = len(sizes)
    (encoded,) = _checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            rank,
            address,
            [u64(size) for size in sizes],
            [u64(stride) for stride in strides],
            [u32(size) for size in box],
            [u32(1)] * rank,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        "cuTensorMapEncodeTiled",
    )
    return ctypes.string_at(encoded.getPtr(), 128)


def defines(flags: Mapping[str, bool | int]) -> dict[str, int]:
    """Flags of an ablation as macros: `ping_pong=False` becomes `PING_PONG=0`."""
    return {name.upper(): int(value) for name, value in flags.items()}
