"""Training from Python: numbers, callbacks, exceptions, the life of objects."""

import gc
import json
import os
import re
import signal
import subprocess
import threading
import unittest
import weakref

import drover
from support import QUOTES, SOURCE, ModelTest, environment, needs_numpy, numpy, program, rows


class TrainingTest(ModelTest):
    def test_losses_are_those_of_transformers(self):
        golden = json.loads((SOURCE / "tests/golden/quotes_run.json").read_text())
        tokenizer, model = self.tokenizer(), self.model()
        data = drover.load_dataset(QUOTES).map(lambda samples: tokenizer(samples["quote"]), batched=True)
        drover.fsdp_v2.use_fsdp_v2()
        trainer = drover.Trainer(
            model=model,
            args=drover.TrainingArguments(
                str(self.folder / "out"),
                per_device_train_batch_size=24,
                num_train_epochs=2,
                learning_rate=1e-2,
                optim="adafactor",
                logging_steps=1,
                save_strategy="no",
                dataloader_drop_last=True,
                disable_tqdm=True,
                **drover.fsdp_v2.get_fsdp_training_args(model),
            ),
            train_dataset=data["train"],
            eval_dataset=data["train"],
            processing_class=tokenizer,
        )
        before = trainer.evaluate()["eval_loss"]
        untrained = model.generate(tokenizer, "To be", max_new_tokens=8)
        result = trainer.train()
        self.assertEqual(result.global_step, 16)
        self.assertEqual(len(result.losses), len(golden["losses"]))
        for loss, expected in zip(result.losses, golden["losses"], strict=True):
            self.assertAlmostEqual(loss, expected, delta=5e-4)
        self.assertLess(trainer.evaluate()["eval_loss"], before - 0.5)
        trainer.save_model()
        saved = drover.AutoModelForCausalLM.from_pretrained(self.folder / "out")
        self.assertEqual(saved.num_parameters(), model.num_parameters())
        self.assertEqual(
            saved.generate(tokenizer, "To be", max_new_tokens=8),
            model.generate(tokenizer, "To be", max_new_tokens=8),
        )
        self.assertNotEqual(model.generate(tokenizer, "To be", max_new_tokens=8), untrained)

    def test_masked_labels_are_not_targets(self):
        ids = [list(row) for row in rows(2, 12)["input_ids"]]
        half = [[-100] * 6 + row[6:] for row in ids]
        losses = {}
        for name, labels in (("all", ids), ("half", half)):
            data = drover.Dataset.from_dict({"input_ids": ids, "labels": labels})
            losses[name] = self.trainer(train_dataset=data, max_steps=1).train().losses[0]
        without = (
            self.trainer(train_dataset=drover.Dataset.from_dict({"input_ids": ids}), max_steps=1)
            .train()
            .losses[0]
        )
        self.assertEqual(losses["all"], without)
        self.assertNotEqual(losses["half"], without)
        short = drover.Dataset.from_dict({"input_ids": ids, "labels": [row[1:] for row in ids]})
        with self.assertRaisesRegex(drover.Error, "label"):
            self.trainer(train_dataset=short)

    @needs_numpy
    def test_losses_are_a_numpy_array(self):
        losses = self.trainer().train().losses
        self.assertIsInstance(losses, numpy.ndarray)
        self.assertEqual((losses.dtype, losses.shape), (numpy.float64, (3,)))

    def test_a_dataset_of_ones_own(self):
        data = rows(8, 12)
        read_on = set()

        class Own:
            def __len__(self):
                return len(data)

            def __getitem__(self, index):
                read_on.add(threading.get_ident())
                return {"input_ids": data["input_ids"][index]}

        own, same = self.trainer(train_dataset=Own()).train(), self.trainer(train_dataset=data).train()
        self.assertEqual(list(own.losses), list(same.losses))
        self.assertTrue(read_on - {threading.get_ident()})  # while the thread that called train() waits

    def test_an_exception_of_a_dataset_passes_unchanged(self):
        problem = LookupError("a row that is not there")

        class Broken:
            def __len__(self):
                return 4

            def __getitem__(self, index):
                if index == 3:
                    raise problem
                return {"input_ids": [1, 2, 3]}

        with self.assertRaises(LookupError) as caught:
            self.trainer(train_dataset=Broken()).train()
        self.assertIs(caught.exception, problem)

    def test_a_new_model(self):
        config = json.loads((SOURCE / "tests/golden/run_clm/saved/config.json").read_text())
        config["num_hidden_layers"] += 1
        model = drover.AutoModelForCausalLM.from_config(config, seed=3)
        model.save_pretrained(self.folder / "new")
        again = drover.AutoModelForCausalLM.from_pretrained(self.folder / "new")
        self.assertEqual(model.model_type, "llama")
        self.assertEqual(again.num_parameters(), model.num_parameters())
        self.assertGreater(model.num_parameters(), self.model().num_parameters())
        first, second = (self.trainer(model=one).train().losses for one in (model, again))
        self.assertEqual(list(first), list(second))

    def test_resuming_gives_the_run_that_was_not_stopped(self):
        whole = self.trainer(max_steps=4, save_strategy="steps", save_steps=2).train()
        resumed = self.trainer(max_steps=4).train(resume_from_checkpoint=self.folder / "out/checkpoint-2")
        self.assertEqual(resumed.global_step, 4)
        self.assertEqual(list(resumed.losses), list(whole.losses))
        with self.assertRaisesRegex(drover.Error, "absent"):
            self.trainer().train(resume_from_checkpoint=self.folder / "absent")

    def test_two_trainers_in_one_program(self):
        model, other = self.model(), self.model()
        first, second = self.trainer(model=model), self.trainer(model=other, learning_rate=2e-2)
        a, b = first.train(), second.train()
        self.assertEqual(a.losses[0], b.losses[0])
        self.assertNotEqual(a.losses[2], b.losses[2])
        continued = self.trainer(model=model).train()
        self.assertLess(continued.losses[0], a.losses[0])

    def test_objects_go_in_any_order(self):
        for order in (
            ("model", "trainer", "data"),
            ("trainer", "data", "model"),
            ("data", "model", "trainer"),
        ):
            parts = {"model": self.model(), "data": rows()}
            parts["trainer"] = self.trainer(model=parts["model"], train_dataset=parts["data"])
            parts["trainer"].train()
            gone = weakref.ref(parts["trainer"])
            for name in order:
                del parts[name]
                gc.collect()
            self.assertIsNone(gone())
        model = self.model()
        self.trainer(model=model).train()  # the Trainer goes, the model keeps what it learnt
        fresh = self.model()
        prompt = (self.tokenizer(), "To be")
        self.assertNotEqual(
            model.generate(*prompt, max_new_tokens=8), fresh.generate(*prompt, max_new_tokens=8)
        )


