"""Writes tests/golden/rope.json: rotary inverse frequencies and attention factors for every kind of scaling."""

import copy

from common import GOLDEN, write_json

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SIZES = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4}
LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA32 = LLAMA31 | {"factor": 32.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
YARN_TUNED = YARN | {"factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 0.707, "mscale_all_dim": 1.0}

# name, head_dim, max positions, theta, scaling, sequence lengths to run
CASES = [
    ("default", None, 2048, 10000.0, None, [None]),
    ("default_head_dim", 12, 2048, 500000.0, {"rope_type": "default"}, [None]),
    ("linear", None, 2048, 10000.0, {"rope_type": "linear", "factor": 2.5}, [None]),
    ("dynamic", None, 128, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, [None, 64, 128, 129, 500]),
    ("llama3_1", 128, 131072, 500000.0, LLAMA31, [None]),
    ("llama3_2", 64, 131072, 500000.0, LLAMA32, [None]),
    ("yarn", 128, 2048, 10000.0, YARN, [None]),
    ("yarn_tuned", 64, 4096, 1000000.0, YARN_TUNED, [None]),
    ("yarn_attention_factor", 64, 2048, 10000.0, YARN | {"attention_factor": 1.25, "truncate": False}, [None]),
]


def configs(head_dim, max_positions, theta, scaling):
    """The same model as older (rope_theta + rope_scaling, also with the key `type`) and newer config.json."""
    base = SIZES | {"max_position_embeddings": max_positions} | ({"head_dim": head_dim} if head_dim else {})
    yield "v4", base | {"rope_theta": theta, "rope_scaling": scaling}
    if scaling and scaling["rope_type"] != "llama3":
        renamed = {"type" if key == "rope_type" else key: value for key, value in scaling.items()}
        yield "v4_type", base | {"rope_theta": theta, "rope_scaling": renamed}
    yield "v5", base | {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | (scaling or {})}


def run(config, sequence_length):
    rotary = LlamaRotaryEmbedding(LlamaConfig.from_dict(copy.deepcopy(config)))
    if sequence_length is not None:
        rotary(torch.zeros(1), torch.arange(sequence_length)[None])
    return rotary


def main():
    cases = []
    for name, head_dim, max_positions, theta, scaling, lengths in CASES:
        for style, config in configs(head_dim, max_positions, theta, scaling):
            for length in lengths:
                rotary = run(config, length)
                cases.append(
                    {
                        "name": "_".join([name, style] + ([f"length{length}"] if length else [])),
                        "config": config,
                        "sequence_length": length,
                        "head_dim": head_dim or SIZES["hidden_size"] // SIZES["num_attention_heads"],
                        "rope_type": rotary.rope_type,
                        "inv_freq": rotary.inv_freq.tolist(),
                        "attention_factor": float(rotary.attention_scaling),
                    }
                )
    write_json(GOLDEN / "rope.json", {"cases": cases})


if __name__ == "__main__":
    main()
