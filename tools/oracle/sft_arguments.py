"""Writes tests/golden/sft_arguments.json: the fields of TRL's sft script with their defaults.

usage: sft_arguments.py
"""

import dataclasses
import json

from common import GOLDEN, write_json

import trl
from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig


def default_of(field):
    value = field.default if field.default is not dataclasses.MISSING else None
    if field.default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    value = getattr(value, "value", value)
    return value if isinstance(value, (bool, int, float, str, list, dict, type(None))) else str(value)


def main():
    fields = {}
    for part in (ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig):
        for field in dataclasses.fields(part):
            if field.init:
                fields[field.name] = default_of(field)
    write_json(GOLDEN / "sft_arguments.json", {"trl": trl.__version__, "fields": dict(sorted(fields.items()))})
    print(len(fields))


main()
