"""Runs of the real Trainer: what it counts, logs, prints and writes, with the losses that a replayed model needs."""

import contextlib
import io
import math
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

from common import GOLDEN, mt19937, write_json

import numpy as np
import torch
import transformers.trainer
import transformers.trainer_utils
from models import build_model, llama
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

SAMPLE_LENGTH = 16
SECONDS = 12.345678  # every stretch of time that is measured

ARGUMENTS = {
    "num_train_epochs": 2.0,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 2,
    "learning_rate": 1e-2,
    "logging_steps": 1.0,
    "save_strategy": "no",
}
# Numbers of steps are floats, as the command line makes them.
RUNS = {
    "every_step": {},
    "accumulation": {"gradient_accumulation_steps": 3, "lr_scheduler_type": "cosine", "warmup_steps": 2.0},
    "fractional_epochs": {"num_train_epochs": 2.5, "logging_steps": 0.1, "warmup_steps": 0.25},
    "max_steps": {"max_steps": 11, "gradient_accumulation_steps": 2, "logging_steps": 4.0, "logging_first_step": True},
    "drop_last": {
        "dataloader_drop_last": True,
        "eval_strategy": "epoch",
        "logging_strategy": "epoch",
        "logging_first_step": True,
    },
    "evaluate_steps": {"eval_strategy": "steps", "eval_steps": 4.0, "logging_steps": 3.0, "eval_on_start": True},
    "evaluate_ratio": {"eval_strategy": "steps", "eval_steps": 0.3, "eval_delay": 5, "logging_steps": 7.0},
    "no_logs": {"logging_strategy": "no", "num_train_epochs": 1.0, "prediction_loss_only": True},
    "default_steps": {"logging_steps": None, "num_train_epochs": 0.3},
    "tokens_seen": {"include_num_input_tokens_seen": "all", "logging_steps": 5.0, "eval_strategy": "epoch"},
    "not_a_number": {"logging_steps": 4.0, "not_a_number": [0, 2, 3, 9]},
    "save_steps": {"save_strategy": "steps", "save_steps": 4.0, "save_total_limit": 2, "logging_steps": 2.0},
    "save_epoch": {"save_strategy": "epoch", "save_total_limit": 1, "logging_steps": 5.0},
    "best_model": {
        "eval_strategy": "steps",
        "eval_steps": 2.0,
        "save_strategy": "steps",
        "save_steps": 2.0,
        "load_best_model_at_end": True,
        "save_total_limit": 1,
        "learning_rate": 0.3,
    },
    "early_stop": {
        "eval_strategy": "steps",
        "eval_steps": 2.0,
        "save_strategy": "best",
        "metric_for_best_model": "accuracy",
        "learning_rate": 0.1,
        "early_stopping": [2, 0.0],
    },
    "plateau": {
        "eval_strategy": "steps",
        "eval_steps": 2.0,
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"factor": 0.5, "patience": 0},
        "learning_rate": 0.3,
    },
    "resume": {"save_strategy": "steps", "save_steps": 3.0, "gradient_accumulation_steps": 2, "resume_from": 6},
    "evaluate_only": {"do_train": False},
}
TRAIN_SAMPLES, EVAL_SAMPLES = 13, 5


