"""Errors: their classes and their words."""

import unittest
from functools import partial

import drover
from support import QUOTES, ModelTest, rows


class ErrorTest(ModelTest):
    def assert_error(self, action, kind, cause, remedy):
        with self.assertRaises(kind) as caught:
            action()
        self.assertRegex(caught.exception.cause, cause)
        self.assertRegex(caught.exception.remedy, remedy)
        self.assertEqual(str(caught.exception), f"{caught.exception.cause} {caught.exception.remedy}")
        self.assertNotIn("::", str(caught.exception))  # C++'s spelling

    def test_errors_have_a_cause_and_a_remedy(self):
        self.assertTrue(issubclass(drover.Error, RuntimeError))
        self.assert_error(
            lambda: drover.AutoModelForCausalLM.from_pretrained("absent"),
            drover.Error,
            'model_id is "absent"',
            ".",
        )
        self.assert_error(lambda: drover.load_dataset("absent.jsonl"), drover.Error, "absent.jsonl", ".")
        tokenizer = drover.AutoTokenizer.from_pretrained(self.model_id)
        if tokenizer.pad_token_id is None:
            self.assert_error(
                lambda: drover.DataCollatorForLanguageModeling(tokenizer),
                drover.Error,
                "has no pad token",
                r'\{"pad_token": tokenizer.eos_token\}',
            )
        self.assert_error(
            lambda: drover.DataCollatorForLanguageModeling(self.tokenizer(), mlm=True),
            ValueError,
            "mlm is set",
            "mlm=False",
        )
        self.assert_error(
            lambda: self.trainer(train_dataset=drover.load_dataset(QUOTES)["train"]),
            drover.Error,
            "no token ids yet",
            r'data\.map\(lambda samples: tokenizer\(samples\["text"\]\)',
        )
        self.assert_error(lambda: self.trainer().evaluate(), drover.Error, "no eval_dataset", ".")
        hidden = drover.Dataset.from_dict({"input_ids": [[1, 2]], "attention_mask": [[1, 0]]})
        self.assert_error(
            lambda: self.trainer(train_dataset=hidden), drover.Error, "attention_mask hides", "-100"
        )

    def test_wrong_arguments_are_usage_errors(self):
        self.assertTrue(issubclass(drover.UsageError, ValueError))
        self.assertTrue(issubclass(drover.UsageError, drover.Error))
        for arguments, cause, remedy in (
            ({"learning_rte": 1e-3}, "learning_rte", "learning_rate"),
            ({"max_steps": "many"}, "max_steps", "."),
            ({"optim": "adamm"}, "adamm", "adam"),
            ({"train_file": "x.txt"}, "train_file", "."),
        ):
            with self.subTest(arguments=arguments):
                self.assert_error(partial(self.trainer, **arguments), drover.UsageError, cause, remedy)

    def test_a_trainer_needs_rows_and_a_collator(self):
        with self.assertRaisesRegex(ValueError, "no train_dataset"):
            drover.Trainer(model=self.model(), processing_class=self.tokenizer())
        with self.assertRaisesRegex(ValueError, "no data_collator"):
            drover.Trainer(model=self.model(), train_dataset=rows())

    def test_fsdp_needs_to_be_enabled(self):
        output = self.run_program(
            """
try:
    place.trainer(**drover.fsdp_v2.get_fsdp_training_args(place.model()))
except drover.Error as error:
    print("refused:", error)
"""
        )
        self.assertEqual(output.returncode, 0, output.stdout)
        self.assertRegex(output.stdout, r"refused: .*not enabled.*use_fsdp_v2\(\)")


if __name__ == "__main__":
    unittest.main()
