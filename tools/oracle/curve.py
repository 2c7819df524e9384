"""Writes tests/golden/curve/*.json: training runs step by step, arithmetic as in the Trainer of transformers 5.

Also writes appendix_a.json, numbers published for runs of the real Trainer 4.43 and 4.46, after checking that this
loop gives them too.
"""

from common import GOLDEN, generator, mt19937, write_json
from models import build_llama, llama

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
RUNS = {
    "linear": RUN,
    # 13 samples: seven micro-batches per epoch, the last of one sample, in windows of 3, 3 and 1.
    "cosine_accumulation": RUN
    | {"scheduler": "cosine", "warmup_steps": 5, "gradient_accumulation_steps": 3, "num_samples": 13, "seed": 7},
    "bfloat16": RUN | {"dtype": "bfloat16", "optimizer": RUN["optimizer"] | {"implementation": "fused"}},
}

EMBED, LAYER1_K, NORM, HEAD = (
    "model.embed_tokens.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
)
APPENDIX_A = {
    "llama_adamw": RUN
    | {
        "version": "4.43",
        "num_training_steps": 10,
        "loss": [4.153173, 4.149222, 4.174168, 4.129696, 4.196128, 3.920048, 4.109191, 3.919368, 3.969373, 3.907420],
        "loss_digits": 6,
        "grad_norm": [1.63028, 1.94089, 1.45401, 3.30130, 1.69588, 2.19347, 2.11064, 1.89081, 2.48317, 2.87994],
        "grad_norm_digits": 5,
        "final_sums": {EMBED: -1.174272, LAYER1_K: 0.369619, NORM: 31.984077, HEAD: 1.718364},
        "final_sums_digits": 6,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.849536896,
        "total_flos": 33730560,
    },
    "init": {
        "version": "4.43",
        "config": llama(num_hidden_layers=1),
        "seed": 42,
        "first_values": {
            EMBED: [-0.005755551, -0.021071870, -0.031947203],
            "model.layers.0.self_attn.q_proj.weight": [0.002639494, -0.020090736, 0.002495283],
            HEAD: [0.001949440, -0.023190834, 0.021906173],
        },
        "sums": {
            EMBED: 0.597634101,
            "model.layers.0.self_attn.q_proj.weight": 0.335646048,
            "model.layers.0.self_attn.k_proj.weight": 0.319541127,
            "model.layers.0.self_attn.v_proj.weight": 0.363547867,
            "model.layers.0.self_attn.o_proj.weight": 0.020952980,
            "model.layers.0.mlp.gate_proj.weight": 0.218666613,
            "model.layers.0.mlp.up_proj.weight": -0.299730841,
            "model.layers.0.mlp.down_proj.weight": 0.286764863,
            HEAD: -1.570325075,
        },
        "digits": 9,
        "input_ids": "0 ... 31 as 2 x 16, labels the same",
        "loss": 4.15934944,
        "grad_norm": 1.52341366,
        "loss_digits": 8,
    },
    "one_layer": RUN
    | {
        "config": llama(num_hidden_layers=1),
        "num_training_steps": 10,
        "versions": {
            "4.43": {"loss": [4.1863, 4.1935, 4.1957], "grad_norm": [1.50416, 1.57612, 1.51616]},
            "4.46.3": {"loss": [3.9246, 3.9314, 3.9335], "grad_norm": [1.41015, 1.47761, 1.42140]},
        },
        "loss_digits": 4,
        "grad_norm_digits": 5,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.636268,
    },
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


def make_optimizer(model, settings):
    decayed = Trainer.get_decay_parameter_names(None, model)
    parameters = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in parameters.items() if n in decayed], "weight_decay": settings["weight_decay"]},
        {"params": [p for n, p in parameters.items() if n not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=settings["learning_rate"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        fused=settings["implementation"] == "fused",
        foreach=False,
    )
    return optimizer, decayed


def train(run):
    """Runs `run` and returns the model, a record per step and the names of the decayed parameters."""
    model = build_llama(run["config"], run["dtype"], run["seed"])
    model.train()
    optimizer, decayed = make_optimizer(model, run["optimizer"])
    schedule = get_scheduler(run["scheduler"], optimizer, run["warmup_steps"], run["num_training_steps"])
    steps = []
    for batches, _ in zip(windows(run), range(run["num_training_steps"])):
        targets = sum(map(len, batches)) * (SAMPLE_LENGTH - 1)
        loss = torch.zeros(())
        for batch in batches:
            ids = torch.tensor([sample(index) for index in batch])
            micro_loss = model(input_ids=ids, labels=ids, num_items_in_batch=targets).loss
            micro_loss.backward()
            loss += micro_loss.detach()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), run["max_grad_norm"])
        rate = float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        record = {"batches": batches, "loss": loss.item(), "grad_norm": grad_norm.item(), "learning_rate": rate}
        steps.append(record)
    return model, steps, decayed


def final_sums(model):
    return {name: parameter.detach().double().sum().item() for name, parameter in model.named_parameters()}


def evaluate(model, indices):
    ids = torch.tensor([sample(index) for index in indices])
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).loss.item()


def check_appendix_a():
    def close(value, published, tolerance):
        assert abs(value - published) <= tolerance, f"{value} is not the published {published}"

    published = APPENDIX_A["llama_adamw"]
    model, steps, _ = train(published)
    for step, loss, grad_norm in zip(steps, published["loss"], published["grad_norm"]):
        close(step["loss"], loss, 5e-6)
        close(step["grad_norm"], grad_norm, 5e-5)
    sums = final_sums(model)
    for name, value in published["final_sums"].items():
        close(sums[name], value, 1e-4)
    close(evaluate(model, published["eval_samples"]), published["eval_loss"], 5e-6)

    published = APPENDIX_A["init"]
    model = build_llama(published["config"], "float32", published["seed"])
    ids = torch.arange(32).view(2, 16)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    close(loss.item(), published["loss"], 1e-6)
    close(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item(), published["grad_norm"], 1e-6)

    published = APPENDIX_A["one_layer"]
    model, steps, _ = train(published)
    for step, loss, grad_norm in zip(steps, *published["versions"]["4.43"].values()):
        close(step["loss"], loss, 6e-5)
        close(step["grad_norm"], grad_norm, 2e-5)
    close(evaluate(model, published["eval_samples"]), published["eval_loss"], 1e-5)


def main():
    for name, run in RUNS.items():
        model, steps, decayed = train(run)
        result = {"name": name} | run | {"steps": steps, "final_sums": final_sums(model), "decayed": decayed}
        write_json(GOLDEN / "curve" / f"{name}.json", result)
    check_appendix_a()
    write_json(GOLDEN / "curve" / "appendix_a.json", APPENDIX_A)


if __name__ == "__main__":
    main()
