"""Writes tests/golden/hf/<name>: model folders as save_pretrained leaves them, with the logits each model gives."""

import shutil

from common import GOLDEN, generator, write_tensors
from models import build_model, llama

import torch
from transformers import AutoModelForCausalLM

# name: dtype, config, shard limit
FOLDERS = {
    "llama-single": ("float32", llama(vocab_size=67), "50GB"),
    "llama-sharded": ("bfloat16", llama(vocab_size=65, num_key_value_heads=4, attention_bias=True), "12KB"),
    "llama-tied": ("float32", llama(tie_word_embeddings=True, num_hidden_layers=1, pad_token_id=0), "50GB"),
}


def main():
    for name, (dtype, config, shard_limit) in FOLDERS.items():
        folder = GOLDEN / "hf" / name
        shutil.rmtree(folder, ignore_errors=True)
        model = build_model(config, dtype, seed=11)
        for parameter_name, parameter in model.named_parameters():
            # Larger than the usual init, and norms and biases away from one and zero, so that every tensor matters.
            center = 1.0 if "norm" in parameter_name else 0.0
            parameter.data.normal_(center, 0.1)
        input_ids = torch.randint(0, config["vocab_size"], (2, 9), generator=generator(5))
        model.save_pretrained(folder, max_shard_size=shard_limit)
        with torch.no_grad():
            logits = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")(input_ids).logits
            assert torch.equal(logits, model(input_ids).logits)
        for file in folder.iterdir():
            file.chmod(0o644)
        write_tensors(folder / "expected.safetensors", {"input_ids": input_ids.int(), "logits": logits.float()})


if __name__ == "__main__":
    main()
