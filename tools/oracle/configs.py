"""Writes tests/golden/configs.json: config.json and generation_config.json as save_pretrained writes them for models made from a config, before
and after the Trainer has aligned them with a tokenizer's special tokens."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from common import GOLDEN, write_json

from transformers import AutoConfig, AutoModelForCausalLM
from transformers.trainer_utils import align_special_tokens

SMALL = dict(hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4, vocab_size=64)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192, rope_type="llama3")
SHARED = dict(return_dict=True, output_hidden_states=False, chunk_size_feed_forward=2, _name_or_path="some/name", problem_type=None)
INPUTS = {
    "llama": dict(model_type="llama", **SMALL),
    "llama_v4": dict(
        model_type="llama", **SMALL, **SHARED, torch_dtype="bfloat16", transformers_version="4.40.0", num_key_value_heads=2,
        rope_scaling=None, rope_theta=500000.0, architectures=["LlamaForCausalLM"], pretraining_tp=1, use_cache=True,
        temperature=0.6, top_p=0.9,
    ),
    "llama3": dict(
        model_type="llama", **SMALL, rope_theta=500000.0, rope_scaling=LLAMA3, eos_token_id=[3, 4], bos_token_id=5, pad_token_id=0,
        max_position_embeddings=131072, tie_word_embeddings=True,
    ),
    "llama_linear": dict(
        model_type="llama", **SMALL, rope_scaling=dict(type="linear", factor=2.0), bos_token_id=None, eos_token_id=None,
        head_dim=16, num_key_value_heads=None, use_cache=False, my_key={"b": [1, None], "a": 1e-05},
    ),
    "llama_v5": dict(
        model_type="llama", **SMALL, rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=20000.0,
        original_max_position_embeddings=64), max_position_embeddings=256, attention_bias=True,
    ),
    "mixtral": dict(model_type="mixtral", num_local_experts=2, num_key_value_heads=2, **SMALL),
    "mixtral_v4": dict(
        model_type="mixtral", **SMALL, num_local_experts=4, num_key_value_heads=4, rope_theta=1000000.0, sliding_window=None,
        torch_dtype="float32", output_router_logits=True, router_aux_loss_coef=0.02, transformers_version="4.36.0.dev0",
        max_position_embeddings=32768, attention_dropout=0.0, rms_norm_eps=1e-05, head_dim=8,
    ),
    "mistral": dict(model_type="mistral", num_key_value_heads=2, **SMALL),
    "mistral_v4": dict(
        model_type="mistral", **SMALL, num_key_value_heads=4, rope_theta=1000000.0, sliding_window=None, torch_dtype="bfloat16",
        max_position_embeddings=32768, rms_norm_eps=1e-05, transformers_version="4.42.0.dev0",
    ),
    "qwen2": dict(model_type="qwen2", num_key_value_heads=2, **SMALL),
    "qwen2_v4": dict(
        model_type="qwen2", **SMALL, num_key_value_heads=4, rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False,
        max_window_layers=28, torch_dtype="bfloat16", bos_token_id=5, eos_token_id=6, tie_word_embeddings=True,
        attention_dropout=0.0, use_mrope=False, transformers_version="4.43.1",
    ),
    "qwen2_windows": dict(
        model_type="qwen2", **SMALL | dict(num_hidden_layers=3), num_key_value_heads=None, use_sliding_window=True,
        sliding_window=16, max_window_layers=1,
    ),
    "qwen3": dict(model_type="qwen3", num_key_value_heads=2, **SMALL),
    "qwen3_v4": dict(
        model_type="qwen3", **SMALL, num_key_value_heads=4, head_dim=16, rope_theta=1000000, rope_scaling=None, sliding_window=None,
        use_sliding_window=False, max_window_layers=36, attention_bias=False, torch_dtype="bfloat16", bos_token_id=5,
        eos_token_id=6, tie_word_embeddings=True, transformers_version="4.51.0",
    ),
}
TOKENIZERS = [dict(bos=1, eos=2, pad=None), dict(bos=1, eos=2, pad=7), dict(bos=None, eos=9, pad=9), dict(bos=5, eos=4, pad=0)]


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return {name: (Path(folder) / f"{name}.json").read_text() for name in ["config", "generation_config"]}


def made(config):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))


def main():
    cases = []
    for name, config in INPUTS.items():
        model = made(config)
        case = {"name": name, "input": config, "dtype": str(model.dtype).removeprefix("torch."), **saved(model), "aligned": []}
        for tokens in TOKENIZERS:
            model = made(config)
            ids = {f"{key}_token_id": value for key, value in tokens.items()}
            align_special_tokens(model, SimpleNamespace(**ids))
            case["aligned"].append({"tokens": tokens, **saved(model)})
        cases.append(case)
    write_json(GOLDEN / "configs.json", cases)


if __name__ == "__main__":
    main()
