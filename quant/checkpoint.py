"""A checkpoint: where its files are, what they contain, in which format the weights are."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.baselines.content import digest_file, digest_path
from assay.baselines.errors import InputError, ServiceError

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I8": "int8",
    "U8": "uint8",
    "I32": "int32",
    "F8_E4M3": "float8",
}
_HEADER_LIMIT = 100 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine."""

    name: str
    """As the user gave it: a folder or a hub id."""
    folder: Path
    digest: str
    """`sha256:` over names and contents of its files."""
    format: str
    """Weight format, for example `float32`, `bfloat16`, `gptq-int4-g128`."""
    weight_bytes: int
    """Size of the weight files."""


def locate(name: str, *, revision: str = "main", weight_format: str = "") -> Checkpoint:
    """The checkpoint in a local folder, or of a hub id after its files were downloaded to the Hugging Face cache.

    `weight_format` overrides what the files say, for weights that were quantized and stored as floats. Raises
    `InputError` for what is no checkpoint, `ServiceError` when the hub cannot be reached.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _describe(name, folder, digest_path(folder), weight_format)
    if folder.exists():
        raise InputError(f"{name} is a file: give the folder of a checkpoint, with config.json and its weights.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not HUB_ID.match(name):
        raise InputError(f"{name} does not exist: give the folder of a checkpoint, or a hub id such as owner/model.")
    folder = _download(name, revision)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _wanted(path.name))
    hasher = hashlib.sha256()
    for path in files:
        hasher.update(f"{path.relative_to(folder).as_posix()}\0{digest_file(path)}\n".encode())
    return _describe(name, folder, f"sha256:{hasher.hexdigest()}", weight_format)


def _describe(name: str, folder: Path, digest: str, weight_format: str) -> Checkpoint:
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} has no config.json, so it is no Hugging Face checkpoint: save the model with save_pretrained."
        )
    weights = [path for path in folder.rglob("*") if path.suffix in WEIGHTS and path.is_file()]
    if not weights:
        raise InputError(f"{folder} has no weight files ({', '.join(WEIGHTS)}): is the download complete?")
    return Checkpoint(
        name, folder, digest, weight_format or _format(folder, weights), sum(path.stat().st_size for path in weights)
    )


def _format(folder: Path, weights: list[Path]) -> str:
    config = read_config(folder)
    quantization = config.get("quantization_config") or {}
    if isinstance(quantization, dict) and quantization:
        method = str(quantization.get("quant_method", "quantized"))
        bits = quantization.get("bits") or (
            4 if quantization.get("load_in_4bit") else 8 if quantization.get("load_in_8bit") else None
        )
        group = quantization.get("group_size")
        return "-".join(
            [
                method,
                *([f"int{bits}"] if bits else []),
                *([f"g{group}"] if isinstance(group, int) and group > 0 else []),
            ]
        )
    counted: Counter[str] = Counter()
    for path in weights:
        if path.suffix == ".safetensors":
            counted.update(_tensor_bytes(path))
    if counted:
        dtype = counted.most_common(1)[0][0]
        return _DTYPES.get(dtype, dtype.lower())
    return str(config.get("dtype") or config.get("torch_dtype") or "")


def read_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's config.json."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{folder / 'config.json'} is not readable JSON ({' '.join(str(error).split())[:100]}): save the checkpoint"
            " again."
        ) from None
    if not isinstance(config, dict):
        raise InputError(f"{folder / 'config.json'} is not a JSON object: save the checkpoint again.")
    return config


def _tensor_bytes(path: Path) -> Counter[str]:
    """Bytes by dtype from a safetensors header (8 bytes little-endian length, then JSON)."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _HEADER_LIMIT:
                raise ValueError("header too long")
            header = json.loads(stream.read(length))
        sizes: Counter[str] = Counter()
        for key, entry in header.items():
            if key != "__metadata__":
                sizes[str(entry["dtype"])] += int(entry["data_offsets"][1]) - int(entry["data_offsets"][0])
    except (OSError, ValueError, struct.error, KeyError, TypeError, IndexError, AttributeError):
        raise InputError(
            f"{path} is not a readable safetensors file: it is truncated or changed; copy or save it again."
        ) from None
    return sizes


def _wanted(name: str) -> bool:
    return name.endswith((*WEIGHTS, ".json", ".model", ".txt", ".jinja", ".tiktoken")) and not name.startswith(".")


def _download(name: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    patterns = ["*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.safetensors"]
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        if not any(folder.rglob("*.safetensors")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns, "*.bin"]))
    except GatedRepoError:
        raise InputError(f"{name} is gated: accept its licence on the hub and set HF_TOKEN.") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise InputError(
            f"there is no folder {name} here and no model of that name on the hub: check the name, or set HF_TOKEN if"
            " it is private."
        ) from None
    except RevisionNotFoundError:
        raise InputError(
            f"{name} has no revision {revision!r} on the hub: give a branch, tag or commit of it."
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ServiceError(
            f"there is no folder {name} here, and the hub could not be reached to download it ({reason}): check the"
            " path, or the connection."
        ) from None
    return folder
