"""Writes tests/golden/dcp/<case>: folders of torch.distributed.checkpoint, saved by two processes (gloo).

fsdp: `generate/llama` sharded by FSDP (fully_shard) and saved with an AdamW's state and a counter, as {"model", "optim",
"epoch"}. plain: the model's state dict alone, with one matrix cut by columns and the others by rows.
"""

import os
import shutil

from common import GOLDEN

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from transformers import AutoModelForCausalLM

PROCESSES = 2


def save(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513", RANK=str(rank), WORLD_SIZE=str(PROCESSES))
    dist.init_process_group("gloo")
    os.chdir(GOLDEN / "dcp")  # the path that is given is in the metadata
    mesh = init_device_mesh("cpu", (PROCESSES,))
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "generate" / "llama")

    plain = {}
    for name, tensor in model.state_dict().items():
        placement = Replicate() if tensor.dim() == 1 else Shard(1) if "down_proj" in name else Shard(0)
        plain[name] = distribute_tensor(tensor, mesh, [placement])
    dcp.save(plain, checkpoint_id="plain")

    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW([model.model.norm.weight])
    model.model.norm.weight.grad = torch.zeros_like(model.model.norm.weight)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    weights, _ = get_state_dict(model, [])
    state = {"model": weights, "optim": {"norm": optimizer.state[model.model.norm.weight]["exp_avg"], "lr": 0.1}, "epoch": 7}
    dcp.save(state, checkpoint_id="fsdp")
    dist.destroy_process_group()


if __name__ == "__main__":
    shutil.rmtree(GOLDEN / "dcp", ignore_errors=True)
    (GOLDEN / "dcp").mkdir()
    torch.multiprocessing.spawn(save, nprocs=PROCESSES)
