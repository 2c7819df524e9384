"""Drover: training of Llama-like models, under the names of Hugging Face's libraries.

import drover

tokenizer = drover.AutoTokenizer.from_pretrained("model")
model = drover.AutoModelForCausalLM.from_pretrained("model")
data = drover.load_dataset("quotes.jsonl").map(lambda samples: tokenizer(samples["quote"]), batched=True)
trainer = drover.Trainer(
    model=model,
    args=drover.TrainingArguments("out", max_steps=100),
    train_dataset=data["train"],
    data_collator=drover.DataCollatorForLanguageModeling(tokenizer),
)
trainer.train()
"""

from drover import fsdp_v2
from drover._native import native
from drover.arguments import TrainingArguments
from drover.callbacks import TrainerCallback, TrainerControl, TrainerState
from drover.collator import DataCollatorForLanguageModeling
from drover.datasets import Dataset, DatasetDict, load_dataset
from drover.errors import Error, UsageError
from drover.model import AutoModelForCausalLM, CausalLM
from drover.tokenizer import AutoTokenizer, BatchEncoding, Tokenizer
from drover.trainer import Trainer, TrainOutput

__version__ = native.version

__all__ = [
    "AutoModelForCausalLM",
    "AutoTokenizer",
    "BatchEncoding",
    "CausalLM",
    "DataCollatorForLanguageModeling",
    "Dataset",
    "DatasetDict",
    "Error",
    "Tokenizer",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerState",
    "TrainingArguments",
    "UsageError",
    "fsdp_v2",
    "load_dataset",
]
