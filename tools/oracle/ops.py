"""Writes tests/golden/ops/<operation>.safetensors: each operation forward and backward, in float32 and bfloat16."""

from common import CaseFile, DTYPES, GOLDEN, generator

import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

OPS = GOLDEN / "ops"


class Draw:
    """Draws a case's inputs from one generator, in the order they are asked for."""

    def __init__(self, seed, dtype):
        self.generator = generator(seed)
        self.dtype = DTYPES[dtype]

    def normal(self, *shape, mean=0.0, std=1.0):
        return (torch.randn(shape, generator=self.generator) * std + mean).to(self.dtype)

    def integers(self, low, high, *shape):
        return torch.randint(low, high, shape, generator=self.generator).to(torch.int32)


def leaf(tensor, dtype=None):
    return tensor.detach().to(dtype or tensor.dtype).clone().requires_grad_()


def name_of(dtype, *parts):
    return "_".join(["f32" if dtype == "float32" else "bf16", *map(str, parts)])


def rms_norm(dtype):
    cases = []
    for n, h, eps, has_residual in [
        (1, 1, 1e-5, True),
        (7, 17, 1e-6, False),
        (3, 64, 1e-5, True),
        (17, 33, 1e-5, True),
        (5, 130, 1e-6, True),
        (2, 1024, 1e-5, False),
    ]:
        draw = Draw(n * 1000 + h, dtype)
        x = draw.normal(n, h, std=1.5)
        residual = draw.normal(n, h, std=2.0) if has_residual else torch.zeros_like(x)
        norm = LlamaRMSNorm(h, eps).to(DTYPES[dtype])
        norm.weight.data = draw.normal(h, mean=1.0, std=0.3)
        dy, dresidual_out = draw.normal(n, h), draw.normal(n, h)
        total = leaf(x + residual)
        y = norm(total)
        # total feeds both the norm and the residual stream, so its gradient is the sum of the two.
        torch.autograd.backward([y, total], [dy, dresidual_out if has_residual else torch.zeros_like(dy)])
        fields = {
            "x": x,
            "weight": norm.weight,
            "dy": dy,
            "y": y,
            "rstd": torch.rsqrt(total.float().pow(2).mean(-1) + eps),
            "dx": total.grad,
            "dweight": norm.weight.grad,
        }
        if has_residual:
            fields |= {"residual": residual, "dresidual_out": dresidual_out, "residual_out": total}
        cases.append((name_of(dtype, n, h), fields, {"eps": eps, "has_residual": has_residual}))
    return cases


def head_norm(dtype):
    cases = []
    for n, heads, dim, eps in [
        (1, 1, 2, 1e-6),
        (7, 3, 8, 1e-5),
        (17, 1, 12, 1e-6),
        (5, 4, 66, 1e-6),
        (33, 3, 80, 1e-5),
        (9, 5, 128, 1e-6),
        (3, 2, 256, 1e-6),
    ]:
        draw = Draw(n * 1000 + dim, dtype)
        x, dy = leaf(draw.normal(n, heads, dim, std=1.5)), draw.normal(n, heads, dim)
        norm = Qwen3RMSNorm(dim, eps).to(DTYPES[dtype])
        norm.weight.data = draw.normal(dim, mean=1.0, std=0.3)
        y = norm(x)
        y.backward(dy)
        fields = {"x": x, "weight": norm.weight, "dy": dy, "y": y, "dx": x.grad, "dweight": norm.weight.grad}
        cases.append((name_of(dtype, n, heads, dim), fields, {"eps": eps}))
    return cases


def rope(dtype):
    cases = []
    for batch, length, heads, dim, table, offset in [
        (1, 1, 1, 2, 4, 3),
        (2, 7, 3, 8, 7, 0),
        (2, 17, 1, 12, 40, 5),
        (1, 5, 4, 66, 9, 0),
        (1, 9, 2, 128, 60, 48),
    ]:
        draw = Draw(length * 1000 + dim, dtype)
        x, dy = leaf(draw.normal(batch, length, heads, dim)), draw.normal(batch, length, heads, dim)
        inv_freq = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        angles = torch.arange(table, dtype=torch.float32)[:, None] * inv_freq
        cos, sin = angles.cos(), angles.sin()
        # Rows differ: each begins one position later than the one before, wrapping inside the table.
        positions = (torch.arange(length) + torch.arange(batch)[:, None] + offset) % table
        full = [torch.cat([t, t], -1)[positions].to(DTYPES[dtype]) for t in (cos, sin)]
        y, _ = apply_rotary_pos_emb(x, x, *full, unsqueeze_dim=2)
        y.backward(dy)
        fields = {"x": x, "cos": cos, "sin": sin, "positions": positions.int(), "dy": dy, "y": y, "dx": x.grad}
        cases.append((name_of(dtype, batch, length, heads, dim), fields, {}))
    return cases


