"""Writes tests/golden/step/smoothed.safetensors: losses and gradients of one step with transformers' LabelSmoother, for models, weights and
batches of tests/golden/step; and tests/golden/step/neftune_float32.safetensors: one with NEFTune's hook, whose noise is Drover's."""

import math
from unittest import mock

from common import GOLDEN, write_tensors
from jitter_step import MASK64, NOISE_SEED, STEP, mixed, name_hash, philox4x32
from models import build_model, published_names
from safetensors import safe_open

import json
import torch
from transformers.integrations.neftune import neftune_post_forward_hook
from transformers.trainer_pt_utils import LabelSmoother

EPSILON = 0.1
ALPHA = 5.0
MODELS = ["gqa", "gqa_padded", "tied_llama3", "mixtral_aux_top2"]
KEPT = ["model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]


def load(name):
    """The model and the inputs of a golden step."""
    with safe_open(GOLDEN / "step" / f"{name}_float32.safetensors", "pt") as file:
        config = json.loads(file.metadata()["config"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    model = build_model(config, "float32")
    for key, parameter in published_names(dict(model.named_parameters())).items():
        parameter.data.copy_(tensors[f"weight.{key}"])
    inputs = {key: tensors[key].long() for key in ["input_ids", "labels", "attention_mask"] if key in tensors}
    return model.train(), inputs


def gradients(model):
    found = published_names({key: parameter.grad for key, parameter in model.named_parameters()})
    return {key: tensor for key, tensor in found.items() if key in KEPT}


def uniforms(count):
    """Of micro-batch 0: in [0, 1), multiples of 2^-24, one per element of [tokens, H]."""
    stream = mixed(mixed(name_hash("neftune_noise"), 0), STEP) & MASK64
    words = []
    for block in range((count + 3) // 4):
        words += philox4x32((block, 0, stream & 0xFFFFFFFF, stream >> 32), NOISE_SEED)
    return torch.tensor([(word & 0xFFFFFF) / 2**24 for word in words[:count]], dtype=torch.float64)


def smoothed():
    tensors = {}
    for name in MODELS:
        model, inputs = load(name)
        labels = inputs.pop("labels")
        targets = labels[..., 1:].ne(-100).sum()
        loss = LabelSmoother(epsilon=EPSILON)(model(**inputs), labels, shift_labels=True, num_items_in_batch=targets)
        loss.backward()
        tensors[f"{name}.loss"] = loss
        tensors |= {f"{name}.grad.{key}": tensor for key, tensor in gradients(model).items()}
    write_tensors(GOLDEN / "step" / "smoothed.safetensors", tensors, epsilon=EPSILON)


def neftune():
    model, inputs = load("gqa")
    embedding = model.get_input_embeddings()
    embedding.neftune_noise_alpha = ALPHA
    embedding.register_forward_hook(neftune_post_forward_hook)

    def noise(tensor, low, high):
        drawn = uniforms(tensor.numel()) * (float(high) - float(low)) + float(low)
        return tensor.copy_(drawn.view_as(tensor))

    with mock.patch.object(torch.Tensor, "uniform_", noise):
        loss = model(**inputs).loss
    loss.backward()
    plain = load("gqa")
    assert not math.isclose(loss.item(), plain[0](**plain[1]).loss.item(), rel_tol=1e-4)
    tensors = {"loss": loss} | {f"grad.{key}": tensor for key, tensor in gradients(model).items()}
    write_tensors(GOLDEN / "step" / "neftune_float32.safetensors", tensors, alpha=ALPHA)


if __name__ == "__main__":
    smoothed()
    neftune()
