"""Tokenizers and datasets: what goes in and what comes out."""

import array
import json
import unittest

import drover
from support import QUOTES, SOURCE, ModelTest, needs_numpy, numpy, rows


class TokenizerTest(ModelTest):
    def test_ids_are_those_of_transformers(self):
        golden = json.loads((SOURCE / "tests/golden/quotes_run.json").read_text())
        tokenizer = self.tokenizer()
        text = drover.load_dataset(QUOTES)["train"]["quote"][0]
        encoded = tokenizer(text)
        self.assertEqual(encoded["input_ids"], golden["first_ids"])
        self.assertEqual(encoded.input_ids, golden["first_ids"])
        self.assertEqual(encoded.attention_mask, [1] * len(golden["first_ids"]))
        self.assertEqual(
            tokenizer([text, "To be"])["input_ids"], [golden["first_ids"], tokenizer.encode("To be")]
        )
        self.assertEqual(tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True), text)

    def test_special_tokens(self):
        tokenizer = drover.AutoTokenizer.from_pretrained(self.model_id)
        tokenizer.pad_token = tokenizer.eos_token
        self.assertEqual(tokenizer.pad_token_id, tokenizer.eos_token_id)
        self.assertEqual(tokenizer.pad_token, tokenizer.eos_token)
        with self.assertRaisesRegex(drover.Error, "not one token of this tokenizer"):
            tokenizer.add_special_tokens({"pad_token": "a text of several tokens"})

    def test_decode_takes_arrays(self):
        tokenizer = self.tokenizer()
        ids = tokenizer.encode("To be, or not to be")
        for typecode in "hiq":
            self.assertEqual(tokenizer.decode(array.array(typecode, ids)), tokenizer.decode(ids))
        with self.assertRaises(TypeError):
            tokenizer.decode(array.array("d", ids))


