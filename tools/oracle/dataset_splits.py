"""Writes tests/golden/dataset_splits.json: the order in which datasets shuffles rows, and how it splits them.

    dataset_splits.py
"""

import json

import numpy
from datasets import Dataset

from common import REPOSITORY


def rows(split):
    return list(split["row"])


def main():
    cases = []
    for count, seed, test_size in [(1, 0, 1), (10, 0, 0.25), (10, 42, 0.25), (13, 2**40 + 7, 0.3), (200, 1, 0.05), (200, 5, 7)]:
        data = Dataset.from_dict({"row": list(range(count))})
        case = {"count": count, "seed": seed, "test_size": test_size, "shuffled": rows(data.shuffle(seed=seed))}
        if count > 1:
            case["split"] = {name: rows(part) for name, part in data.train_test_split(test_size, seed=seed).items()}
            case["in_order"] = {name: rows(part) for name, part in data.train_test_split(test_size, shuffle=False).items()}
        cases.append(case)
    many = numpy.random.default_rng(3).permutation(100_000)
    golden = {"cases": cases, "many": {"count": 100_000, "seed": 3, "weighted_sum": int((many * numpy.arange(100_000) % 1_000_003).sum())}}
    (REPOSITORY / "tests" / "golden" / "dataset_splits.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
