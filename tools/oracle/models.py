"""The tiny models that several scripts share."""

import copy

from common import DTYPES

import torch
from transformers import AutoConfig, AutoModelForCausalLM, set_seed


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


def mixtral(**changes):
    """A Mixtral config.json as an object, with the sizes of `llama()` unless changed."""
    config = llama(
        architectures=["MixtralForCausalLM"],
        model_type="mixtral",
        num_local_experts=4,
        num_experts_per_tok=2,
        rms_norm_eps=1e-5,
        rope_theta=1000000.0,
    )
    for key in ["attention_bias", "mlp_bias"]:
        del config[key]
    return config | changes


def mistral(**changes):
    """A Mistral config.json as an object, with the sizes of `llama()` unless changed."""
    config = llama(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None)
    for key in ["attention_bias", "mlp_bias"]:
        del config[key]
    return config | changes


def qwen2(**changes):
    """A Qwen2 config.json as an object, with the sizes of `llama()` unless changed."""
    config = llama(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False, bos_token_id=None, eos_token_id=2
    )
    for key in ["attention_bias", "mlp_bias"]:
        del config[key]
    return config | changes


def qwen3(**changes):
    """A Qwen3 config.json as an object, with the sizes of `llama()` unless changed."""
    return qwen2(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=12, attention_bias=False) | changes


def config_object(config):
    """transformers' config of a config.json."""
    return AutoConfig.for_model(**copy.deepcopy(config))


def build_model(config, dtype, seed=0):
    """A causal LM with eager attention, built from scratch in float32 and with its parameters cast to `dtype`.

    Only parameters are cast: `model.to(dtype)` would also round the rotary frequencies, which loading a bf16 model
    keeps in float32.
    """
    set_seed(seed)
    model = AutoModelForCausalLM.from_config(config_object(config), attn_implementation="eager")
    for parameter in model.parameters():
        parameter.data = parameter.data.to(DTYPES[dtype])
    return model


def published_names(tensors):
    """`tensors` (a mapping by parameter name) under the published names: views, with fused experts cut apart."""
    published = {}
    for name, tensor in tensors.items():
        layer, _, leaf = name.partition(".mlp.")
        block = f"{layer}.block_sparse_moe"
        if leaf == "gate.weight":
            published[f"{block}.{leaf}"] = tensor
        elif leaf == "experts.gate_up_proj":
            for index, gate_up in enumerate(tensor):
                gate, up = gate_up.chunk(2)
                published[f"{block}.experts.{index}.w1.weight"] = gate
                published[f"{block}.experts.{index}.w3.weight"] = up
        elif leaf == "experts.down_proj":
            for index, down in enumerate(tensor):
                published[f"{block}.experts.{index}.w2.weight"] = down
        else:
            published[name] = tensor
    return published


class RouterRecord:
    """Collects the router logits of a model inside a `with`: `logits` holds one [N,E] per Mixtral layer and pass."""

    def __init__(self, model):
        self.routers = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
        self.logits = []

    def __enter__(self):
        self.hooks = [router.register_forward_hook(self.keep) for router in self.routers]
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()

    def keep(self, _, __, output):
        self.logits.append(output[0].detach())

    def margin(self, top_k, kept=slice(None)):
        """The smallest difference between the last chosen and the first rejected expert's logit over `kept` rows."""
        ranked = torch.cat([logits[kept] for logits in self.logits]).sort(dim=-1, descending=True).values
        return (ranked[:, top_k - 1] - ranked[:, top_k]).min().item()
