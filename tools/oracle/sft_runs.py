"""Losses of 30 updates of TRL's SFTTrainer, with all weights and with PEFT's adapters, and what its records say of the
predictions: tests/golden/sft_runs.

A tiny Llama with the bundled chat tokenizer learns the bundled conversations, on the CPU in float32. The
weights are drawn here and stored; the adapters are drawn by PEFT after set_seed(42).
"""

import json
import shutil
import tempfile
from pathlib import Path

from common import GOLDEN

import datasets
import torch
import transformers
from peft import LoraConfig
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

FOLDER = GOLDEN / "sft_runs"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 30
ADAPTERS = {"lora": {}, "rslora": {"use_rslora": True}, "dora": {"use_dora": True},
            "embedding": {"target_modules": ["embed_tokens", "q_proj", "v_proj"]}}
ROWS = {
    "full": {"assistant_only_loss": True},
    "packed": {"assistant_only_loss": True, "packing": True},
    "wrapped": {"packing": True, "packing_strategy": "wrapped"},
    "everything": {},
}


def make_model():
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=1024, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                         tie_word_embeddings=True, initializer_range=0.08, bos_token_id=1, eos_token_id=3, pad_token_id=None)
    LlamaForCausalLM(config).save_pretrained(FOLDER / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(EXAMPLES / "tokenizers/chat-1k" / name, FOLDER / "model" / name)


def history(name, **changes):
    adapters = ADAPTERS.get(name)
    rows = ROWS["full"] if adapters is not None else ROWS[name]
    with tempfile.TemporaryDirectory() as output:
        plain = dict(max_steps=STEPS, logging_steps=1, max_length=128, learning_rate=5e-3, per_device_train_batch_size=4,
                     bf16=False, gradient_checkpointing=False, use_cpu=True, report_to="none", save_strategy="no")
        settings = SFTConfig(output_dir=output, **{**plain, **rows, **changes})
        peft = None
        if adapters is not None:
            peft = LoraConfig(**{"target_modules": "all-linear", **adapters}, r=8, lora_alpha=16, lora_dropout=0.0,
                              task_type="CAUSAL_LM")
        data = datasets.load_dataset("json", data_files=str(EXAMPLES / "data/wendle.jsonl"), split="train")
        transformers.set_seed(42)
        evaluated = data.select(range(10)) if settings.eval_strategy != "no" else None
        trainer = SFTTrainer(model=str(FOLDER / "model"), args=settings, train_dataset=data, eval_dataset=evaluated,
                             peft_config=peft)
        trainer.train()
    return trainer.state.log_history


def losses(name):
    return [record["loss"] for record in history(name) if "loss" in record]


def records(name):
    """Two micro-batches to an update, three updates to a record."""
    changes = dict(max_steps=6, logging_steps=3, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=3)
    kept = ("loss", "entropy", "mean_token_accuracy", "num_tokens")
    kept += tuple(f"eval_{key}" for key in kept)
    found = [{key: value for key, value in record.items() if key in kept} for record in history(name, **changes)]
    return [record for record in found if record]


def main():
    FOLDER.mkdir(exist_ok=True)
    make_model()
    found = {name: losses(name) for name in [*ROWS, *ADAPTERS]}
    (FOLDER / "losses.json").write_text(json.dumps(found, indent=1) + "\n")
    logged = {name: records(name) for name in ("full", "packed", "lora")}
    (FOLDER / "records.json").write_text(json.dumps(logged, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (FOLDER / "model" / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
