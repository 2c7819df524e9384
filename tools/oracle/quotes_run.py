"""Writes tests/golden/quotes_run.json: the losses of the FSDP v2 tutorial's Trainer (without sharding) on examples/data/quotes.jsonl with the
tiny model of tests/golden/run_clm/saved, in float32.

    quotes_run.py
"""

import json
import tempfile

from common import GOLDEN, REPOSITORY, write_json

from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

SETTINGS = {"per_device_train_batch_size": 24, "num_train_epochs": 2, "optim": "adafactor", "learning_rate": 1e-2, "logging_steps": 1,
            "dataloader_drop_last": True}


def main():
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "examples" / "tokenizers" / "shakespeare-4k")
    tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token})
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "run_clm" / "saved", dtype="float32")
    lines = (REPOSITORY / "examples" / "data" / "quotes.jsonl").read_text(encoding="utf-8").splitlines()
    data = [dict(tokenizer(json.loads(line)["quote"])) for line in lines]
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(
            model=model, train_dataset=data,
            args=TrainingArguments(output_dir=out, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", gradient_checkpointing=True,
                                   **SETTINGS),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
        trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    write_json(GOLDEN / "quotes_run.json", {"settings": SETTINGS, "losses": losses, "first_ids": list(data[0]["input_ids"])})


if __name__ == "__main__":
    main()