class Recorder(drover.TrainerCallback):
    """Notes every event."""

    def __init__(self):
        self.events = []
        self.logs = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda args, state, control, **kwargs: self.note(name, state, control, kwargs)
        return super().__getattribute__(name)

    def note(self, event, state, control, kwargs):
        self.events.append((event, state.global_step))
        if event == "on_log":
            self.logs.append(kwargs["logs"])
        assert threading.current_thread() is threading.main_thread()


class CallbackTest(ModelTest):
    def test_every_event_is_told_on_the_thread_that_trains(self):
        recorder = Recorder()
        trainer = self.trainer(
            callbacks=[recorder], eval_dataset=rows(2), max_steps=2, save_strategy="steps", save_steps=2
        )
        trainer.train()
        trainer.evaluate()
        events = recorder.events
        self.assertEqual(events[0], ("on_train_begin", 0))
        for event in (
            ("on_epoch_begin", 0),
            ("on_step_begin", 1),
            ("on_step_end", 1),
            ("on_log", 1),
            ("on_save", 2),
            ("on_train_end", 2),
            ("on_evaluate", 2),
        ):
            self.assertIn(event, events)
        self.assertEqual(events.count(("on_step_end", 1)), 1)
        self.assertIn("loss", recorder.logs[0])
        self.assertEqual([record["step"] for record in trainer.state.log_history if "loss" in record], [1, 2])

    def test_a_callback_directs_the_run(self):
        folder = self.folder

        class Stop(drover.TrainerCallback):
            saved = []

            def on_step_end(self, args, state, control, model, **kwargs):
                assert args.max_steps == 50 and model.model_type == "llama"
                if state.global_step == 2:
                    control.should_training_stop = control.should_save = True

            def on_save(self, args, state, control, checkpoint, **kwargs):
                self.saved.append(checkpoint)

        trainer = self.trainer(max_steps=50)
        trainer.add_callback(Stop())
        self.assertEqual(trainer.train().global_step, 2)
        self.assertEqual(Stop.saved, [str(folder / "out/checkpoint-2")])
        self.assertTrue((folder / "out/checkpoint-2/model.safetensors").exists())

    def test_an_exception_of_a_callback_passes_unchanged_and_the_trainer_lives_on(self):
        problem = ZeroDivisionError("in a callback")

        class Fail(drover.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == 2:
                    raise problem

        trainer = self.trainer(callbacks=[Fail()])
        with self.assertRaises(ZeroDivisionError) as caught:
            trainer.train()
        self.assertIs(caught.exception, problem)
        trainer.save_model(self.folder / "after")
        self.assertTrue((self.folder / "after/model.safetensors").exists())
        self.assertEqual(self.trainer().train().global_step, 3)

    def test_a_callback_may_use_the_model(self):
        tokenizer, said = self.tokenizer(), []

        class Speak(drover.TrainerCallback):
            def on_step_end(self, args, state, control, model, processing_class, **kwargs):
                said.append(model.generate(processing_class, "To be", max_new_tokens=8))

        model = self.model()
        self.trainer(model=model, callbacks=[Speak()]).train()
        self.assertEqual(len(said), 3)
        self.assertEqual(said[-1], model.generate(tokenizer, "To be", max_new_tokens=8))


class SignalTest(ModelTest):
    PROGRAM = """
import sys
trainer = place.trainer(max_steps=1_000_000, enable_jit_checkpoint="jit" in sys.argv)
try:
    result = trainer.train()
    print("interrupted", result.interrupted, result.global_step)
except KeyboardInterrupt:
    if "catch" not in sys.argv: raise
    trainer.save_model("saved")
    print("caught")
"""

    def signalled(self, number, *words):
        """Starts the program, sends it the signal once it has trained a step; its status and its output."""
        process = subprocess.Popen(
            [*program(self.PROGRAM), *words],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.kill)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "'loss'" in line:
                break
        process.send_signal(number)
        lines += process.stdout
        return process.wait(), "".join(lines)

    def test_ctrl_c_ends_training_after_the_step(self):
        status, output = self.signalled(signal.SIGINT, "catch")
        self.assertEqual(status, 0, output)
        self.assertIn("caught", output)
        self.assertTrue((self.folder / "saved/model.safetensors").exists())

    def test_ctrl_c_ends_the_program_as_any_other(self):
        status, output = self.signalled(signal.SIGINT)
        self.assertEqual(status, -signal.SIGINT, output)
        self.assertIn("KeyboardInterrupt", output)

    def test_sigterm_ends_the_program_unless_a_checkpoint_is_asked_for(self):
        status, output = self.signalled(signal.SIGTERM)
        self.assertEqual(status, -signal.SIGTERM, output)
        status, output = self.signalled(signal.SIGTERM, "jit")
        self.assertEqual(status, 0, output)
        step = int(re.search(r"interrupted True (\d+)", output)[1])
        self.assertTrue((self.folder / f"out/checkpoint-{step}/model.safetensors").exists())

    def test_a_thousand_signals_a_second_change_nothing(self):
        arrived = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: arrived.append(number))
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        quiet = self.trainer(max_steps=20).train().losses
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            disturbed = self.trainer(max_steps=20).train().losses
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertEqual(list(disturbed), list(quiet))
        self.assertTrue(arrived)

    def test_handlers_run_while_training(self):
        arrived = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda number, frame: arrived.set())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        steps = []

        class SignalAtSecondStep(drover.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                steps.append(arrived.is_set())
                if state.global_step == 2:
                    os.kill(os.getpid(), signal.SIGUSR1)

        result = self.trainer(callbacks=[SignalAtSecondStep()]).train()
        self.assertTrue(arrived.is_set())
        self.assertEqual((result.global_step, steps[0]), (3, False))


if __name__ == "__main__":
    unittest.main()
