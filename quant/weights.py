"""Weights, configuration and tokenizer of a checkpoint, loaded for lm-eval."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError
from assay.quant.checkpoint import Checkpoint

DTYPES = ("auto", "float32", "bfloat16", "float16")


def open_checkpoint(folder: Path) -> tuple[Any, Any]:
    """Configuration and tokenizer."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        return config, transformers.AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{folder} has no readable configuration and tokenizer ({reason}): save both into the checkpoint's folder."
        ) from error


def default_dtype(config: Any, checkpoint: Checkpoint) -> str:
    declared = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    name = str(declared).removeprefix("torch.") if declared is not None else checkpoint.format
    return name if name in DTYPES[1:] else "float32"


def default_max_length(config: Any, tokenizer: Any) -> int:
    from lm_eval.models.utils import resolve_max_length

    return int(resolve_max_length(config, tokenizer))


def load_model(
    folder: Path, tokenizer: Any, *, dtype: str, max_length: int, batch_size: int, device: str | None, seed: int
) -> Any:
    """The harness's model object around weights that were checked to be complete.

    transformers fills tensors that a checkpoint lacks with random numbers and only warns; such a model must not score.
    """
    import torch
    import transformers
    from lm_eval.models.huggingface import HFLM

    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    config = transformers.AutoConfig.from_pretrained(folder)
    family = (
        transformers.AutoModelForSeq2SeqLM
        if getattr(config, "is_encoder_decoder", False)
        else transformers.AutoModelForCausalLM
    )
    torch.manual_seed(seed)
    with _quiet():
        try:
            loaded: Any = family.from_pretrained(folder, dtype=getattr(torch, dtype), output_loading_info=True)
            model, report = loaded
            if getattr(model, "quantization_method", None) is None:
                model = model.to(place)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise InputError(
                f"the weights in {folder} cannot be loaded ({reason}): check the files, --dtype and --device."
            ) from error
        missing = sorted(report.get("missing_keys", ()))
        mismatched = sorted(str(key) for key in report.get("mismatched_keys", ()))
        if missing or mismatched:
            first = (missing or mismatched)[0]
            raise InputError(
                f"the checkpoint in {folder} lacks {len(missing) + len(mismatched)} tensors, first {first}: they would"
                " be random; save it whole."
            )
        return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size, max_length=max_length)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' chatter below errors while a model loads."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "transformers")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
