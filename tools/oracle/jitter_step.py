"""Writes tests/golden/step/mixtral_jitter_float32.safetensors: one Mixtral step with router_jitter_noise, whose noise is
Drover's: transformers draws its own from the device's generator, so the draw is replaced and all the rest is its code."""

from unittest import mock

from common import GOLDEN, write_tensors
from mixtral_step import AUX, prepare
from models import RouterRecord, mixtral, published_names

import torch

JITTER = 0.1
NOISE_SEED = 42
STEP = 1
MASK64 = (1 << 64) - 1
CASE_SEED = 1203  # of mixtral_step's aux_top2, whose weights and batch these are


def philox4x32(counter, key):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def mixed(value, number):
    """SplitMix64's finaliser of `value` plus an odd multiple of `number` + 1."""
    x = (value + (number + 1) * 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def name_hash(name):
    """64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def uniforms(layer, count):
    """Of micro-batch 0: in [0, 1), multiples of 2^-24, one per element of [tokens, H]."""
    leaf = mixed(mixed(name_hash("router_jitter_noise"), layer), 0)
    stream = mixed(leaf, STEP)
    words = []
    for block in range((count + 3) // 4):
        words += philox4x32((block, 0, stream & 0xFFFFFFFF, stream >> 32), NOISE_SEED)
    return torch.tensor([(word & 0xFFFFFF) / 2**24 for word in words[:count]], dtype=torch.float64)


def main():
    config = mixtral(intermediate_size=24, **AUX, router_jitter_noise=JITTER)
    model, inputs = prepare("aux_top2", CASE_SEED, config, "float32")
    model.train()
    layers = iter(range(config["num_hidden_layers"]))

    def noise(tensor, low, high):
        drawn = uniforms(next(layers), tensor.numel()) * (high - low) + low
        return tensor.copy_(drawn.view_as(tensor))

    with mock.patch.object(torch.Tensor, "uniform_", noise), RouterRecord(model) as record:
        output = model(**inputs)
    output.loss.backward()
    top_k = config["num_experts_per_tok"]
    margin = record.margin(top_k, torch.ones(inputs["input_ids"].numel(), dtype=torch.bool))
    assert margin > 1e-3, f"margin {margin}"
    gradients = published_names({key: parameter.grad for key, parameter in model.named_parameters()})
    tensors = {"loss": output.loss.float()} | {
        f"grad.{key}": tensor for key, tensor in gradients.items() if ".experts." not in key or ".experts.0." in key
    }
    write_tensors(GOLDEN / "step" / "mixtral_jitter_float32.safetensors", tensors, config=config, margin=margin)


if __name__ == "__main__":
    main()
