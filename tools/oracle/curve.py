"""Writes tests/golden/curve/<name>.json: training runs step by step, arithmetic as in the Trainer of transformers 5."""

import contextlib

from common import DTYPES, GOLDEN, generator, mt19937, write_json
from models import RouterRecord, build_model, llama, mistral, mixtral, published_names, qwen2, qwen3
from optimizers import build_optimizer

import torch
from transformers import Trainer, get_scheduler

SAMPLE_LENGTH = 16
RUN = {
    "config": llama(),
    "dtype": "float32",
    "seed": 42,
    "optimizer": {
        "learning_rate": 1e-2,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "implementation": "plain",
    },
    "max_grad_norm": 1.0,
    "scheduler": "linear",
    "warmup_steps": 0,
    "num_training_steps": 24,
    "batch_size": 2,
    "gradient_accumulation_steps": 1,
    "num_samples": 10,
    "sample_length": SAMPLE_LENGTH,
    "vocab_size": 64,
}
ADAMW = {"name": "adamw_torch"} | RUN["optimizer"]
ADAFACTOR = {
    "name": "adafactor",
    "learning_rate": 1e-2,
    "epsilon": 1e-30,
    "clip_threshold": 1.0,
    "decay_rate": -0.8,
    "weight_decay": 0.1,
}
SGD = {"name": "sgd", "learning_rate": 1e-2, "momentum": 0.0, "weight_decay": 0.1}
ADAGRAD = {
    "name": "adagrad",
    "learning_rate": 1e-2,
    "epsilon": 1e-10,
    "learning_rate_decay": 0.0,
    "weight_decay": 0.1,
}
RMSPROP = {
    "name": "rmsprop",
    "learning_rate": 2e-3,  # the first updates are ten times as large: the running mean starts at zero
    "alpha": 0.99,
    "epsilon": 1e-8,
    "momentum": 0.0,
    "weight_decay": 0.1,
}
MIXTRAL = RUN | {"config": mixtral(output_router_logits=True, router_aux_loss_coef=0.02), "optimizer": ADAMW}
RUNS = {
    "linear": RUN,
    # 13 samples: seven micro-batches per epoch, the last of one sample, in windows of 3, 3 and 1.
    "cosine_accumulation": RUN
    | {"scheduler": "cosine", "warmup_steps": 5, "gradient_accumulation_steps": 3, "num_samples": 13, "seed": 7},
    # A lower rate, so that the roundings of bf16 move the losses little.
    "bfloat16": RUN | {"dtype": "bfloat16", "optimizer": RUN["optimizer"] | {"implementation": "fused", "learning_rate": 3e-3}},
    "adafactor": RUN | {"optimizer": ADAFACTOR},
    "adafactor_bfloat16": RUN | {"dtype": "bfloat16", "optimizer": ADAFACTOR | {"learning_rate": 3e-3}},
    "sgd": RUN | {"optimizer": SGD | {"learning_rate": 0.5}, "scheduler": "cosine", "warmup_steps": 3},
    "adagrad": RUN | {"optimizer": ADAGRAD},
    "rmsprop": RUN | {"optimizer": RMSPROP},
    # Seeds for which no choice of an expert is close in any step.
    "mixtral_adamw": MIXTRAL | {"seed": 50},
    "mixtral_adafactor": MIXTRAL | {"seed": 36, "optimizer": ADAFACTOR},
    "mistral": RUN | {"config": mistral(sliding_window=5)},
    "qwen2": RUN | {"config": qwen2()},
    "qwen3": RUN | {"config": qwen3()},
    "qwen3_adafactor": RUN | {"config": qwen3(), "optimizer": ADAFACTOR},
    "llama_bf16_master": RUN | {"optimizer": ADAMW | {"learning_rate": 3e-3}, "autocast": "bfloat16"},
}


def sample(index):
    return [output % 64 for output in mt19937(1000 + index, SAMPLE_LENGTH)]


def windows(run):
    """The micro-batches (lists of sample indices) of each update, epoch after epoch."""
    epoch = 0
    while True:
        order = torch.randperm(run["num_samples"], generator=generator(run["seed"] + epoch)).tolist()
        size, count = run["batch_size"], run["gradient_accumulation_steps"]
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        yield from (batches[i : i + count] for i in range(0, len(batches), count))
        epoch += 1


def make_optimizer(model, run):
    """The optimizer of `run` and the published names of the parameters that it decays."""
    parameters = dict(model.named_parameters())
    decayed = list(parameters) if run.get("norms_decayed") else Trainer.get_decay_parameter_names(None, model)
    decay = run["optimizer"]["weight_decay"]
    groups = [
        {"params": [p for n, p in parameters.items() if n in decayed], "weight_decay": decay},
        {"params": [p for n, p in parameters.items() if n not in decayed], "weight_decay": 0.0},
    ]
    return build_optimizer(run["optimizer"], groups), list(published_names({n: parameters[n] for n in decayed}))


def autocast(run):
    if "autocast" in run:
        return torch.autocast("cpu", dtype=DTYPES[run["autocast"]])
    return contextlib.nullcontext()


def train(run, model=None):
    """Runs `run`, on `model` if given, and returns the model and what the golden file says about the run."""
    model = model or build_model(run["config"], run["dtype"], run["seed"])
    model.train()
    optimizer, decayed = make_optimizer(model, run)
    schedule = get_scheduler(run["scheduler"], optimizer, run["warmup_steps"], run["num_training_steps"])
    steps = []
    with RouterRecord(model) as record:
        for batches, _ in zip(windows(run), range(run["num_training_steps"])):
            targets = sum(map(len, batches)) * (SAMPLE_LENGTH - 1)
            loss = torch.zeros(())
            for batch in batches:
                ids = torch.tensor([sample(index) for index in batch])
                with autocast(run):
                    micro_loss = model(input_ids=ids, labels=ids, num_items_in_batch=targets).loss
                micro_loss.backward()
                loss += micro_loss.detach()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), run["max_grad_norm"])
            rate = float(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step = {"batches": batches, "loss": loss.item(), "grad_norm": grad_norm.item(), "learning_rate": rate}
            steps.append(step)
    result = {"steps": steps, "final_sums": parameter_sums(model), "decayed": decayed}
    if record.logits:
        result["smallest_margin"] = record.margin(run["config"]["num_experts_per_tok"])
    return model, result


def parameter_sums(model):
    parameters = published_names(dict(model.named_parameters()))
    return {name: parameter.detach().double().sum().item() for name, parameter in parameters.items()}


def main():
    for name, run in RUNS.items():
        write_json(GOLDEN / "curve" / f"{name}.json", {"name": name} | run | train(run)[1])


if __name__ == "__main__":
    main()
