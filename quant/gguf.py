"""A GGUF file as a checkpoint of floating-point weights, which any harness can evaluate and any method can quantize."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from pathlib import Path

from assay.baselines.errors import InputError


def rebuild_checkpoint(gguf: Path, out: Path, *, dtype: str = "float32") -> Path:
    """Write the model and tokenizer of a GGUF file to the folder `out`, its weights dequantized to `dtype`.

    transformers reads a GGUF file and then refuses to save the model, because its configuration still says that it is
    quantized; a model of the same configuration without that entry takes the weights over. An `out` that is there is
    returned as it is; a new one appears whole. Raises `InputError` for what is not a readable GGUF file.
    """
    gguf, out = Path(gguf), Path(out)
    if (out / "config.json").is_file():
        return out
    if importlib.util.find_spec("gguf") is None:
        raise InputError("reading GGUF needs the gguf package: pip install gguf.")
    if not gguf.is_file() or gguf.open("rb").read(4) != b"GGUF":
        raise InputError(f"{gguf} is not a GGUF file: give the .gguf itself.")
    import torch
    import transformers

    try:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=getattr(torch, dtype)
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{gguf} cannot be read ({type(error).__name__}: {reason}): transformers may not know its architecture."
        ) from error
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = getattr(torch, dtype)
    model = type(loaded)(config).to(getattr(torch, dtype))
    model.load_state_dict(loaded.state_dict())
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        staging.chmod(0o755)
        staging.rename(out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return out


def main() -> None:
    """`python -m assay.quant.gguf FILE OUT [--dtype bfloat16]`: rebuild a checkpoint."""
    parser = argparse.ArgumentParser(description="Write a GGUF file as a checkpoint of floating-point weights.")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    options = parser.parse_args()
    try:
        print(rebuild_checkpoint(options.gguf, options.out, dtype=options.dtype))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
