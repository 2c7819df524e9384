"""Writes tests/golden/pickle: files of torch.save with every kind of value, and what is in them; and the fuzz corpus of such files.

    pickles.py
"""

import collections
import io
import os
import pickle
import random
import shutil
import zipfile

from common import GOLDEN, REPOSITORY, write_json

import numpy
import torch

FOLDER = GOLDEN / "pickle"
CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus" / "torch_pickle"


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def archive(entries, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    return buffer.getvalue()


def with_pickle(program):
    """A file whose data.pkl is `program`, with one storage of four floats."""
    return archive({"archive/data.pkl": program, "archive/data/0": b"\0" * 16, "archive/version": b"3\n"})


def values():
    base = torch.arange(24, dtype=torch.float32)
    return {
        "none": None,
        "yes": True,
        "no": False,
        "small": 7,
        "byte": 255,
        "word": 65535,
        "negative": -5,
        "large": 2**40 + 3,
        "largest": 2**63 - 1,
        "smallest": -(2**63),
        "float": 0.1,
        "infinite": float("inf"),
        "text": "héllo ✓",
        "long_text": "x" * 300,
        "bytes": b"\x00\xff\x80z",
        "tuple": (1, 2, 3, 4),
        "triple": (1, "two", 3.0),
        "pair": (1, 2),
        "single": (1,),
        "empty": ((), [], {}),
        "list": [1, [2, [3, [4]]]],
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "numbered": {0: "zero", 1: "one"},
        "size": torch.Size([2, 3]),
        "float32": base.view(4, 6),
        "bfloat16": base.bfloat16(),
        "float16": base.half(),
        "float64": base.double(),
        "int64": torch.arange(5) - 2,
        "int32": torch.arange(5, dtype=torch.int32),
        "uint8": torch.arange(5, dtype=torch.uint8),
        "scalar": torch.tensor(4.5),
        "no_elements": torch.zeros(0, 3),
        "part": base[6:12].view(2, 3),
        "transposed": base.view(4, 6).t(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def described(value):
    if torch.is_tensor(value):
        value = value.detach()
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "contiguous": value.is_contiguous(),
                "values": value.double().flatten().tolist()}
    if isinstance(value, bytes):
        return {"bytes": list(value)}
    if isinstance(value, (tuple, list)):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return {"items": [[described(key), described(item)] for key, item in value.items()]}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
EMPTY = b"\x89ccollections\nOrderedDict\n)R"


def tensor(offset=b"K\x00", size=b"K\x04\x85", stride=b"K\x01\x85", storage=STORAGE):
    return TENSOR + storage + offset + size + stride + EMPTY + b"tR"


REBUILD = b"ctorch._tensor\n_rebuild_from_type_v2\n"


def with_attributes(function=TENSOR, arguments=b"(" + STORAGE[1:] + b"K\x00K\x04\x85K\x01\x85" + EMPTY + b"t"):
    """A tensor that has attributes, which DeepSpeed's have."""
    return REBUILD + b"(" + function + b"ctorch\nTensor\n" + arguments + b"}X\x01\x00\x00\x00aK\x01stR"


def program(body):
    return b"\x80\x02" + body + b"."


def corpus():
    whole = saved({"a": torch.ones(3), "b": [1, 2.5, "x"]})
    numpy.random.seed(1)
    random.seed(1)
    generators = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.zeros(16, dtype=torch.uint8)}
    marked = torch.ones(3)
    marked.mark = 7
    valid = {
        "dict": whole,
        "attributes": saved({"a": marked}),
        "attributes_made": with_pickle(program(with_attributes())),
        "zero_optimizer": with_pickle(program(b"}X\x01\x00\x00\x00lcdeepspeed.runtime.fp16.loss_scaler\nLossScaler\n)\x81}X\x01\x00\x00\x00sK\x01sbs"
                                              b"X\x01\x00\x00\x00zcdeepspeed.runtime.zero.config\nZeroStageEnum\nK\x02\x85Rs")),
        "protocol4": saved({"a": torch.ones(3), "b": b"\xff"}, pickle_protocol=4),
        "generators": saved(generators),
        "tensor": with_pickle(program(tensor())),
        "strided": with_pickle(program(tensor(size=b"K\x02K\x02\x86", stride=b"K\x01K\x02\x86"))),
        "repeated": with_pickle(program(tensor(size=b"J\xff\xff\xff\x7f\x85", stride=b"K\x00\x85"))),
        "nested": with_pickle(program(b"]" * 20000 + b"a" * 19999)),
        "itself": with_pickle(program(b"]q\x00h\x00a")),
        "laughs": with_pickle(program(b"K\x01q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(200)) + b"h\xc8")),
    }
    bad = {
        "empty": b"",
        "text": b"no archive at all",
        "old_format": saved({"a": 1}, _use_new_zipfile_serialization=False),
        "truncated": whole[:-30],
        "cut_in_half": whole[: len(whole) // 2],
        "compressed": archive({"archive/data.pkl": program(b"N"), "archive/version": b"3\n"}, zipfile.ZIP_DEFLATED),
        "flipped_bit": whole.replace(b"X\x01\x00\x00\x00b", b"X\x01\x00\x00\x00c", 1),
        "no_pickle": archive({"archive/version": b"3\n"}),
        "two_folders": archive({"a/data.pkl": program(b"N"), "b/data.pkl": program(b"N")}),
        "big_endian": archive({"a/data.pkl": program(b"N"), "a/byteorder": b"big"}),
        "system": with_pickle(pickle.dumps(Call(os.system, "true"), protocol=2)),
        "system4": with_pickle(pickle.dumps(Call(os.system, "true"), protocol=4)),
        "eval": with_pickle(pickle.dumps(Call(eval, "1"), protocol=2)),
        "getattr": with_pickle(pickle.dumps(Call(getattr, 1, "real"), protocol=2)),
        "instance": with_pickle(program(b"(ios\nsystem\n")),
        "extension": with_pickle(program(b"\x82\x01")),
        "no_stop": with_pickle(b"\x80\x02N"),
        "nothing_left": with_pickle(program(b"")),
        "two_left": with_pickle(program(b"NN")),
        "no_mark": with_pickle(program(b"Nt")),
        "no_memo": with_pickle(program(b"h\x05")),
        "protocol9": with_pickle(b"\x80\x09N."),
        "long_string": with_pickle(program(b"X\xff\xff\xff\xffabc")),
        "huge_integer": with_pickle(program(b"\x8a\x20" + b"\x7f" * 32)),
        "append_to_number": with_pickle(program(b"K\x01K\x02a")),
        "odd_items": with_pickle(program(b"}(K\x01u")),
        "tensor_as_key": with_pickle(program(b"}" + tensor() + b"K\x01s")),
        "beyond_storage": with_pickle(program(tensor(size=b"K\x05\x85"))),
        "offset_beyond": with_pickle(program(tensor(offset=b"K\x01"))),
        "negative_size": with_pickle(program(tensor(size=b"J\xff\xff\xff\xff\x85"))),
        "negative_stride": with_pickle(program(tensor(stride=b"J\xff\xff\xff\xff\x85"))),
        "overflow": with_pickle(program(tensor(size=b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85", stride=b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85"))),
        "no_storage": with_pickle(program(tensor(storage=STORAGE.replace(b"\x01\x00\x00\x000", b"\x01\x00\x00\x007")))),
        "long_storage": with_pickle(program(tensor(storage=STORAGE.replace(b"K\x04", b"K\x05")))),
        "number_as_storage": with_pickle(program(tensor(storage=b"(K\x01"))),
        "attributes_of_itself": with_pickle(program(with_attributes(function=REBUILD))),
        "attributes_of_a_dict": with_pickle(program(with_attributes(function=b"ccollections\nOrderedDict\n", arguments=b")"))),
        "attributes_of_nothing": with_pickle(program(with_attributes(arguments=b")"))),
        "attributes_alone": with_pickle(program(REBUILD + b")R")),
        "call_of_a_loss_scaler": with_pickle(program(b"cdeepspeed.runtime.fp16.loss_scaler\nLossScaler\n)R")),
        "call_of_a_number": with_pickle(program(b"K\x01)R")),
    }
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir(parents=True)
    for name, content in valid.items():
        (CORPUS / f"valid-{name}").write_bytes(content)
    for name, content in bad.items():
        (CORPUS / f"bad-{name}").write_bytes(content)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for protocol in [2, 4]:
        (FOLDER / f"values_protocol{protocol}.pt").write_bytes(saved(values(), pickle_protocol=protocol))
    write_json(FOLDER / "values.json", {key: described(value) for key, value in values().items()})
    corpus()


if __name__ == "__main__":
    main()
