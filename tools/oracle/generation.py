"""Writes tests/golden/generate/<model>: tiny models with the ids that transformers' generate() gives, and the logits that lead to them.

    generation.py

The tokenizer is tests/golden/trainer_checkpoint/tokenizer (trainer_checkpoint.py), a token per byte.
"""

import shutil

from common import GOLDEN, write_json
from models import build_model, llama, mixtral, qwen2, qwen3

import torch
from transformers import AutoModelForCausalLM

SIZES = {
    "vocab_size": 258,
    "hidden_size": 16,
    "intermediate_size": 24,
    "initializer_range": 0.5,  # large, so that no two logits are close
    "bos_token_id": 256,
    "eos_token_id": 257,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama": llama(**SIZES, num_attention_heads=4, num_key_value_heads=2),
    "llama_tied": llama(**SIZES, tie_word_embeddings=True, num_attention_heads=2, num_key_value_heads=1,
                        rope_scaling=LLAMA3, dtype="bfloat16"),
    "mixtral": mixtral(**SIZES, num_local_experts=4, num_attention_heads=4, num_key_value_heads=2, sliding_window=6),
    "qwen2": qwen2(**SIZES, num_attention_heads=4, num_key_value_heads=2, use_sliding_window=True, sliding_window=6,
                   max_window_layers=1),
    "qwen3": qwen3(**SIZES, num_attention_heads=4, num_key_value_heads=2),
}
PROMPTS = [[256, 40, 68, 75, 75, 78], [256], [256] + [(7 * i) % 250 for i in range(40)]]
NEW_TOKENS = 32
SEEDS = {"llama": 1, "llama_tied": 2, "mixtral": 3, "qwen2": 4, "qwen3": 5}


def margin(scores):
    """The smallest difference between the largest and the second largest logit of a step."""
    top = torch.stack([score[0].float() for score in scores]).topk(2).values
    return (top[:, 0] - top[:, 1]).min().item()


def greedy(model, prompt):
    return model.eval().generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False, max_new_tokens=NEW_TOKENS,
        output_logits=True, return_dict_in_generate=True, pad_token_id=257)


def main():
    for name, config in MODELS.items():
        folder = GOLDEN / "generate" / name
        shutil.rmtree(folder, ignore_errors=True)
        model = build_model(config, config.get("dtype", "float32"), SEEDS[name])
        model.save_pretrained(folder)
        if name == "llama_tied":  # one more end, which the first prompt comes to after some tokens
            end = greedy(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager"), PROMPTS[0]).sequences[0]
            model.config.eos_token_id = [257, end[len(PROMPTS[0]) + 9].item()]
            model.save_pretrained(folder)
        (folder / "generation_config.json").unlink()
        for file in folder.iterdir():
            file.chmod(0o644)
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        cases = []
        for prompt in PROMPTS:
            out = greedy(loaded, prompt)
            ids = out.sequences[0, len(prompt):].tolist()
            print(name, len(ids), margin(out.logits))
            cases.append({"prompt": prompt, "ids": ids, "margin": margin(out.logits)})
        last = [float(f"{value:.7g}") for value in out.logits[-1][0].tolist()]
        write_json(folder / "expected.json", {"max_new_tokens": NEW_TOKENS, "cases": cases, "last_logits": last})


if __name__ == "__main__":
    main()
