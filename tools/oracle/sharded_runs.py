"""Writes tests/golden/sharded_runs/<case>: checkpoints in the middle of small runs of several processes (gloo), as
DeepSpeed's ZeRO and PyTorch's FSDP save them, and the losses of the whole runs.

    sharded_runs.py [case …]

The data, the models and the settings are those of trainer_checkpoint.py: the Trainer runs once with a micro-batch for
each process, to record them, and then every process trains on its own. A case has checkpoint-4 as the Trainer lays it
out, whole_run.json (settings, losses, and DeepSpeed's or PyTorch's own account of the state at step 4: shapes and
SHA-256 of all weights and moments), and, where a run can continue, the tokenizer and text of trainer_checkpoint.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from common import GOLDEN, write_json
from models import build_model, llama, mixtral, qwen2
from trainer_checkpoint import BLOCK, RUN, SIZES, blocks, byte_tokenizer

import torch
import torch.distributed as dist
import torch.multiprocessing
from transformers import Trainer, TrainingArguments, default_data_collator

FOLDER = GOLDEN / "sharded_runs"
LAST, SAVED = 8, 4
MIXTRAL = SIZES | {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
# Mixtral's balance loss is left out: the Trainer counts it once for each micro-batch, and several processes average it.
CASES = {
    "zero1_bf16": {"config": llama(**SIZES), "processes": 3, "stage": 1, "bf16": True},
    "zero2": {"config": llama(**SIZES), "processes": 2, "stage": 2},
    "zero2_frozen": {"config": llama(**SIZES), "processes": 2, "stage": 2, "frozen": ["model.embed_tokens.weight"]},
    "zero3": {"config": qwen2(**SIZES, tie_word_embeddings=True), "processes": 3, "stage": 3},
    "zero3_frozen": {"config": llama(**SIZES), "processes": 3, "stage": 3, "frozen": ["model.norm.weight", "lm_head.weight"]},
    "zero3_mixtral": {"config": mixtral(**MIXTRAL, num_local_experts=3, sliding_window=None), "processes": 2, "stage": 3},
    "fsdp_sharded": {"config": llama(**SIZES), "processes": 2},
    "fsdp_mixtral": {"config": mixtral(**MIXTRAL, num_local_experts=3, sliding_window=None), "processes": 2},
    "fsdp_full": {"config": qwen2(**SIZES, tie_word_embeddings=True), "processes": 2},
}


class Recorder(Trainer):
    """Keeps what every micro-batch has."""

    def training_step(self, model, inputs, *rest, **named):
        self.batches.append({name: value.clone() for name, value in inputs.items()})
        return super().training_step(model, inputs, *rest, **named)


def recorded(case, out):
    settings = RUN | {"gradient_accumulation_steps": case["processes"]}
    model = build_model(case["config"], "float32", settings["seed"])
    arguments = TrainingArguments(output_dir=out, use_cpu=True, report_to=[], disable_tqdm=True, **settings)
    trainer = Recorder(model=model, args=arguments, train_dataset=blocks(byte_tokenizer()), data_collator=default_data_collator)
    trainer.batches = []
    trainer.train()
    decayed = set(trainer.get_decay_parameter_names(model))
    history = json.loads((Path(out) / f"checkpoint-{LAST}" / "trainer_state.json").read_text())["log_history"]
    return settings, trainer.batches, decayed, history


def groups_of(model, decayed, settings):
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [p for name, p in named if name in decayed], "weight_decay": settings["weight_decay"]},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]


def account(tensors):
    """Type, shape and hash of every tensor."""
    def described(tensor):
        tensor = tensor.detach().contiguous()
        return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()}
    return {name: described(tensor) for name, tensor in tensors.items()}


def build(case, settings):
    model = build_model(case["config"], "float32", settings["seed"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in case.get("frozen", []))
    return model


def mean_over_processes(loss):
    loss = loss.detach().float().clone()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def train_zero(rank, case, recording, target):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    settings, batches, decayed, history = recording
    model = build(case, settings)
    config = {
        "train_micro_batch_size_per_gpu": settings["per_device_train_batch_size"],
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": case["stage"], "sub_group_size": 1000},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": case.get("bf16", False)},
        "steps_per_print": 1000,
    }
    optimizer = torch.optim.AdamW(groups_of(model, decayed, settings), lr=settings["learning_rate"])
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    records, state = [], {}
    for step in range(LAST):
        for group in optimizer.param_groups:
            group["lr"] = history[step]["learning_rate"]
        loss = engine(**batches[step * case["processes"] + rank]).loss
        engine.backward(loss)
        engine.step()
        records.append({"step": step + 1, "loss": mean_over_processes(loss), "learning_rate": history[step]["learning_rate"], "grad_norm": float(engine.get_global_grad_norm())})
        if step + 1 == SAVED:
            engine.save_checkpoint(str(target), tag=f"global_step{SAVED}")
            if case["stage"] < 3:  # the link was made before the states were there
                optimizer._hp_optimizer_states_linked = False
                optimizer._lazy_init_hp_params_optimizer_state()
            for name, parameter in engine.module.named_parameters():
                if not parameter.requires_grad:
                    continue
                state["weight/" + name] = safe_get_full_fp32_param(parameter)
                for kind in ["exp_avg", "exp_avg_sq"]:
                    state[f"{kind}/{name}"] = safe_get_full_optimizer_state(parameter, kind)
    return records, account(state)


def train_fsdp(rank, case, name, recording, target):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    settings, batches, decayed, history = recording
    model = build(case, settings)
    mesh = init_device_mesh("cpu", (case["processes"],))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(groups_of(model, decayed, settings), lr=settings["learning_rate"])
    records, state = [], {}
    for step in range(LAST):
        for group in optimizer.param_groups:
            group["lr"] = history[step]["learning_rate"]
        loss = model(**batches[step * case["processes"] + rank]).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        optimizer.zero_grad()
        records.append({"step": step + 1, "loss": mean_over_processes(loss), "learning_rate": history[step]["learning_rate"], "grad_norm": norm.item()})
        if step + 1 != SAVED:
            continue
        full = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, moments = get_model_state_dict(model, options=full), get_optimizer_state_dict(model, optimizer, options=full)
        if name == "fsdp_full":
            if rank == 0:
                torch.save(weights, target / "pytorch_model_fsdp.bin")
                torch.save(moments, target / "optimizer.bin")
        else:
            here = Path.cwd()
            os.chdir(target)  # the path that is given is in the metadata
            weights_here, moments_here = get_model_state_dict(model), get_optimizer_state_dict(model, optimizer)
            if name == "fsdp_mixtral":
                dcp.save({"model": weights_here, "optim": moments_here}, checkpoint_id=".")
            else:
                dcp.save({"model": weights_here}, checkpoint_id="pytorch_model_fsdp_0")
                dcp.save({"optimizer": moments_here}, checkpoint_id="optimizer_0")
            os.chdir(here)
        if rank == 0:
            state = {"weight/" + key: value for key, value in weights.items()}
            for key, entry in moments["state"].items():
                for kind in ["exp_avg", "exp_avg_sq"]:
                    state[f"{kind}/{key}"] = entry[kind]
    return records, account(state)


def process(rank, name, recording, target, port):
    case = CASES[name]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case["processes"]), DS_ACCELERATOR="cpu")
    if "stage" in case:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
        records, state = train_zero(rank, case, recording, target)
    else:
        dist.init_process_group("gloo")
        records, state = train_fsdp(rank, case, name, recording, target)
    if rank == 0:
        write_json(target.parent / "whole_run.json", {"settings": recording[0], "block_size": BLOCK, "log_history": records, "state": state})
    dist.barrier()
    dist.destroy_process_group()


def make(name, port):
    case = CASES[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    target = folder / f"checkpoint-{SAVED}"
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as out:
        recording = recorded(case, out)
        for file in ["config.json", "trainer_state.json"]:
            shutil.copy(Path(out) / f"checkpoint-{SAVED}" / file, target / file)
    torch.multiprocessing.spawn(process, (name, recording, target, port), nprocs=case["processes"])
    if "stage" in case:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        run = json.loads((folder / "whole_run.json").read_text())
        run["zero_to_fp32"] = account(get_fp32_state_dict_from_zero_checkpoint(str(target)))
        write_json(folder / "whole_run.json", run)
    for script in target.glob("*.py"):
        script.unlink()


def main():
    for index, name in enumerate(sys.argv[1:] or CASES):
        make(name, 29600 + index)


if __name__ == "__main__":
    main()
