"""Models that need no file: those of torchvision by name, and Hugging Face configurations, both at random weights."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import one_line
from assay.npu_backend.declaration import Declaration

IMAGE = 224
SEQUENCE = 128
VIDEO = (3, 16, 112, 112)


def torchvision_model(name: str, *, dtype: str = "float32", precision: str = "", training: bool = False) -> Declaration:
    """A model of torchvision by its name in `torchvision.models.list_models()`, at batch 1.

    Images are 3 x 224 x 224 (299 for inception_v3), videos 3 x 16 x 112 x 112. Raises `InputError` for a name that is none.
    """
    try:
        from torchvision import models
    except ImportError:
        raise InputError("--torchvision needs torchvision, which is not installed: pip install torchvision.") from None
    known = models.list_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "torchvision.models.list_models() has the names."
        raise InputError(f"torchvision has no model {name[:60]!r}: {hint}")
    video = name in models.list_models(models.video)
    shape = (1, *VIDEO) if video else (1, 3, *(2 * (299 if name == "inception_v3" else IMAGE,)))

    def make() -> torch.nn.Module:
        options: dict[str, Any] = {"weights": None}
        if name in models.list_models(models.detection) or name in models.list_models(models.segmentation):
            options["weights_backbone"] = None
        if name in ("googlenet", "inception_v3"):
            options["init_weights"] = False
        model: torch.nn.Module = models.get_model(name, **options)
        return model

    return Declaration(name, make, lambda: torch.zeros(shape), dtype, precision, training)


def hugging_face_model(
    source: str, *, dtype: str = "float32", precision: str = "", training: bool = False
) -> Declaration:
    """The model of a Hugging Face configuration: a folder with config.json, or the name of one on the hub.

    Batch 1: 128 tokens for text, the configured picture for vision, both sides for encoders with decoders, one window of sound
    for speech. Raises `InputError` when there is no such configuration.
    """
    try:
        from transformers import AutoConfig
    except ImportError:
        raise InputError("--hf needs transformers, which is not installed: pip install transformers.") from None
    folder = Path(source)
    if folder.exists() and not (folder / "config.json").is_file():
        raise InputError(f"--hf {source} has no config.json: give the folder of a Hugging Face model.")
    try:
        config = AutoConfig.from_pretrained(source)
    except Exception as error:
        raise InputError(_no_configuration(source, error)) from error
    config.use_cache = False
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in (folder.name if folder.exists() else source))
    name = name.strip("._-")[-64:] or str(config.model_type)
    return Declaration(name, lambda: _Plain(config), _inputs_of(config), dtype, precision, training)


def _no_configuration(source: str, error: BaseException) -> str:
    """Why there is no configuration, in a line: what was looked for, and what to do."""
    shown = source[:100]
    if Path(source).exists():
        first = one_line(error).split(". ")[0][:200].rstrip(".")  # transformers goes on to list every model it has
        return f"--hf {shown}: its config.json is not one that transformers reads ({first}): mend it."
    chain: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and len(chain) < 20:
        chain.append(here)
        here = here.__cause__ or here.__context__
    names = {type(e).__name__ for e in chain}
    why = next((words for name, words in _HUB if name in names), "nor does the hub give one")
    return f"there is no folder {shown} with a config.json, {why}: check the name, or give the folder of a model."


_HUB = (
    ("GatedRepoError", "and the hub gives the model of this name to approved accounts alone"),
    ("RepositoryNotFoundError", "and the hub has no model of this name that may be read"),
    ("EntryNotFoundError", "and the hub's model of this name has none"),
    ("HFValidationError", "and this cannot be a name on the hub"),
    ("LocalEntryNotFoundError", "and the hub cannot be reached"),
    ("ConnectionError", "and the hub cannot be reached"),
    ("ConnectError", "and the hub cannot be reached"),
)
"""Errors of huggingface_hub, by name, and what each means; those that others are raised from come first."""


class _Plain(torch.nn.Module):
    """A Hugging Face model that returns tensors alone, in the order of its output class."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        from transformers import AutoModel, AutoModelForCausalLM

        # A decoder's head is most of its last step; encoders and vision models are compiled without one.
        causal = any(str(a).endswith("ForCausalLM") for a in config.architectures or ())
        maker: Any = AutoModelForCausalLM if causal else AutoModel
        self.model = maker.from_config(config)

    def forward(self, **arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**arguments, return_dict=True)
        return tuple(value for value in found.values() if isinstance(value, torch.Tensor))


def _inputs_of(config: Any) -> Callable[[], dict[str, torch.Tensor]]:
    def tokens() -> torch.Tensor:
        longest = getattr(config, "max_position_embeddings", None) or SEQUENCE
        return torch.zeros(1, min(SEQUENCE, int(longest)), dtype=torch.int64)

    def make() -> dict[str, torch.Tensor]:
        if getattr(config, "num_mel_bins", None) and getattr(config, "max_source_positions", None):  # Whisper
            sound = torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions)
            return {"input_features": sound, "decoder_input_ids": torch.zeros(1, 1, dtype=torch.int64)}
        if getattr(config, "image_size", None) and not getattr(config, "vocab_size", None):
            sizes = config.image_size if isinstance(config.image_size, list | tuple) else 2 * [config.image_size]
            return {"pixel_values": torch.zeros(1, getattr(config, "num_channels", 3), *sizes)}
        if getattr(config, "is_encoder_decoder", False):
            return {"input_ids": tokens(), "decoder_input_ids": torch.zeros(1, 1, dtype=torch.int64)}
        if getattr(config, "vocab_size", None):
            return {"input_ids": tokens()}
        raise InputError(
            f"assay does not know the arguments of a {config.model_type} model: declare them in a file (docs/compile.md)."
        )

    return make
