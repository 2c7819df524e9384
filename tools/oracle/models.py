"""The tiny models that several scripts share."""

import copy

from common import DTYPES

from transformers import LlamaConfig, LlamaForCausalLM, set_seed


def llama(**changes):
    """A Llama config.json as an object; the sizes of the published tiny runs unless changed."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    return config | changes


def build_llama(config, dtype, seed=0):
    """A LlamaForCausalLM with eager attention, built from scratch in float32 and with its parameters cast to `dtype`.

    Only parameters are cast: `model.to(dtype)` would also round the rotary frequencies, which loading a bf16 model
    keeps in float32.
    """
    set_seed(seed)
    model = LlamaForCausalLM._from_config(LlamaConfig.from_dict(copy.deepcopy(config)), attn_implementation="eager")
    for parameter in model.parameters():
        parameter.data = parameter.data.to(DTYPES[dtype])
    return model
