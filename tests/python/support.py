"""What the tests of the Python module share: a small model, its tokenizer, rows, and processes."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import drover

SOURCE = Path(os.environ["DROVER_SOURCE_DIR"])
QUOTES = SOURCE / "examples/data/quotes.jsonl"

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed for this Python")


class Workplace:
    """A folder with a model in "model", and what is often made of it. In a program: Workplace.at(".")."""

    folder: Path

    @classmethod
    def at(cls, folder):
        place = cls()
        place.folder = Path(folder)
        return place

    @property
    def model_id(self):
        return str(self.folder / "model")

    def tokenizer(self):
        tokenizer = drover.AutoTokenizer.from_pretrained(self.model_id)
        tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token})
        return tokenizer

    def model(self, **options):
        return drover.AutoModelForCausalLM.from_pretrained(self.model_id, **options)

    def trainer(self, model=None, train_dataset=None, callbacks=(), eval_dataset=None, **arguments):
        """Three quick updates of a few rows, without checkpoints."""
        arguments = {
            "output_dir": str(self.folder / "out"),
            "max_steps": 3,
            "per_device_train_batch_size": 2,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "save_strategy": "no",
            "disable_tqdm": True,
            **arguments,
        }
        return drover.Trainer(
            model=model or self.model(),
            args=drover.TrainingArguments(**arguments),
            train_dataset=rows() if train_dataset is None else train_dataset,
            eval_dataset=eval_dataset,
            data_collator=drover.DataCollatorForLanguageModeling(self.tokenizer(), mlm=False),
            callbacks=callbacks,
        )


class ModelTest(Workplace, unittest.TestCase):
    """A test with a workplace of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="drover-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for source in ("tests/golden/run_clm/saved", "examples/tokenizers/shakespeare-4k"):
            shutil.copytree(SOURCE / source, self.model_id, dirs_exist_ok=True)

    def run_program(self, text, *, processes=1):
        """Runs Python code in the test's folder. It finds `drover`, `support`, and `place`, its workplace."""
        return run(program(text), processes=processes, cwd=self.folder)


def program(text):
    return [sys.executable, "-c", f'import drover, support\nplace = support.Workplace.at(".")\n{text}']


def rows(count=8, length=12):
    return drover.Dataset.from_list(
        [{"input_ids": [1 + (7 * row + 3 * i) % 500 for i in range(length)]} for row in range(count)]
    )


def on_processes(command, processes):
    if processes == 1:
        return command
    mpirun = [os.environ["DROVER_MPIRUN"], "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return [*mpirun, "-n", str(processes), *command]


def environment():
    """Also with the tests' own modules; there is no point in waiting for processes that cannot answer."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).parent)]),
        "OMPI_MCA_odls_base_sigkill_timeout": "0",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }


def run(command, *, processes=1, cwd=None, changes=None):
    """With these changes to the environment. Standard error is part of the output."""
    return subprocess.run(
        on_processes([str(word) for word in command], processes),
        cwd=cwd,
        env={**environment(), **(changes or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
