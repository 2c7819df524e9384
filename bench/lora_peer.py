"""PyTorch + PEFT on one device, to compare with `drover bench --lora_r`.

A step is forward, backward, clipping at 1.0 and AdamW on the adapters. These are float32, as PEFT makes
them and as Drover keeps them, and the step runs under autocast, as a Trainer with bf16 runs it; with
`--adapters model` they have the dtype of the model, without autocast. Weights are random, tokens too. Labels are at the end of
rows, as in `drover bench --targets`. Prints one JSON object: tokens per second from the median step, and the
most memory that PyTorch's allocator held.

    bench/lora_peer.py --model examples/configs/llama3-8b.json --batch 4 --seq 2048 --compile layers
"""

import argparse
import contextlib
import json
import os
import statistics
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="config.json")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=0, help="0: as the config says")
    parser.add_argument("--lora_r", type=int, default=16, help="0: all weights are trained")
    parser.add_argument("--lora_alpha", type=float, default=32)
    parser.add_argument("--targets", type=float, default=1, help="share of the positions with a label")
    parser.add_argument("--adapters", choices=["float32", "model"], default="float32", help="dtype of the adapters")
    parser.add_argument("--attention", choices=["sdpa", "cudnn"], default="sdpa",
                        help="sdpa: PyTorch chooses; cudnn: cuDNN's")
    parser.add_argument("--compile", choices=["no", "layers", "model"], default="no",
                        help="layers: each decoder layer by itself, which compiles one of them; model: all at once")
    parser.add_argument("--checkpointing", action="store_true", help="recompute the layers' activations")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def make_model(options):
    with open(options.model) as file:
        fields = json.load(file)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    if options.layers > 0:
        config.num_hidden_layers = options.layers
    config.use_cache = False
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, options.dtype))
    model.train()
    layers = model.model.layers
    if options.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if options.lora_r > 0:
        adapters = LoraConfig(r=options.lora_r, lora_alpha=options.lora_alpha, lora_dropout=0.0,
                              target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapters, autocast_adapter_dtype=options.adapters == "float32")
    if options.compile == "layers":
        for layer in layers:
            layer.compile()
    return config, torch.compile(model) if options.compile == "model" else model


def make_batches(options, vocab_size):
    batches = []
    for _ in range(4):
        ids = torch.randint(0, vocab_size, (options.batch, options.seq), device=options.device)
        labels = ids.clone()
        labels[:, : options.seq - round(options.targets * options.seq)] = -100
        batches.append((ids, labels))
    return batches


def main():
    options = parse()
    cuda = options.device == "cuda"
    config, model = make_model(options)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    batches = make_batches(options, config.vocab_size)

    def attention():
        return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if options.attention == "cudnn" else contextlib.nullcontext()

    def precision():
        if options.lora_r == 0 or options.adapters == "model":
            return contextlib.nullcontext()
        return torch.autocast(options.device, getattr(torch, options.dtype))

    def step(number):
        ids, labels = batches[number % len(batches)]
        with attention():
            with precision():
                loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def wait():
        if cuda:
            torch.cuda.synchronize()

    seconds = []
    for number in range(options.warm_up + options.steps):
        wait()
        start = time.perf_counter()
        loss = step(number)
        wait()
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[options.warm_up :])
    print(json.dumps({
        "lora_r": options.lora_r,
        "compile": options.compile,
        "attention": options.attention,
        "adapters": options.adapters,
        "checkpointing": options.checkpointing,
        "targets": options.targets,
        "trained_parameters": sum(p.numel() for p in trained),
        "tokens_per_second": options.batch * options.seq / median,
        "step_ms": 1e3 * median,
        "warm_up_seconds": sum(seconds[: options.warm_up]),
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "loss": float(loss.detach()),
        "torch": torch.__version__,
    }), flush=True)


if __name__ == "__main__":
    main()
