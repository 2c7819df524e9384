"""Writes tests/golden/fp8/*mixtral*_<dtype>.safetensors: steps of Mixtral whose blocks multiply in FP8."""

from common import DTYPES, GOLDEN, write_tensors
from fp8 import BLOCK, BlockFp8Linear, Fp8Linear, Joined, in_blocks, product, quantised, rows_in_blocks
from mixtral_step import prepare
from models import RouterRecord, mixtral, published_names

import torch
from torch.nn.functional import silu

SIZES = dict(head_dim=16, intermediate_size=16)  # sides of matrices are multiples of 16
STARVED = mixtral(**SIZES, num_local_experts=5)
SMALLEST_MARGIN = 0.04


class Tensorwise:
    """Products of experts' rows with one scale for each operand, of all experts together."""

    linear = Fp8Linear

    @staticmethod
    def forward(rows, matrices, expert_of_row):
        """rows[r] · matrices[expert of r]ᵀ"""
        rows8, matrices8 = quantised(rows), quantised(matrices)
        y = torch.zeros(rows.shape[0], matrices.shape[1], dtype=rows.dtype)
        for expert in range(matrices.shape[0]):
            own = expert_of_row == expert
            y[own] = product((rows8[0][own], rows8[1]), (matrices8[0][expert], matrices8[1]), rows.dtype)
        return y

    @staticmethod
    def weight_gradients(dy, x, expert_of_row, experts):
        dy8, x8 = quantised(dy), quantised(x)
        return torch.stack(
            [
                product((dy8[0][expert_of_row == e].T, dy8[1]), (x8[0][expert_of_row == e].T, x8[1]), dy.dtype)
                for e in range(experts)
            ]
        )


class Blockwise:
    """The same with scales of blocks, which have rows of one expert."""

    linear = BlockFp8Linear

    @staticmethod
    def forward(rows, matrices, expert_of_row):
        y = torch.zeros(rows.shape[0], matrices.shape[1], dtype=rows.dtype)
        for expert, matrix in enumerate(matrices):
            own = expert_of_row == expert
            y[own] = (rows_in_blocks(rows[own]) @ in_blocks(matrix, BLOCK, BLOCK)[0].T).to(rows.dtype)
        return y

    @staticmethod
    def weight_gradients(dy, x, expert_of_row, experts):
        return torch.stack(
            [
                (rows_in_blocks(dy[expert_of_row == e].T) @ rows_in_blocks(x[expert_of_row == e].T).T).to(dy.dtype)
                for e in range(experts)
            ]
        )


def activated(gate_up):
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


class Fp8Experts(torch.autograd.Function):
    """The experts of a block. Rows are the slots of all tokens."""

    @staticmethod
    def forward(context, x, expert_of_slot, weights, gate_up, down, recipe):
        expert_of_row, token = expert_of_slot.flatten(), torch.arange(x.shape[0]).repeat_interleave(weights.shape[1])
        between = recipe.forward(x[token], gate_up, expert_of_row)
        rows = recipe.forward(activated(between), down, expert_of_row)
        context.save_for_backward(x, weights, gate_up, down, between, expert_of_row, token)
        context.recipe = recipe
        return (rows.double() * weights.flatten()[:, None].double()).view(*weights.shape, -1).sum(1).to(x.dtype)

    @staticmethod
    def backward(context, dy):
        x, weights, gate_up, down, between, expert_of_row, token = context.saved_tensors
        recipe, experts, dtype = context.recipe, gate_up.shape[0], dy.dtype
        with torch.enable_grad():
            between = between.detach().requires_grad_()
            inner = activated(between)
        # Without the routing weights at first: the gradient of those is a row's dinner · inner.
        rows = dy[token]
        dinner = recipe.forward(rows, down.transpose(1, 2), expert_of_row)
        dweights = (dinner.double() * inner.detach().double()).sum(1).view(weights.shape).to(weights.dtype)
        weight = weights.flatten()[:, None]
        rows, dinner = (rows * weight).to(dtype), (dinner * weight).to(dtype)
        ddown = recipe.weight_gradients(rows, inner, expert_of_row, experts)
        (dbetween,) = torch.autograd.grad(inner, between, dinner)
        dgate_up = recipe.weight_gradients(dbetween, x[token], expert_of_row, experts)
        dx = recipe.forward(dbetween, gate_up.transpose(1, 2), expert_of_row)
        dx = dx.double().view(*weights.shape, -1).sum(1).to(dtype)
        return dx, None, dweights, dgate_up, ddown, None


def multiply_in_fp8(model, recipe):
    for layer in model.model.layers:
        attention, experts = layer.self_attn, layer.mlp.experts
        Joined([attention.q_proj, attention.k_proj, attention.v_proj], recipe.linear)
        Joined([attention.o_proj], recipe.linear)
        experts.forward = lambda x, index, weights, experts=experts: Fp8Experts.apply(
            x, index, weights, experts.gate_up_proj, experts.down_proj, recipe
        )


# file: recipe, name in mixtral_step.prepare(), seed (chosen for a wide margin), config
CASES = {
    "mixtral": (Tensorwise, "plain_top2", 17, mixtral(**SIZES)),
    "mixtral_starved": (Tensorwise, "starved_experts", 104, STARVED),
    "blockwise_mixtral": (Blockwise, "starved_experts", 274, STARVED),
}


def main():
    for file, (recipe, name, seed, config) in CASES.items():
        for dtype in DTYPES:
            model, inputs = prepare(name, seed, config, dtype)
            multiply_in_fp8(model, recipe)
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
