"""Writes tests/golden/step/<model>_<dtype>.safetensors: loss, logits and every gradient of one step of a dense model."""

from common import DTYPES, GOLDEN, generator, write_tensors
from models import build_model, llama, mistral, qwen2, qwen3

import torch

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,  # short, so that some frequencies are scaled and some interpolated
}
GQA = llama(vocab_size=97, rms_norm_eps=1e-5)
MODELS = {
    "mha": llama(vocab_size=96, num_key_value_heads=4, intermediate_size=52),
    "gqa": GQA,
    "tied_llama3": llama(
        vocab_size=131, hidden_size=48, tie_word_embeddings=True, rope_scaling=LLAMA3, rope_theta=500.0
    ),
    "biases_odd_head_dim": llama(
        vocab_size=96, hidden_size=40, head_dim=12, intermediate_size=56, attention_bias=True, mlp_bias=True
    ),
    "gqa_padded": GQA,
    "mistral": mistral(vocab_size=96, sliding_window=7, head_dim=12),
    "qwen2": qwen2(vocab_size=97, tie_word_embeddings=True),
    "qwen2_windows": qwen2(num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3": qwen3(vocab_size=96),
    "qwen3_biases_padded": qwen3(vocab_size=97, attention_bias=True, head_dim=8, num_key_value_heads=1),
}
BATCH, LENGTH = 2, 24


def fill(model, source):
    """Weights that make every gradient large enough to compare; attention is not flat, and its values differ."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=source)
        if "norm" in name:
            value = 1 + 0.1 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        elif "q_proj" in name or "k_proj" in name or "v_proj" in name:
            value = 0.2 * noise
        else:
            value = 0.05 * noise
        parameter.data = value.to(parameter.dtype)


def batch(vocab_size, padded, source):
    input_ids = torch.randint(0, vocab_size, (BATCH, LENGTH), generator=source)
    labels = input_ids.clone()
    labels[0, 3:7] = -100
    labels[1, -1] = -100
    if not padded:
        return {"input_ids": input_ids, "labels": labels}
    mask = torch.ones_like(input_ids)
    mask[1, 15:] = 0
    input_ids[mask == 0] = 0
    labels[mask == 0] = -100
    return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}


def main():
    for seed, (name, config) in enumerate(MODELS.items()):
        for dtype in DTYPES:
            source = generator(2000 + seed)
            model = build_model(config, dtype)
            fill(model, source)
            inputs = batch(config["vocab_size"], name.endswith("padded"), source)
            output = model(**inputs)
            output.loss.backward()
            tensors = {key: tensor.int() for key, tensor in inputs.items()}
            tensors |= {"loss": output.loss.float(), "logits": output.logits.float()}
            for key, parameter in model.named_parameters():
                tensors |= {f"weight.{key}": parameter, f"grad.{key}": parameter.grad}
            write_tensors(GOLDEN / "step" / f"{name}_{dtype}.safetensors", tensors, config=config, dtype=dtype)


if __name__ == "__main__":
    main()