# name, B, T, query heads, key-value heads, D, window, sequences as (row, begin, length); None = every row whole.
ATTENTION_CASES = [
    ("mha_t1", 2, 1, 2, 2, 16, 0, None),
    ("mha_t5", 2, 5, 4, 4, 8, 0, None),
    ("gqa_t17", 2, 17, 4, 2, 16, 0, None),
    ("mqa_t17_d33", 1, 17, 4, 1, 33, 0, None),
    ("gqa_t17_d128", 1, 17, 2, 1, 128, 0, None),
    ("gqa_t33_d64", 1, 33, 2, 1, 64, 0, None),
    ("mha_t130_d33", 1, 130, 1, 1, 33, 0, None),
    ("gqa_t200_d8", 1, 200, 2, 1, 8, 0, None),
    ("window1_t5", 1, 5, 2, 1, 8, 1, None),
    ("window7_t64", 1, 64, 4, 2, 8, 7, None),
    ("window33_t200", 1, 200, 2, 1, 8, 33, None),
    ("padded_t17", 3, 17, 4, 2, 16, 0, [(0, 0, 17), (1, 0, 9), (2, 0, 1)]),
    ("padded_window_t130", 2, 130, 2, 1, 8, 40, [(0, 0, 71), (1, 0, 130)]),
    ("packed_t64", 1, 64, 4, 2, 16, 0, [(0, 0, 5), (0, 5, 1), (0, 6, 34), (0, 40, 24)]),
    ("packed_tail_t200", 2, 200, 2, 1, 8, 0, [(0, 0, 130), (0, 130, 70), (1, 0, 33), (1, 33, 100)]),
    ("packed_window_t64", 1, 64, 2, 1, 8, 9, [(0, 0, 31), (0, 31, 33)]),
]


