"""Fine-tunes a model on a file of quotes: the tutorial "Tuning Llama Model" with FSDP v2, line by line.

    finetune_quotes.py MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]

MODEL is a folder, or a repository in the Hugging Face cache, such as meta-llama/Meta-Llama-3-8B.
The same program runs on several processes, which shard the model and share the batch, on CPUs or with a GPU
each.

    mpirun --bind-to none -n 4 python3 finetune_quotes.py MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]
"""

import sys

from drover import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    fsdp_v2,
    load_dataset,
)

if len(sys.argv) < 2:
    sys.exit(f"usage: {sys.argv[0]} MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]")
model_id = sys.argv[1]
quotes = sys.argv[2] if len(sys.argv) > 2 else "examples/data/quotes.jsonl"
output_dir = sys.argv[3] if len(sys.argv) > 3 else "/tmp/output"
epochs = float(sys.argv[4]) if len(sys.argv) > 4 else 10

# To use FSDPv2, it needs to be enabled.
fsdp_v2.use_fsdp_v2()

# Then, the tokenizer and model need to be loaded.
tokenizer = AutoTokenizer.from_pretrained(model_id)
# Add custom token for padding Llama.
tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token})
model = AutoModelForCausalLM.from_pretrained(model_id, torch_dtype="bfloat16")

# Load the dataset and obtain the `quote` column.
data = load_dataset(quotes)
data = data.map(lambda samples: tokenizer(samples["quote"]), batched=True)

# The FSDP training arguments enable the sharding; the classes that should be sharded are deduced.
fsdp_training_args = fsdp_v2.get_fsdp_training_args(model)

# Training is as simple as using the standard Trainer class.
trainer = Trainer(
    model=model,
    train_dataset=data["train"],
    args=TrainingArguments(
        per_device_train_batch_size=24,
        num_train_epochs=epochs,
        max_steps=-1,
        output_dir=output_dir,
        optim="adafactor",
        logging_steps=1,
        dataloader_drop_last=True,  # Required by FSDP v2 and SPMD.
        **fsdp_training_args,
    ),
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)

result = trainer.train()

trainer.save_model(output_dir)
# All processes train and save; one of them prints.
if trainer.is_world_process_zero():
    print(f"{result.global_step} updates, mean loss {result.training_loss:.4f}; the model is in {output_dir}")
