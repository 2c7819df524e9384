"""Writes tests/golden/trainer_checkpoint: checkpoints of transformers' Trainer in the middle of small runs, and the losses of the whole runs.

    trainer_checkpoint.py

The data are blocks of tests/golden/run_clm/train.txt as run_clm.py packs them.
"""

import json
import shutil
import tempfile
from pathlib import Path

from common import GOLDEN, write_json
from lora import leaf_name
from models import build_model, llama, mistral, mixtral, qwen2, qwen3

from peft_adapters import sorted_config

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments, default_data_collator

FOLDER = GOLDEN / "trainer_checkpoint"
BLOCK = 32
LINES = 60
SIZES = {
    "vocab_size": 258,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
RUN = {
    "per_device_train_batch_size": 4,
    "max_steps": 8,
    "save_steps": 4,
    "logging_steps": 1,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "seed": 42,
}
RUNS = {
    "llama_adamw": (llama(**SIZES), RUN | {"gradient_accumulation_steps": 2}),
    "llama_adafactor": (llama(**SIZES, tie_word_embeddings=True), RUN | {"optim": "adafactor", "lr_scheduler_type": "cosine"}),
    "mixtral_adamw": (
        mixtral(**SIZES | {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}, num_local_experts=3, output_router_logits=True, sliding_window=None),
        RUN | {"seed": 3, "warmup_steps": 2},
    ),
    "mistral_adamw": (mistral(**SIZES, sliding_window=8), RUN),
    "qwen2_adamw": (qwen2(**SIZES, tie_word_embeddings=True), RUN),
    "qwen3_adafactor": (qwen3(**SIZES), RUN | {"optim": "adafactor"}),
}
KEPT = ["config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"]
# PEFT's adapters on a model of tests/golden/generate; the norms are trained whole, without weight decay.
ADAPTERS = {
    "llama_lora": ("llama", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj", "down_proj", "lm_head"], modules_to_save=["norm"])),
    "tied_dora": ("llama_tied", dict(r=4, lora_alpha=8, target_modules="all-linear", use_dora=True)),
}
KEPT_OF_ADAPTERS = ["adapter_config.json", "adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"]


def byte_tokenizer():
    """A token per byte, and two special ones: the smallest tokenizer that takes any text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")


def blocks(tokenizer):
    """What run_clm.py makes of the text: every line tokenized with its newline, joined, cut."""
    lines = (FOLDER / "train.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    ids = [token for line in lines for token in tokenizer(line)["input_ids"]]
    whole = [ids[begin : begin + BLOCK] for begin in range(0, len(ids) // BLOCK * BLOCK, BLOCK)]
    return [{"input_ids": block, "labels": list(block)} for block in whole]


def adapted(base, arguments):
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "generate" / base, dtype=torch.float32)
    torch.manual_seed(7)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **arguments))


def run(name, model, settings, kept=KEPT):
    tokenizer = byte_tokenizer()
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(output_dir=out, use_cpu=True, report_to=[], disable_tqdm=True, **settings)
        trainer = Trainer(model=model, args=arguments, train_dataset=blocks(tokenizer), data_collator=default_data_collator)
        trainer.train()
        checkpoint = Path(out) / "checkpoint-4"
        folder = FOLDER / name / "checkpoint-4"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in kept:
            shutil.copy(checkpoint / file, folder / file)
            (folder / file).chmod(0o644)
        if name == "llama_adamw":
            shutil.copy(checkpoint / "rng_state.pth", folder / "rng_state.pth")
            torch.save(TrainingArguments(output_dir="out", report_to=[]), FOLDER / "training_args.bin")
        state = json.loads((Path(out) / "checkpoint-8" / "trainer_state.json").read_text())
        write_json(FOLDER / name / "whole_run.json", {
            "settings": settings, "block_size": BLOCK, "samples": len(trainer.train_dataset), "log_history": state["log_history"],
            "optimizer": described(torch.load(checkpoint / "optimizer.pt", weights_only=True)),
            "scheduler": torch.load(checkpoint / "scheduler.pt", weights_only=True),
            "parameters": ordered_names(trainer),
        })


def ordered_names(trainer):
    """Names of the parameters by their number in optimizer.pt."""
    names = {id(parameter): leaf_name(name) for name, parameter in trainer.model.named_parameters()}
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def described(state):
    """Sums of every tensor of an optimizer's state, in double."""
    number = lambda value: {"shape": list(value.shape), "sum": value.double().sum().item()} if torch.is_tensor(value) else value
    return {
        "state": {index: {key: number(value) for key, value in entry.items()} for index, entry in state["state"].items()},
        "param_groups": state["param_groups"],
    }


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = (GOLDEN / "run_clm" / "train.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (FOLDER / "train.txt").write_text("".join(lines[:LINES]), encoding="utf-8")
    byte_tokenizer().save_pretrained(FOLDER / "tokenizer")
    for name, (config, settings) in RUNS.items():
        run(name, build_model(config, "float32", settings["seed"]), settings)
    for name, (base, arguments) in ADAPTERS.items():
        run(name, adapted(base, arguments), RUN, KEPT_OF_ADAPTERS)
        sorted_config(FOLDER / name / "checkpoint-4" / "adapter_config.json", base)


if __name__ == "__main__":
    main()