def attention(dtype):
    compute = torch.float64 if dtype == "float32" else torch.float32
    cases = []
    for seed, (name, batch, length, heads, kv_heads, dim, window, sequences) in enumerate(ATTENTION_CASES):
        draw = Draw(7000 + seed, dtype)
        given = {"q": draw.normal(batch, length, heads, dim)}
        given |= {key: draw.normal(batch, length, kv_heads, dim) for key in "kv"}
        given["dout"] = draw.normal(batch, length, heads, dim)
        kind = name.split("_")[0] if sequences else "dense"
        sequences = sequences or [(row, 0, length) for row in range(batch)]

        owner = torch.full((batch, length), -1)
        for index, (row, begin, size) in enumerate(sequences):
            owner[row, begin : begin + size] = index
        inside = owner >= 0
        i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
        visible = (j <= i) & ((j > i - window) if window else True)
        visible = visible & (owner[:, :, None] == owner[:, None, :]) & inside[:, None, :]

        scale = dim**-0.5
        q, k, v = (leaf(given[key], compute) for key in "qkv")
        keys, values = (t.repeat_interleave(heads // kv_heads, dim=2) for t in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, keys) * scale
        # Positions in no sequence see everything here (a row of -inf has no softmax) and are zeroed below.
        blocked = ~(visible | ~inside[:, :, None])[:, None]
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        out = torch.einsum("bhij,bjhd->bihd", weights, values) * inside[:, :, None, None]
        out.backward(given["dout"].to(compute))

        fields = given | {"out": out, "dq": q.grad, "dk": k.grad, "dv": v.grad}
        fields = {key: t if key in given else t.float() for key, t in fields.items()}
        for column, field in enumerate(["sequence_row", "sequence_begin", "sequence_length"]):
            fields[field] = torch.tensor([s[column] for s in sequences], dtype=torch.int32)
        if kind != "packed":
            fields["lengths"] = fields["sequence_length"]
        scalars = {"scale": scale, "causal": True, "window": window, "kind": kind}
        cases.append((name_of(dtype, name), fields, scalars))
    return cases


def swiglu(dtype):
    cases = []
    for n, width in [(1, 1), (7, 17), (33, 5), (3, 130)]:
        draw = Draw(n * 1000 + width, dtype)
        gate_up, dact = leaf(draw.normal(n, 2 * width, std=3.0)), draw.normal(n, width)
        gate, up = gate_up.chunk(2, -1)
        act = F.silu(gate) * up
        act.backward(dact)
        fields = {"gate_up": gate_up, "dact": dact, "act": act, "dgate_up": gate_up.grad}
        cases.append((name_of(dtype, n, width), fields, {}))
    return cases


def cross_entropy(dtype):
    cases = []
    for label, rows, vocabulary, std in [
        ("one_row", 1, 7, 2.0),
        ("plain", 17, 33, 2.0),
        ("wide", 5, 1031, 3.0),
        ("huge", 4, 130, 30000.0),
        ("all_ignored", 3, 9, 1.0),
    ]:
        draw = Draw(rows * 1000 + vocabulary, dtype)
        logits = draw.normal(rows, vocabulary, std=std)
        targets = draw.integers(0, vocabulary, rows)
        if rows > 1:
            targets[1::3] = -100
            logits[0, 2] = logits[0, 5] = logits[0].max() + 1  # a tie for the maximum
        if label == "all_ignored":
            targets[:] = -100
        logits = leaf(logits)
        scale = 1.0 / max(1, int((targets != -100).sum()))
        loss = F.cross_entropy(logits.float(), targets.long(), ignore_index=-100, reduction="none")
        (loss.sum() * scale).backward()
        argmax = (logits == logits.max(-1, keepdim=True).values).int().argmax(-1)
        fields = {"logits": logits, "targets": targets, "loss": loss, "argmax": argmax.int(), "dlogits": logits.grad}
        cases.append((name_of(dtype, label), fields, {"scale": scale}))
    return cases


def embedding(dtype):
    cases = []
    for n, vocabulary, h, padding_index in [(1, 1, 1, -1), (17, 7, 33, -1), (33, 11, 5, 3), (7, 130, 8, 0)]:
        draw = Draw(n * 1000 + h, dtype)
        weight = draw.normal(vocabulary, h)
        ids, dy = draw.integers(0, vocabulary, n), draw.normal(n, h)
        if padding_index >= 0:
            ids[::4] = padding_index
        table = leaf(weight, torch.float64)
        y = F.embedding(ids.long(), table, padding_idx=padding_index if padding_index >= 0 else None)
        y.backward(dy.double())
        fields = {"ids": ids, "weight": weight, "dy": dy, "y": y.to(weight.dtype), "dweight": table.grad.float()}
        cases.append((name_of(dtype, n, vocabulary, h), fields, {"padding_index": padding_index}))
    return cases


def gemm(dtype):
    cases = []
    for n, k, m, has_bias in [
        (1, 1, 1, True),
        (7, 17, 33, True),
        (33, 7, 1, False),
        (1, 33, 17, True),
        (17, 64, 48, False),
        (5, 130, 9, True),
        (66, 31, 35, False),
    ]:
        draw = Draw(n * 10000 + k * 100 + m, dtype)
        given = {"x": draw.normal(n, k), "w": draw.normal(m, k), "dy": draw.normal(n, m)}
        if has_bias:
            given["bias"] = draw.normal(m)
        x, w = leaf(given["x"], torch.float64), leaf(given["w"], torch.float64)
        bias = leaf(given["bias"], torch.float64) if has_bias else None
        y = F.linear(x, w, bias)
        y.backward(given["dy"].double())
        fields = given | {"y": y.float(), "dx": x.grad.float(), "dw": w.grad.float()}
        if has_bias:
            fields["db"] = bias.grad.float()
        cases.append((name_of(dtype, n, k, m), fields, {"has_bias": has_bias}))
    return cases


def adamw(dtype):
    shapes = {"matrix": ((7, 17), 0.1), "norm": ((33,), 0.0), "one": ((1,), 0.1), "wide": ((3, 64), 0.01)}
    steps, implementations = 5, ["plain", "fused"] if dtype == "float32" else ["fused"]
    cases = []
    for implementation in implementations:
        for label, rates, beta1, beta2, epsilon in [
            ("usual", [1e-2] * 5, 0.9, 0.999, 1e-8),
            ("scheduled", [0.0, 5e-3, 1e-2, 7.5e-3, 1e-3], 0.8, 0.95, 1e-5),
        ]:
            draw = Draw(9000, dtype)
            parameters = {name: leaf(draw.normal(*shape, std=0.5)) for name, (shape, _) in shapes.items()}
            groups = [{"params": [p], "weight_decay": shapes[name][1]} for name, p in parameters.items()]
            optimizer = torch.optim.AdamW(
                groups,
                lr=1.0,
                betas=(beta1, beta2),
                eps=epsilon,
                fused=implementation == "fused",
                foreach=False,
            )
            fields = {f"{name}.p0": p.detach().clone() for name, p in parameters.items()}
            for step in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = rates[step]
                for name, p in parameters.items():
                    p.grad = draw.normal(*p.shape, std=10.0 ** (-step))
                    fields[f"{name}.g{step}"] = p.grad
                optimizer.step()
            for name, p in parameters.items():
                state = optimizer.state[p]
                fields |= {f"{name}.p": p, f"{name}.m": state["exp_avg"], f"{name}.v": state["exp_avg_sq"]}
            scalars = {"learning_rates": rates, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "steps": steps}
            scalars |= {"implementation": implementation}
            scalars |= {"tensors": [{"name": name, "weight_decay": decay} for name, (_, decay) in shapes.items()]}
            cases.append((name_of(dtype, implementation, label), fields, scalars))
    return cases


def write(operation):
    file = CaseFile(OPS / f"{operation.__name__}.safetensors")
    for dtype in DTYPES:
        for name, fields, scalars in operation(dtype):
            file.add(name, fields, dtype=dtype, **scalars)
    file.write()


def main():
    for operation in [rms_norm, head_norm, rope, attention, swiglu, cross_entropy, embedding, gemm, adamw]:
        write(operation)


if __name__ == "__main__":
    main()
