"""Writes tests/golden/nxd_runs/<case>/step_4: checkpoints of tests/golden/trainer_checkpoint as neuronx-distributed would
have saved them in the middle of the same runs, cut here by hand.

The model's files are cut as in nxd_shards.py. The optimizer's are those of torch_xla's ZeRO-1: parameters are numbered by
group; every data rank has its rows of each tensor, the first dimension filled up with zeros to a multiple of the ranks;
shape_info has the sizes before that. `groups` says which parameters have no weight decay: "seed" as run_llama_nxd.py
makes the groups (only biases), "norms" also the norms. Without dp_size there is no ZeRO-1, and a file has whole tensors.
"""

import json
import shutil

from common import GOLDEN, write_json

import nxd_shards
import torch
from safetensors.torch import load_file

STEP = 4
CASES = {
    "zero1": dict(run="llama_adamw", style="linear", tp_size=2, pp_size=2, dp_size=3, kv_size_multiplier=2, hw_backend="trn1", groups="seed", masters=True),
    "zero1_fused": dict(run="mistral_adamw", style="fused", tp_size=2, pp_size=1, dp_size=2, kv_size_multiplier=2, hw_backend="trn2", groups="norms"),
    "whole": dict(run="llama_adamw", style="plain", tp_size=1, pp_size=2, groups="norms"),
    "mixtral_xser": dict(run="mixtral_adamw", style="linear", tp_size=2, pp_size=1, dp_size=2, kv_size_multiplier=2, hw_backend="trn1", groups="seed", xser=True),
}


def published(states, experts):
    """Experts under their own names, in place of transformers' fused tensors."""
    result = {}
    for name, tensor in states.items():
        layer = name.split("mlp.")[0]
        if name.endswith("mlp.gate.weight"):
            result[f"{layer}block_sparse_moe.gate.weight"] = tensor
        elif name.endswith("experts.gate_up_proj"):
            for e in range(experts):
                result[f"{layer}block_sparse_moe.experts.{e}.w1.weight"], result[f"{layer}block_sparse_moe.experts.{e}.w3.weight"] = tensor[e].chunk(2)
        elif name.endswith("experts.down_proj"):
            for e in range(experts):
                result[f"{layer}block_sparse_moe.experts.{e}.w2.weight"] = tensor[e]
        else:
            result[name] = tensor
    return result


def rows_of_rank(tensor, ranks, rank):
    missing = -tensor.size(0) % ranks
    padded = torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) if missing else tensor
    return padded.chunk(ranks)[rank].clone()


def without_decay(name, groups):
    return "bias" in name or (groups == "norms" and "norm" in name)


def save_nested(path, value, xser):
    """As nxd_shards.save, for tensors at any depth."""
    if not xser:
        torch.save(value, path)
        return
    folder = path.parent / (path.name + ".tensors")
    folder.mkdir()
    count = 0

    def replaced(part):
        nonlocal count
        if isinstance(part, dict):
            return {key: replaced(entry) for key, entry in part.items()}
        if not torch.is_tensor(part):
            return part
        torch.save(part, folder / f"tensor_{count}.pt")
        count += 1
        return nxd_shards.TensorReference(count - 1)

    torch.save(replaced(value), path)


def make(name, case):
    folder = GOLDEN / "nxd_runs" / name / f"step_{STEP}"
    source = GOLDEN / "trainer_checkpoint" / case["run"]
    config = json.loads((source / "checkpoint-4" / "config.json").read_text())
    run = json.loads((source / "whole_run.json").read_text())
    saved = torch.load(source / "checkpoint-4" / "optimizer.pt", weights_only=True)
    experts = config.get("num_local_experts", 0)
    kinds = {kind: published({parameter: saved["state"][i][kind] for i, parameter in enumerate(run["parameters"])}, experts) for kind in ["exp_avg", "exp_avg_sq"]}
    weights = published(load_file(source / "checkpoint-4" / "model.safetensors"), experts)
    assert set(weights) == set(kinds["exp_avg"])
    nxd_shards.HEADS = config["num_attention_heads"]
    nxd_shards.HEAD = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    cut = dict(case, layers=config["num_hidden_layers"], kv_heads=config["num_key_value_heads"], experts=experts)
    for part in ["model", "optim"]:
        (folder / part).mkdir(parents=True)
    for tp_rank in range(case["tp_size"]):
        for pp_rank in range(case["pp_size"]):
            of_rank = lambda tensors: nxd_shards.shard_of(tensors, cut, tp_rank, pp_rank, 0)
            rank = f"tp_rank_{tp_rank:02}_pp_rank_{pp_rank:02}.pt"
            masters = of_rank(weights)
            model = {key: tensor.bfloat16() for key, tensor in masters.items()} if case.get("masters") else masters
            nxd_shards.save(folder / "model" / f"dp_rank_00_{rank}", model, case.get("xser", False))
            names = sorted(model, key=lambda key: without_decay(key, case["groups"]))  # stable
            moments = {kind: of_rank(tensors) for kind, tensors in kinds.items()}
            first = sum(not without_decay(key, case["groups"]) for key in names)
            settings = {"lr": saved["param_groups"][0]["lr"], "betas": (0.9, 0.999), "eps": 1e-8}
            groups = [settings | {"weight_decay": 0.1, "params": list(range(first))}, settings | {"weight_decay": 0.0, "params": list(range(first, len(names)))}]
            for dp_rank in range(case.get("dp_size", 1)):
                here = lambda tensor: rows_of_rank(tensor, case["dp_size"], dp_rank) if "dp_size" in case else tensor
                states = {i: {"step": torch.tensor(float(STEP))} | {kind: here(moments[kind][key]) for kind in kinds} for i, key in enumerate(names)}
                value = {"state": states, "param_groups": groups}
                if "dp_size" in case:
                    value = {"state": {}, "param_groups": groups, "base_state": states, "shape_info": {i: model[key].shape for i, key in enumerate(names)}}
                if case.get("masters"):
                    value["sharded_master_weights"] = {i: here(masters[key]) for i, key in enumerate(names)}
                save_nested(folder / "optim" / f"dp_rank_{dp_rank:02}_{rank}", value, case.get("xser", False))
    torch.save({"last_epoch": STEP, "_step_count": STEP + 1}, folder / "scheduler.pt")
    torch.save({"total_steps": STEP, "batch_idx": STEP - 1, "epoch": 0, "cli_args": {"lr": 0.01}}, folder / "user_content.pt")
    for mark in ["checkpoint", "done"]:
        (folder / mark).write_text("1")
    write_json(folder.parent / "case.json", case)


def main():
    shutil.rmtree(GOLDEN / "nxd_runs", ignore_errors=True)
    for name, case in CASES.items():
        make(name, case)


if __name__ == "__main__":
    main()
