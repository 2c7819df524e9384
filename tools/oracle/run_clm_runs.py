"""Writes tests/golden/run_clm: runs of transformers' run_clm.py on the CPU, and the small inputs they take.

    run_clm_runs.py RUN_CLM_PATH [--text SHAKESPEARE] [--only CASE ...] [--into FOLDER]

RUN_CLM_PATH is the script of the same version as the installed transformers. With --text the inputs are written, too.
"""

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run_clm_cases import CASES

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "tests" / "golden" / "run_clm"
PLACES = {
    "{data}": FOLDER,
    "{config}": FOLDER / "configs",
    "{model}": FOLDER / "saved",
    "{tokenizer}": REPOSITORY / "examples" / "tokenizers" / "shakespeare-4k",
}
TIMES = re.compile(r"_(runtime|per_second|preparation_time)$")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "warning",  # as when not set; common.py sets another for its own process
}


class Accuracy:
    """Stands in for the metric of this name, which the evaluate library would download."""

    @staticmethod
    def compute(predictions, references):
        return {"accuracy": float((predictions == references).mean())}


def run_script(path, arguments):
    """Runs the script in this process, as `python path arguments` would."""
    import evaluate

    evaluate.load = lambda name, **_: {"accuracy": Accuracy}[name]
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def without_times(value):
    """The same JSON with null for everything that is a duration or a rate."""
    if isinstance(value, dict):
        return {key: None if TIMES.search(key) else without_times(item) for key, item in value.items()}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def printed_records(output):
    """The first log line of the console and the last ones of training and of evaluation, with times masked."""
    lines = re.findall(r"\{'(?:loss|train_\w+|eval_\w+)': .*", output)
    lines = [re.sub(r"('\w+_(?:runtime|per_second)': ')[^']*'", r"\1*'", line) for line in lines]
    kept = lines[:1] + [line for line in lines if "'train_loss'" in line]
    kept += [line for line in lines if "'eval_loss'" in line][-1:]
    return list(dict.fromkeys(kept))


def announced(errors):
    """What the Trainer says before training starts: name → number as printed."""
    found = {}
    for name in ["Num examples", "Num Epochs", "Total optimization steps", "Number of trainable parameters"]:
        match = re.search(rf"^(?:.*>> )? +{name} = ([\d,]+)", errors, re.M)
        if match:
            found[name] = int(match[1].replace(",", ""))
    return found


def run_case(script, name, details):
    """One run in a process and folder of its own; returns its golden record."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        places = {**PLACES, "{out}": out}
        arguments = details["arguments"]
        for place, path in places.items():
            arguments = [argument.replace(place, str(path)) for argument in arguments]
        environment = {**os.environ, **ENVIRONMENT, "HF_HOME": scratch + "/hf"}
        process = subprocess.run([sys.executable, __file__, "--inside", script, *arguments], env=environment, cwd=scratch,
                                 capture_output=True, text=True, check=False)
        record = {"name": name, **details, "exit_code": process.returncode}
        if process.returncode != 0:
            record["error"] = re.findall(r"^[\w.]+(?:Error|Exception): .*", process.stderr, re.M)[-1]
        record["announced"] = announced(process.stderr)
        record["printed"] = printed_records(process.stdout)
        for key in ["train_results", "eval_results", "all_results", "trainer_state", "config", "generation_config"]:
            file = out / f"{key}.json"
            if file.exists():
                record[key] = without_times(json.loads(file.read_text()))
        record["files"] = sorted(str(file.relative_to(out)) for file in out.rglob("*") if file.is_file())
    text = json.dumps(record)
    for place, path in places.items():
        text = text.replace(str(path), place)
    return json.loads(text)


def compact(record):
    """JSON with one line per key and per log record."""
    state = record.get("trainer_state")
    history = state.pop("log_history") if state else None
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    if history is not None:
        lines.append(' "log_history": [\n' + ",\n".join("  " + json.dumps(entry) for entry in history) + "\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_inputs(text_path):
    """The texts, the configs and the saved model that the runs take."""
    from common import write_json
    from models import build_model, llama, mixtral

    lines = Path(text_path).read_text(encoding="utf-8").splitlines(keepends=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "train.txt").write_text("".join(lines[:1500]), encoding="utf-8")
    (FOLDER / "validation.txt").write_text("".join(lines[30000:30350]), encoding="utf-8")
    # A dataset by name: run_clm.py streams files only when it has to split them.
    (FOLDER / "streamed").mkdir(exist_ok=True)
    (FOLDER / "streamed" / "train.txt").write_text("".join(lines[2000:2600]), encoding="utf-8")
    card = "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n---\n"
    card += "Lines of tinyshakespeare. The card names the column: run_clm.py asks a stream for its columns before it reads it.\n"
    (FOLDER / "streamed" / "README.md").write_text(card, encoding="utf-8")
    (FOLDER / "streamed" / "validation.txt").write_text("".join(lines[31000:31100]), encoding="utf-8")
    # With the usual 0.02 a model this small attends evenly everywhere, and its losses would not show a wrong attention.
    sizes = {"vocab_size": 4096, "max_position_embeddings": 128, "initializer_range": 0.2}
    routing = {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02, "sliding_window": None}
    configs = {
        "llama": llama(**sizes),
        "llama_bfloat16": llama(**sizes, dtype="bfloat16"),
        "mixtral": mixtral(**sizes, **routing, output_router_logits=True),
        "mixtral_plain": mixtral(**sizes, **routing, output_router_logits=False),
    }
    for name, config in configs.items():
        write_json(FOLDER / "configs" / f"{name}.json", config)
    saved = llama(**sizes, num_hidden_layers=1, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    shutil.rmtree(FOLDER / "saved", ignore_errors=True)
    model = build_model(saved, "bfloat16", seed=3)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # away from one, so that it shows if they are not loaded
            parameter.data.normal_(1.0, 0.1)
    model.save_pretrained(FOLDER / "saved")
    for file in (FOLDER / "saved").iterdir():
        file.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script")
    parser.add_argument("--text")
    parser.add_argument("--only", nargs="+", default=list(CASES))
    parser.add_argument("--into", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.text:
        write_inputs(options.text)
    options.into.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        record = run_case(str(Path(options.script).resolve()), name, CASES[name])
        print(name, record["exit_code"], record.get("error", ""), flush=True)
        (options.into / f"{name}.json").write_text(compact(record), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_script(sys.argv[2], sys.argv[3:])
    else:
        main()
