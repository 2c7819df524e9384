"""Causal language models, under the names of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from drover._native import native
from drover.tokenizer import Tokenizer


def _dtype_name(dtype: Any) -> str:
    """Also of torch.bfloat16 and the like."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


class CausalLM:
    """A causal language model. ``AutoModelForCausalLM.from_pretrained`` makes one.

    Weights are read when they are needed. A Trainer trains the model in place: from then on it has the
    trained weights."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def from_pretrained(cls, model_id: str, *, torch_dtype: Any = "float32") -> CausalLM:
        """A folder, or a repository in the Hugging Face cache. ``torch_dtype`` is ``"float32"``,
        ``"bfloat16"`` or ``"auto"`` (as stored); torch's own dtypes are understood too."""
        return cls(native.load_model(str(model_id), _dtype_name(torch_dtype)))

    @classmethod
    def from_config(cls, config: Any, *, torch_dtype: Any = "float32", seed: int = 42) -> CausalLM:
        """A model with random weights: those that ``drover run_clm --config_name`` and transformers draw for
        this seed. ``config`` is a config.json, a folder that holds one, a repository in the Hugging Face
        cache, or the config itself as a dict. ``torch_dtype="auto"``: as the config says."""
        text = json.dumps(config) if isinstance(config, Mapping) else str(config)
        return cls(native.new_model(text, _dtype_name(torch_dtype), seed))

    @property
    def model_type(self) -> str:
        return native.model_type(self._handle)

    @property
    def vocab_size(self) -> int:
        return native.model_vocabulary_size(self._handle)

    def num_parameters(self) -> int:
        return native.parameter_count(self._handle)

    def generate(
        self,
        tokenizer: Tokenizer,
        prompt: str,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 42,
    ) -> str:
        """The text that follows the prompt. ``temperature=0`` always takes the likeliest token, ``top_k=0``
        considers all. If several processes have trained the model and none has all of its weights, all of
        them must call this together."""
        return native.generate(
            self._handle, tokenizer._handle, prompt, max_new_tokens, temperature, top_k, top_p, seed
        )

    def save_pretrained(self, save_directory: str) -> None:
        """Saves weights, config and generation config, for from_pretrained() here and in transformers;
        ``Trainer.save_model()`` also saves the tokenizer. Processes that must call generate() together must
        do so here as well; one of them writes."""
        native.save_pretrained(self._handle, str(save_directory))


class AutoModelForCausalLM:
    """Makes models."""

    @staticmethod
    def from_pretrained(model_id: str, *, torch_dtype: Any = "float32") -> CausalLM:
        """A folder, or a repository in the Hugging Face cache. ``torch_dtype`` is ``"float32"``,
        ``"bfloat16"`` or ``"auto"`` (as stored); torch's own dtypes are understood too."""
        return CausalLM.from_pretrained(model_id, torch_dtype=torch_dtype)

    @staticmethod
    def from_config(config: Any, *, torch_dtype: Any = "float32", seed: int = 42) -> CausalLM:
        """A model with random weights, of the shape that a config.json or a dict describes; see
        ``CausalLM.from_config``."""
        return CausalLM.from_config(config, torch_dtype=torch_dtype, seed=seed)
