"""Writes tests/golden/hf/<name>: model folders as save_pretrained leaves them, with the logits each model gives.

mixtral-fused is the exception: its weights have the names that transformers 5 uses in memory.
"""

import shutil

from common import GOLDEN, generator, write_tensors
from models import build_model, llama, mixtral

import torch
from transformers import AutoModelForCausalLM

# name: dtype, config, shard limit
FOLDERS = {
    "llama-single": ("float32", llama(vocab_size=67), "50GB"),
    "llama-sharded": ("bfloat16", llama(vocab_size=65, num_key_value_heads=4, attention_bias=True), "12KB"),
    "llama-tied": ("float32", llama(tie_word_embeddings=True, num_hidden_layers=1, pad_token_id=0), "50GB"),
    "mixtral-published": ("float32", mixtral(vocab_size=65, intermediate_size=24, num_local_experts=3), "50GB"),
}


def fill(model):
    """Larger than the usual init, and norms and biases away from one and zero, so that every tensor matters."""
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.1)


def write_expected(folder, model, input_ids):
    """Writes the logits of the model in `folder`, which are those of `model`."""
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")(input_ids).logits
        assert torch.equal(logits, model(input_ids).logits)
    for file in folder.iterdir():
        file.chmod(0o644)
    write_tensors(folder / "expected.safetensors", {"input_ids": input_ids.int(), "logits": logits.float()})


def write_fused(source, model, input_ids):
    """Writes mixtral-fused: the folder `source` with its weights under the names they have in `model`."""
    folder = source.parent / "mixtral-fused"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ["config.json", "generation_config.json"]:
        shutil.copy(source / name, folder)
    write_tensors(folder / "model.safetensors", model.state_dict(), format="pt")
    write_expected(folder, model, input_ids)


def main():
    for name, (dtype, config, shard_limit) in FOLDERS.items():
        folder = GOLDEN / "hf" / name
        shutil.rmtree(folder, ignore_errors=True)
        model = build_model(config, dtype, seed=11)
        fill(model)
        input_ids = torch.randint(0, config["vocab_size"], (2, 9), generator=generator(5))
        model.save_pretrained(folder, max_shard_size=shard_limit)
        write_expected(folder, model, input_ids)
        if name == "mixtral-published":
            write_fused(folder, model, input_ids)


if __name__ == "__main__":
    main()