class Samples(torch.utils.data.Dataset):
    def __init__(self, first, count):
        self.rows = [[x % 64 for x in mt19937(1000 + first + i, SAMPLE_LENGTH)] for i in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class RecordedTrainer(Trainer):
    """Keeps what a replayed model has to answer."""

    def __init__(self, *args, not_a_number=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.not_a_number = not_a_number
        self.micro_batches = 0
        self.updates, self.evaluations, self.window = [], [], []
        self.loss_sum = np.float32(0)  # as the Trainer keeps it between two records

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if self.micro_batches in self.not_a_number:
            loss = torch.full_like(loss, float("nan"))
        self.micro_batches += 1
        self.window.append(None if loss.isnan() else loss.item())
        return loss

    def _get_grad_norm(self, *args, **kwargs):
        norm = super()._get_grad_norm(*args, **kwargs)
        loss = self.window[0]
        if len(self.window) > 1:
            before = self.loss_sum
            for micro_batch in self.window:
                self.loss_sum += np.float32(micro_batch)
            loss = float(self.loss_sum - before)
        self.updates.append({"loss": loss, "micro_batches": len(self.window), "grad_norm": float(norm)})
        self.window = []
        return norm

    def log(self, logs, *args, **kwargs):
        if "loss" in logs:
            self.loss_sum = np.float32(0)
        super().log(logs, *args, **kwargs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        result = super().prediction_step(model, inputs, False, ignore_keys)
        loss, logits, labels = result
        correct = (logits.argmax(-1)[:, :-1] == labels[:, 1:]).sum().item()
        self.evaluations.append({"loss": loss.item(), "rows": len(labels), "correct": correct})
        return (loss, None, None) if prediction_loss_only else result


def fixed_speed(split, start_time, **work):
    transformers.trainer_utils.time = SimpleNamespace(time=lambda: SECONDS)
    return original_speed(split, 0.0, **work)


original_speed = transformers.trainer_utils.speed_metrics
transformers.trainer.speed_metrics = fixed_speed


def compute_metrics(prediction):
    predictions, labels = prediction
    return {"accuracy": float(np.mean(predictions[:, :-1].reshape(-1) == labels[:, 1:].reshape(-1)))}


def make_trainer(settings):
    settings = dict(settings)
    not_a_number = settings.pop("not_a_number", ())
    early = settings.pop("early_stopping", None)
    if settings.get("logging_steps", 0) is None:
        del settings["logging_steps"]
    model = build_model(llama(), "float32", 42)
    arguments = TrainingArguments("out", use_cpu=True, report_to="none", disable_tqdm=False, seed=42, **settings)
    return RecordedTrainer(
        model=model,
        args=arguments,
        train_dataset=Samples(0, TRAIN_SAMPLES),
        eval_dataset=Samples(3, EVAL_SAMPLES),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        callbacks=[EarlyStoppingCallback(*early)] if early else None,
        not_a_number=not_a_number,
    )


def files():
    names = ["train_results.json", "eval_results.json", "all_results.json", "trainer_state.json"]
    names += sorted(f"{folder}/trainer_state.json" for folder in os.listdir("out") if folder.startswith("checkpoint-"))
    return {name: Path("out", name).read_text() for name in names if Path("out", name).exists()}


def run(settings):
    settings = ARGUMENTS | settings
    resume_from = settings.pop("resume_from", None)
    do_train = settings.pop("do_train", True)
    result = {}
    if resume_from:
        with contextlib.redirect_stdout(io.StringIO()):
            make_trainer(settings).train()
        result["resume_state"] = Path(f"out/checkpoint-{resume_from}/trainer_state.json").read_text()
        shutil.move(f"out/checkpoint-{resume_from}", "resumed")
        shutil.rmtree("out")
    trainer = make_trainer(settings)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if do_train:
            metrics = trainer.train(resume_from_checkpoint="resumed" if resume_from else None).metrics
            metrics["train_samples"] = TRAIN_SAMPLES
            trainer.log_metrics("train", metrics)
            trainer.save_metrics("train", metrics)
            trainer.save_state()
        else:
            os.makedirs("out", exist_ok=True)
        metrics = trainer.evaluate()
        if "eval_model_preparation_time" in metrics:
            metrics["eval_model_preparation_time"] = 0.25
        metrics["eval_samples"] = EVAL_SAMPLES
        metrics["perplexity"] = math.exp(metrics["eval_loss"])
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    return result | {
        "parameters": trainer.model.num_parameters(),
        "parameters_without_embeddings": trainer.model.num_parameters(exclude_embeddings=True),
        "updates": trainer.updates,
        "evaluations": trainer.evaluations,
        "log_history": trainer.state.log_history,
        "stdout": printed.getvalue(),
        "files": files(),
    }


def main():
    cases = {}
    start = os.getcwd()
    for name, settings in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                cases[name] = {"settings": ARGUMENTS | settings} | run(settings)
            finally:
                os.chdir(start)
        if name == "evaluate_only":
            del cases[name]["log_history"]
    means = []
    for count in (1, 7, 8, 9, 100, 128, 129, 1000, 4321):
        values = np.random.default_rng(count).random(count, dtype=np.float32) * 5
        if count <= 129:
            means.append({"values": [float(x) for x in values], "mean": float(values.mean())})
        else:  # too long to list: value i is (i·7919 mod 10007) / 1000
            values = np.array([(i * 7919 % 10007) / 1000 for i in range(count)], dtype=np.float32)
            means.append({"count": count, "mean": float(values.mean())})
    write_json(
        GOLDEN / "trainer_log.json",
        {
            "sample_length": SAMPLE_LENGTH,
            "train_samples": TRAIN_SAMPLES,
            "eval_samples": EVAL_SAMPLES,
            "seconds": SECONDS,
            "means": means,
            "cases": cases,
        },
    )


if __name__ == "__main__":
    main()