class DatasetTest(ModelTest):
    def test_a_file_has_its_columns(self):
        data = drover.load_dataset(QUOTES)
        self.assertEqual(list(data), ["train"])
        first = json.loads(QUOTES.read_text().splitlines()[0])
        train = data["train"]
        self.assertEqual(train.num_rows, len(QUOTES.read_text().splitlines()))
        self.assertEqual(set(train.column_names), set(first))
        self.assertEqual(train[0]["quote"], first["quote"])
        self.assertEqual(train[1:3]["quote"], list(train["quote"])[1:3])
        self.assertEqual(drover.load_dataset(QUOTES, split="train")[0]["quote"], first["quote"])
        with self.assertRaisesRegex(KeyError, "no split .*validation.* has .*train"):
            data["validation"]
        with self.assertRaisesRegex(KeyError, "no column .*title.* There are .*quote"):
            train["title"]

    def test_map_by_rows_and_by_batches_gives_the_same(self):
        tokenizer = self.tokenizer()
        data = drover.load_dataset(QUOTES)
        sizes = []

        def tokenize(samples):
            sizes.append(len(samples["quote"]))
            return tokenizer(samples["quote"])

        batched = data.map(tokenize, batched=True, batch_size=150)["train"]
        single = data["train"].map(lambda sample: tokenizer(sample["quote"]))
        self.assertEqual(sizes, [150, 50])
        self.assertEqual(len(batched), 200)
        for a, b in zip(batched["input_ids"], single["input_ids"], strict=True):
            self.assertEqual(list(a), list(b))
        self.assertIn("quote", batched.column_names)  # other columns stay

    def test_map_may_change_the_number_of_rows(self):
        def group(samples):
            ids = [number for row in samples["input_ids"] for number in row]
            blocks = [ids[i : i + 16] for i in range(0, len(ids), 16)]
            return {"input_ids": blocks, "labels": blocks.copy()}

        grouped = rows(8, 12).map(group, batched=True)
        self.assertEqual([len(row) for row in grouped["labels"]], [16] * 6)
        named = drover.Dataset.from_dict({"input_ids": [[1, 2], [3]], "name": ["a", "b"]})
        with self.assertRaisesRegex(ValueError, "different numbers of rows"):
            named.map(lambda samples: {"input_ids": [[1, 2, 3]]}, batched=True)
        made = named.map(lambda samples: {"input_ids": [[1, 2, 3]]}, batched=True, remove_columns=["name"])
        self.assertEqual((made.column_names, len(made)), (["input_ids"], 1))

    def test_map_keeps_what_the_function_changes_in_its_argument(self):
        def mask(sample):
            sample["labels"] = [-100, *sample["input_ids"][1:]]
            return sample

        masked = rows(2, 3).map(mask)
        for row in masked:
            self.assertEqual(list(row["labels"]), [-100, *row["input_ids"][1:]])

    def test_an_exception_of_a_mapped_function_passes_unchanged(self):
        class Own(Exception):
            pass

        problem = Own("for a reason of its own")

        def fail(sample):
            raise problem

        with self.assertRaises(Own) as caught:
            rows().map(fail)
        self.assertIs(caught.exception, problem)
        with self.assertRaisesRegex(TypeError, "must return a mapping .* not list"):
            rows().map(lambda sample: [1, 2])

    def test_rows_are_chosen_as_by_the_datasets_library(self):
        cases = json.loads((SOURCE / "tests/golden/dataset_splits.json").read_text())["cases"]
        for case in cases:
            data = drover.Dataset.from_dict({"number": range(case["count"])})
            self.assertEqual(data.shuffle(case["seed"])["number"], case["shuffled"])
            if "split" in case:
                parts = data.train_test_split(case["test_size"], seed=case["seed"])
                self.assertEqual({name: part["number"] for name, part in parts.items()}, case["split"])
                parts = data.train_test_split(case["test_size"], shuffle=False)
                self.assertEqual({name: part["number"] for name, part in parts.items()}, case["in_order"])
        texts = drover.load_dataset(QUOTES, split="train")
        self.assertEqual(texts.select([3, 1]).select([1])[0]["quote"], texts["quote"][1])

    def test_integers_of_any_size_come_in(self):
        for typecode in "bhiqBHILQ":
            data = drover.Dataset.from_dict({"input_ids": [array.array(typecode, [3, 1, 2])]})
            self.assertEqual(list(data["input_ids"][0]), [3, 1, 2])
        self.assertEqual(list(drover.Dataset.from_list([{"input_ids": (3, 1)}])["input_ids"][0]), [3, 1])
        strided = memoryview(array.array("q", range(10)))[::3]
        self.assertEqual(
            list(drover.Dataset.from_dict({"input_ids": [strided]})["input_ids"][0]), [0, 3, 6, 9]
        )

    def test_what_is_no_row_of_ids_is_refused_by_its_place(self):
        for row, kind, text in (
            (array.array("d", [1]), TypeError, 'Column "input_ids", row 1: .*type "d".*integers'),
            (
                array.array("q", [1, 2**40]),
                OverflowError,
                f"row 1: .*{2**40} at index 1 is not a 32-bit number",
            ),
            ([1, 2**40], OverflowError, f"{2**40} at index 1"),
            ([1, 2.5], TypeError, "row 1: .*float"),
            ("text", TypeError, "row 1: .*str"),
            (memoryview(bytes(4)).cast("B", (2, 2)), ValueError, "row 1: .*2 dimensions"),
        ):
            with self.subTest(row=row), self.assertRaisesRegex(kind, text):
                drover.Dataset.from_dict({"input_ids": [[1], row]})

    @needs_numpy
    def test_numpy_arrays_go_in_and_come_out(self):
        table = numpy.arange(12, dtype=numpy.int64).reshape(3, 4)
        for ids in (table, table.astype(numpy.int32), numpy.asfortranarray(table), table[:, ::-1][:, ::-1]):
            data = drover.Dataset.from_dict({"input_ids": ids, "labels": ids - 100})
            row = data[1]
            self.assertIsInstance(row["input_ids"], numpy.ndarray)
            self.assertEqual(row["input_ids"].dtype, numpy.int32)
            numpy.testing.assert_array_equal(row["input_ids"], table[1])
            numpy.testing.assert_array_equal(row["labels"], table[1] - 100)
        row["input_ids"][0] = 77  # a copy that can be written
        self.assertEqual(data["input_ids"][1][0], table[1, 0])
        with self.assertRaisesRegex(TypeError, "integers are needed"):
            drover.Dataset.from_dict({"input_ids": table.astype(numpy.float32)})


if __name__ == "__main__":
    unittest.main()
