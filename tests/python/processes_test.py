"""Programs in Python as users start them, alone and by mpirun, against the same programs in C++."""

import hashlib
import json
import os
import sys
import unittest

from support import QUOTES, SOURCE, ModelTest, run


class ProcessesTest(ModelTest):
    def finetune(self, program, processes, output):
        result = run([*program, self.model_id, QUOTES, output, 1], processes=processes, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.count("8 updates, mean loss"), 1, result.stdout)

    def digest(self, output):
        return hashlib.sha256((self.folder / output / "model.safetensors").read_bytes()).hexdigest()

    def records(self, output):
        history = json.loads((self.folder / output / "trainer_state.json").read_text())["log_history"]
        return [
            {key: value for key, value in record.items() if not key.endswith(("_runtime", "_per_second"))}
            for record in history
        ]

    def test_the_example_is_that_of_cpp_bit_for_bit(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                here, there = f"python{processes}", f"cpp{processes}"
                self.finetune([sys.executable, SOURCE / "examples/finetune_quotes.py"], processes, here)
                self.finetune([os.environ["FINETUNE_QUOTES"]], processes, there)
                self.assertEqual(self.records(here), self.records(there))
                self.assertEqual(self.digest(here), self.digest(there))
                settings = [
                    json.loads((self.folder / output / "training_args.json").read_text())
                    for output in (here, there)
                ]
                for one in settings:
                    for name in ("output_dir", "train_file"):
                        one.pop(name, None)
                self.assertEqual(*settings)

    def test_the_end_of_the_program_with_everything_alive(self):
        program = """
trainer = place.trainer(eval_dataset=support.rows(2))
trainer.train()
cycle = [trainer]; cycle.append(cycle)
print("done")
"""
        for processes in (1, 2):
            result = self.run_program(program, processes=processes)
            self.assertEqual((result.returncode, result.stdout.count("done")), (0, processes), result.stdout)

    def test_an_exception_in_one_process_ends_all(self):
        program = """
import os
class Fail(drover.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if os.environ["OMPI_COMM_WORLD_RANK"] == "1" and state.global_step == 2:
            raise LookupError("in a callback of one process")
place.trainer(callbacks=[Fail()], max_steps=1000).train()
"""
        result = self.run_program(program, processes=2)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.count("LookupError: in a callback of one process"), 1, result.stdout)
        self.assertIn("in on_step_end", result.stdout)  # where it was raised

    def test_an_exception_of_a_dataset_in_one_process_ends_all(self):
        program = """
import os
class Own:
    def __len__(self): return 4
    def __getitem__(self, index):
        if index == 3 and os.environ["OMPI_COMM_WORLD_RANK"] == "1": raise LookupError("no such row")
        return {"input_ids": [1, 2, 3]}
place.trainer(train_dataset=Own()).train()
"""
        result = self.run_program(program, processes=2)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("The train_dataset of the program failed: Traceback", result.stdout)
        self.assertEqual(result.stdout.count("LookupError: no such row"), 1, result.stdout)

    def test_an_exception_outside_a_trainer_ends_all(self):
        program = """
import os
trainer = place.trainer()
if os.environ["OMPI_COMM_WORLD_RANK"] == "1": raise ValueError("of one process")
trainer.train()
"""
        result = self.run_program(program, processes=2)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ValueError: of one process", result.stdout)


if __name__ == "__main__":
    unittest.main()
