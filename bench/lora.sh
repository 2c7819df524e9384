#!/bin/sh
# bench/lora.sh [PROGRAM]
# Fine-tuning Llama-3-8B with adapters of rank 16 on every matrix of its blocks, 4 x 2048 tokens, bf16, AdamW,
# nothing recomputed, on one GPU: `drover bench --lora_compare`, then PyTorch with PEFT (bench/lora_peer.py),
# each variant in a process of its own. Prints a line per case as soon as it is done: milliseconds of the
# median step, tokens per second, memory, and our speed divided by PyTorch's. What fails or takes longer than
# LIMIT seconds is named, and the rest goes on; nothing starts later than BUDGET seconds after the beginning.
# PYTHON must have torch, transformers and peft; peft is pure Python, so its folder in PYTHONPATH will do.
# CASE replaces the flags that both get, as in a trial without a GPU:
# CASE='--model examples/configs/llama-5m.json --batch 1 --seq 64 --lora_r 4 --device cpu' bench/lora.sh
set -u

checkout=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$checkout/build/release/drover}
python=${PYTHON:-python3} limit=${LIMIT:-60} budget=${BUDGET:-185}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begin=$(date +%s)
both=${CASE:-"--model $checkout/examples/configs/llama3-8b.json --batch 4 --seq 2048 --lora_r 16"}

# Prints a case from the last line of a report; our first one is what the others are compared with.
cat >"$work/line.py" <<'END'
import json, pathlib, sys
name, report, ours = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
text = pathlib.Path(report).read_text().strip()
try:
    result = json.loads(text.splitlines()[-1])
except (IndexError, ValueError):
    sys.exit(1)
def show(name, step, memory, ratio=""):
    print(f"{name:<46} {step['step_ms']:>9.1f} ms {step['tokens_per_second']:>9.0f} tok/s {memory / 2**30:>7.1f} GiB  {ratio}",
          flush=True)
if "comparison" in result:
    for step in result["comparison"]:
        show("drover, " + step["name"], step, step["planned_memory_bytes"])
    whole, frozen, adapted = (step["step_ms"] for step in result["comparison"])
    print(f"LoRA's own cost: {adapted - frozen:.1f} ms, {100 * (adapted / frozen - 1):.1f} % of a step without adapters; "
          f"its step takes {adapted / whole:.3f} of one that trains everything")
    print(f"MFU {100 * result['mfu']:.1f} %, libraries {result['library_memory_bytes'] / 2**30:.1f} GiB more")
    ours.write_text(json.dumps(result))
else:
    ratio = ""
    if ours.exists():
        mine = json.loads(ours.read_text())
        against = mine["tokens_per_second"] if result["lora_r"] > 0 else mine["comparison"][0]["tokens_per_second"]
        ratio = f"drover / PyTorch = {against / result['tokens_per_second']:.2f}"
    show(name, result, result["peak_memory_bytes"], ratio)
END

# name, command
case_of() {
    name=$1 spent=$(($(date +%s) - begin))
    shift
    if [ "$spent" -ge "$budget" ]; then
        echo "$name: left out, $spent s have passed"
        return
    fi
    timeout "$limit" "$@" >"$work/report" 2>"$work/errors"
    code=$?
    [ $code -ne 124 ] || echo "$name: stopped after $limit s"
    [ $code -eq 124 ] || "$python" "$work/line.py" "$name" "$work/report" "$work/ours" ||
        { echo "$name: failed (exit $code)"; tail -n 5 "$work/errors"; }
}
peer() {
    name=$1
    shift
    # shellcheck disable=SC2086  # $both are words
    case_of "PyTorch, $name" "$python" "$checkout/bench/lora_peer.py" $both "$@"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
# shellcheck disable=SC2086
case_of drover "$program" bench --json --lora_compare --recompute none --init counter --steps 8 $both
peer 'PEFT, compiled layers' --compile layers --attention cudnn
peer 'PEFT, compiled layers, bf16 adapters' --compile layers --attention cudnn --adapters model
peer 'PEFT, eager' --attention cudnn
peer 'PEFT, eager, bf16 adapters' --attention cudnn --adapters model
echo "$(($(date +%s) - begin)) s"
