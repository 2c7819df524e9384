"""Writes tests/golden/fp8/mixtral*_<dtype>.safetensors: steps of Mixtral whose blocks multiply in FP8."""

from common import DTYPES, GOLDEN, write_tensors
from fp8 import Joined, product, quantised
from mixtral_step import prepare
from models import RouterRecord, mixtral, published_names

import torch
from torch.nn.functional import silu

SIZES = dict(head_dim=16, intermediate_size=16)  # sides of matrices are multiples of 16
# name in mixtral_step.prepare(): file, seed (chosen for a wide margin), config
CASES = {
    "plain_top2": ("mixtral", 17, mixtral(**SIZES)),
    "starved_experts": ("mixtral_starved", 104, mixtral(**SIZES, num_local_experts=5)),
}
SMALLEST_MARGIN = 0.04


def grouped(rows, matrices, expert_of_row, dtype):
    """rows[r] · matrices[expert of r]ᵀ of two pairs of `quantised`."""
    y = torch.zeros(rows[0].shape[0], matrices[0].shape[1], dtype=dtype)
    for expert in range(matrices[0].shape[0]):
        own = expert_of_row == expert
        y[own] = product((rows[0][own], rows[1]), (matrices[0][expert], matrices[1]), dtype)
    return y


def weight_gradients(dy, x, expert_of_row, experts, dtype):
    return torch.stack(
        [
            product((dy[0][expert_of_row == e].T, dy[1]), (x[0][expert_of_row == e].T, x[1]), dtype)
            for e in range(experts)
        ]
    )


def activated(gate_up):
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


class Fp8Experts(torch.autograd.Function):
    """The experts of a block, one scale for all of them. Rows are the slots of all tokens."""

    @staticmethod
    def forward(context, x, expert_of_slot, weights, gate_up, down):
        expert_of_row, token = expert_of_slot.flatten(), torch.arange(x.shape[0]).repeat_interleave(weights.shape[1])
        x8, gate_up8, down8 = quantised(x[token]), quantised(gate_up), quantised(down)
        between = grouped(x8, gate_up8, expert_of_row, x.dtype)
        inner8 = quantised(activated(between))
        rows = grouped(inner8, down8, expert_of_row, x.dtype)
        context.save_for_backward(weights, between, expert_of_row, token)
        context.fp8 = x8, gate_up8, down8, inner8
        return (rows.double() * weights.flatten()[:, None].double()).view(*weights.shape, -1).sum(1).to(x.dtype)

    @staticmethod
    def backward(context, dy):
        weights, between, expert_of_row, token = context.saved_tensors
        x8, gate_up8, down8, inner8 = context.fp8
        experts, dtype = gate_up8[0].shape[0], dy.dtype
        transposed = lambda matrices: (matrices[0].transpose(1, 2), matrices[1])
        with torch.enable_grad():
            between = between.detach().requires_grad_()
            inner = activated(between)
        # Without the routing weights at first: the gradient of those is a row's dinner · inner.
        rows = dy[token]
        dinner = grouped(quantised(rows), transposed(down8), expert_of_row, dtype)
        dweights = (dinner.double() * inner.detach().double()).sum(1).view(weights.shape).to(weights.dtype)
        weight = weights.flatten()[:, None]
        rows, dinner = (rows * weight).to(dtype), (dinner * weight).to(dtype)
        ddown = weight_gradients(quantised(rows), inner8, expert_of_row, experts, dtype)
        (dbetween,) = torch.autograd.grad(inner, between, dinner)
        dbetween8 = quantised(dbetween)
        dgate_up = weight_gradients(dbetween8, x8, expert_of_row, experts, dtype)
        dx = grouped(dbetween8, transposed(gate_up8), expert_of_row, dtype)
        dx = dx.double().view(*weights.shape, -1).sum(1).to(dtype)
        return dx, None, dweights, dgate_up, ddown


def multiply_in_fp8(model):
    for layer in model.model.layers:
        attention, experts = layer.self_attn, layer.mlp.experts
        Joined([attention.q_proj, attention.k_proj, attention.v_proj])
        Joined([attention.o_proj])
        experts.forward = lambda x, index, weights, experts=experts: Fp8Experts.apply(
            x, index, weights, experts.gate_up_proj, experts.down_proj
        )


def main():
    for name, (file, seed, config) in CASES.items():
        for dtype in DTYPES:
            model, inputs = prepare(name, seed, config, dtype)
            multiply_in_fp8(model)
            with RouterRecord(model) as record:
                output = model(**inputs)
            output.loss.backward()
            margin = record.margin(config["num_experts_per_tok"], torch.ones_like(inputs["input_ids"]).flatten().bool())
            assert margin > SMALLEST_MARGIN, f"{name}: margin {margin}"
            tensors = {key: tensor.int() for key, tensor in inputs.items()} | {"loss": output.loss.float()}
            parameters = dict(model.named_parameters())
            for key, tensor in published_names(parameters).items():
                tensors[f"weight.{key}"] = tensor
            for key, tensor in published_names({key: p.grad for key, p in parameters.items()}).items():
                tensors[f"grad.{key}"] = tensor
            path = GOLDEN / "fp8" / f"{file}_{dtype}.safetensors"
            write_tensors(path, tensors, config=config, dtype=dtype, margin=margin)


if __name__ == "__main__":
    main()
