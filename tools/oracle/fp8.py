"""Writes tests/golden/fp8: numbers in FP8, and steps of dense models whose blocks multiply in FP8, with one scale for
each tensor or for every 128 numbers."""

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
# Sides and a number of tokens that are above 128, and no multiples of it.
BLOCKWISE = llama(
    **SIZES,
    hidden_size=144,
    intermediate_size=160,
    num_hidden_layers=1,
    max_position_embeddings=128,
    attention_bias=True,
    mlp_bias=True,
)
BLOCKWISE_LENGTH = 75
BLOCK = 128


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


def in_blocks(x, height, width):
    """What the FP8 numbers of x [rows,columns] stand for, as float64, and the scales of blocks of this size."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x.detach().float(), (0, -columns % width, 0, -rows % height))
    blocks = padded.view(padded.shape[0] // height, height, padded.shape[1] // width, width)
    maximum = blocks.abs().amax((1, 3), keepdim=True).clamp(min=SMALLEST_MAXIMUM)
    mantissa, exponent = torch.frexp(maximum.double() / LARGEST)  # mantissa in [0.5, 1)
    scale = torch.ldexp(torch.ones_like(mantissa), exponent - (mantissa == 0.5).int())
    numbers = codes((blocks.double() / scale).float()).double() * scale
    return numbers.view(padded.shape)[:rows, :columns], scale[:, 0, :, 0].float()


def rows_in_blocks(x):
    return in_blocks(x, 1, BLOCK)[0]


def blocks():
    """One matrix in blocks of rows, of columns and of squares, with numbers of many magnitudes and a block of zeros."""
    magnitudes = 2.0 ** torch.randint(-9, 9, (140, 9), generator=generator(6))
    x = torch.randn(140, 144, generator=generator(5)) * magnitudes.repeat_interleave(16, 1)
    x[3, :128] = 0
    x[7, 5] = 448.0  # stays one
    tensors = {"x": x}
    for name, height, width in (("rows", 1, BLOCK), ("columns", BLOCK, 1), ("squares", BLOCK, BLOCK)):
        numbers, scales = in_blocks(x, height, width)
        tensors |= {name: numbers.float(), f"{name}.scales": scales}
    write_tensors(GOLDEN / "fp8" / "blocks.safetensors", tensors)


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


class BlockFp8Linear(torch.autograd.Function):
    """The same with scales of blocks: 128 neighbours along what is summed over, and 128 x 128 weights."""

    @staticmethod
    def forward(context, x, weight, bias):
        weight8 = in_blocks(weight, BLOCK, BLOCK)[0]
        context.save_for_backward(x, weight8)
        context.bias = bias
        y = rows_in_blocks(x) @ weight8.T
        return (y if bias is None else y + bias.double()).to(x.dtype)

    @staticmethod
    def backward(context, dy):
        x, weight8 = context.saved_tensors
        return (
            (rows_in_blocks(dy) @ weight8).to(dy.dtype),
            (rows_in_blocks(dy.T) @ rows_in_blocks(x.T).T).to(dy.dtype),
            None if context.bias is None else dy.double().sum(0).to(dy.dtype),
        )


class Joined:
    """Linear modules of one input as one matrix, so that its scales are those of the joined weights, and of their dy."""

    def __init__(self, modules, linear=Fp8Linear):
        self.modules = modules
        self.linear = linear
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
            y = self.linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)
            sizes = [module.weight.shape[0] for module in self.modules]
            self.outputs = y.view(*x.shape[:-1], -1).split(sizes, dim=-1)
        return self.outputs[index]


def multiply_in_fp8(model, linear):
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        Joined([attention.q_proj, attention.k_proj, attention.v_proj], linear)
        Joined([attention.o_proj], linear)
        Joined([mlp.gate_proj, mlp.up_proj], linear)
        Joined([mlp.down_proj], linear)


def step(name, config, seed, length=LENGTH, linear=Fp8Linear):
    for dtype in DTYPES:
        source = generator(seed)
        model = build_model(config, dtype)
        fill(model, source)
        input_ids = torch.randint(0, config["vocab_size"], (ROWS, length), generator=source)
        labels = input_ids.clone()
        labels[0, 3:7] = -100
        multiply_in_fp8(model, linear)
        output = model(input_ids=input_ids, labels=labels)
        output.loss.backward()
        tensors = {"input_ids": input_ids.int(), "labels": labels.int(), "loss": output.loss.float()}
        for key, parameter in model.named_parameters():
            tensors |= {f"weight.{key}": parameter, f"grad.{key}": parameter.grad}
        write_tensors(GOLDEN / "fp8" / f"{name}_{dtype}.safetensors", tensors, config=config, dtype=dtype)


if __name__ == "__main__":
    numbers()
    for seed, (name, config) in enumerate(MODELS.items()):
        step(name, config, 2610 + seed)
    blocks()
    step("blockwise", BLOCKWISE, 2620, BLOCKWISE_LENGTH, BlockFp8Linear)
