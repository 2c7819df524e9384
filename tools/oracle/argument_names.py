"""Writes tests/golden/arguments.json: the arguments of run_clm.py in several releases, with their defaults.

Reads the sources of transformers' wheels (fetched with pip) and imports nothing. A default of null is not compared: it is
None, computed, or one of those that this program chooses otherwise (OWN_DEFAULTS).
"""

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSIONS = ["4.43.4", "4.57.6", "5.15.1"]
# optim: all forms of AdamW are one; the others differ between releases, or an empty text stands for unset.
OWN_DEFAULTS = {
    "optim", "report_to", "trackio_space_id", "average_tokens_across_devices", "include_num_input_tokens_seen",
    "hub_private_repo", "fsdp", "debug", "mp_parameters",
}
# The two other classes of run_clm.py, which is not part of the wheels.
SCRIPT = {
    "model_name_or_path": None, "model_type": None, "config_overrides": None, "config_name": None, "tokenizer_name": None,
    "cache_dir": None, "use_fast_tokenizer": True, "model_revision": "main", "token": None, "trust_remote_code": False,
    "torch_dtype": None, "dtype": None, "low_cpu_mem_usage": False, "dataset_name": None, "dataset_config_name": None,
    "train_file": None, "validation_file": None, "max_train_samples": None, "max_eval_samples": None, "streaming": False,
    "block_size": None, "overwrite_cache": False, "validation_split_percentage": 5, "preprocessing_num_workers": None,
    "keep_linebreaks": True,
}
FORKS = {
    "spmd_2d_sharding": 0, "spmd_fsdp_sharding": False, "spmd_grad_chkpt": False, "spmd_defer_init": False,
    "spmd_dcn_parallelism": 1, "spmd_debug": False, "flash_attention": False, "gmm": False, "gmm_stack": False,
    "static": False, "peft_lora": False,
}


def default_of(node):
    """The default in a field's declaration; None when it is not a literal."""
    if isinstance(node, ast.Call):
        node = next((word.value for word in node.keywords if word.arg == "default"), None)
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def fields_of(source):
    """Name → default of every field of the class TrainingArguments."""
    cls = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "TrainingArguments")
    fields = {}
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_") and "ClassVar" not in ast.unparse(node.annotation):
            fields[node.target.id] = None if node.target.id in OWN_DEFAULTS else default_of(node.value)
    return fields


def main():
    golden = Path(__file__).resolve().parents[2] / "tests" / "golden" / "arguments.json"
    names = {"run_clm.py": SCRIPT, "forks": FORKS}
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"transformers=={version}"]
            subprocess.run(command, check=True)
            wheel = next(Path(folder).glob("*.whl"))
            names[version] = fields_of(zipfile.ZipFile(wheel).read("transformers/training_args.py").decode())
    golden.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
