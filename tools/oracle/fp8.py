"""Writes tests/golden/fp8: numbers in FP8, and steps of dense models whose blocks multiply in FP8."""

from common import DTYPES, GOLDEN, generator, write_tensors
from models import build_model, llama, qwen2
from one_step import fill

import torch

LARGEST, SMALLEST_MAXIMUM = 448.0, 2.0**-100
SIZES = dict(vocab_size=61, head_dim=16)  # sides of matrices are multiples of 16
MODELS = {
    "gqa": llama(**SIZES),
    "biases": llama(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, num_key_value_heads=1),
    "qwen2": qwen2(**SIZES),
}
ROWS, LENGTH = 2, 21  # 42 tokens, not a multiple of 16


def codes(x):
    """E4M3 as f8 makes it: PyTorch's cast gives NaN beyond 464, f8 its largest number."""
    return x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def numbers():
    """Every code's value, and floats on, beside and between them."""
    every = torch.arange(256, dtype=torch.uint8)
    decoded = every.view(torch.float8_e4m3fn).float()
    positive = decoded[:127]
    ties = (positive[1:] + positive[:-1]) / 2
    edges = torch.cat([positive, ties, torch.tensor([LARGEST * 1.03, 464, 500, 1e30, torch.inf, 2**-10, 2**-11, 1e-40])])
    x = torch.cat(
        [
            edges,
            torch.nextafter(edges, torch.zeros(())),
            torch.nextafter(edges, torch.full((), torch.inf)),
            torch.rand(500, generator=generator(1)) * 2 ** torch.linspace(-12, 10, 500),
        ]
    )
    x = torch.cat([x, -x, torch.tensor([torch.nan])])
    write_tensors(
        GOLDEN / "fp8" / "numbers.safetensors",
        {"decoded": decoded, "x": x, "codes": codes(x).view(torch.uint8)},
    )


def quantised(x):
    """FP8 numbers, as float64, and their scale."""
    maximum = x.detach().float().abs().max().clamp(min=SMALLEST_MAXIMUM)
    return codes(x.float() * (LARGEST / maximum)).double(), maximum / LARGEST


def product(a, b, dtype, bias=None):
    """a · bᵀ of two pairs of `quantised`, rounded once."""
    y = (a[0] @ b[0].T) * (a[1] * b[1]).double()
    return (y if bias is None else y + bias.double()).to(dtype)


class Fp8Linear(torch.autograd.Function):
    """x [N,in], weight [out,in]: y = x · weightᵀ + bias; all three products take FP8 numbers."""

    @staticmethod
    def forward(context, x, weight, bias):
        x8, weight8 = quantised(x), quantised(weight)
        context.save_for_backward(*x8, *weight8)
        context.bias = bias
        return product(x8, weight8, x.dtype, bias)

    @staticmethod
    def backward(context, dy):
        x, x_scale, weight, weight_scale = context.saved_tensors
        dy8 = quantised(dy)
        transposed = (dy8[0].T, dy8[1])
        return (
            product(dy8, (weight.T, weight_scale), dy.dtype),
            product(transposed, (x.T, x_scale), dy.dtype),
            None if context.bias is None else dy.double().sum(0).to(dy.dtype),
        )


class Joined:
    """Linear modules of one input as one matrix, so that one scale covers their weights, and one their dy."""

    def __init__(self, modules):
        self.modules = modules
        self.input = self.outputs = None
        for index, module in enumerate(modules):
            module.forward = lambda x, index=index: self(x, index)

    def __call__(self, x, index):
        if x is not self.input:
            self.input = x
            weight = torch.cat([module.weight for module in self.modules])
            # A missing bias of some modules counts as zeros; here all have one or none.
            biases = [module.bias for module in self.modules]
            bias = None if biases[0] is None else torch.cat(biases)
            y = Fp8Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)
            sizes = [module.weight.shape[0] for module in self.modules]
            self.outputs = y.view(*x.shape[:-1], -1).split(sizes, dim=-1)
        return self.outputs[index]


def multiply_in_fp8(model):
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        Joined([attention.q_proj, attention.k_proj, attention.v_proj])
        Joined([attention.o_proj])
        Joined([mlp.gate_proj, mlp.up_proj])
        Joined([mlp.down_proj])


def steps():
    for seed, (name, config) in enumerate(MODELS.items()):
        for dtype in DTYPES:
            source = generator(2610 + seed)
            model = build_model(config, dtype)
            fill(model, source)
            input_ids = torch.randint(0, config["vocab_size"], (ROWS, LENGTH), generator=source)
            labels = input_ids.clone()
            labels[0, 3:7] = -100
            multiply_in_fp8(model)
            output = model(input_ids=input_ids, labels=labels)
            output.loss.backward()
            tensors = {"input_ids": input_ids.int(), "labels": labels.int(), "loss": output.loss.float()}
            for key, parameter in model.named_parameters():
                tensors |= {f"weight.{key}": parameter, f"grad.{key}": parameter.grad}
            write_tensors(GOLDEN / "fp8" / f"{name}_{dtype}.safetensors", tensors, config=config, dtype=dtype)


if __name__ == "__main__":
    numbers()
    steps()
