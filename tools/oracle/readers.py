"""Writes tests/golden/readers: what the datasets library reads from small files and folders.

cases.json     files given by name: their bytes (as Latin-1 text) and the columns and rows, or "error"
folders.json   folders given by name: their files and the rows of each split, or "error"
arrow.json     the rows of the parquet and Arrow files beside it
"""

import gzip
import io
import json
import logging
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from common import GOLDEN, write_json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

datasets.disable_progress_bars()
logging.disable(logging.CRITICAL)

TARGET = GOLDEN / "readers"

BUILDERS = {"txt": "text", "json": "json", "jsonl": "json", "csv": "csv"}

# name, bytes, arguments of the builder
TEXT = [
    ("plain.txt", b"one\ntwo\n\nfour\n", {}),
    ("no_final_newline.txt", b"one\ntwo", {}),
    ("one_newline.txt", b"\n", {}),
    ("crlf.txt", b"one\r\ntwo\r\n\r\nthree", {}),
    ("lone_cr.txt", b"one\rtwo\r\rthree\r", {}),
    ("mixed_breaks.txt", b"a\r\r\nb\n\rc\r", {}),
    ("other_separators.txt", "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\n".encode(), {}),
    ("byte_order_mark.txt", b"\xef\xbb\xbfone\ntwo\n", {}),
    ("zero_byte.txt", b"a\x00b\nc\n", {}),
    ("unicode.txt", "é\n日本語\n😀\n".encode(), {}),
    ("empty.txt", b"", {}),
    ("invalid_utf8.txt", b"one\ntw\xffo\n", {}),
    ("surrogate.txt", b"\xed\xa0\x80\n", {}),
    ("overlong.txt", b"\xc0\xaf\n", {}),
    ("cut_character.txt", b"one\n\xe6\x97", {}),
]
JSON = [
    ("lines.json", b'{"text":"a"}\n{"text":"b"}\n', {}),
    ("lines.jsonl", b'{"text":"a"}\n{"text":"b"}\n', {}),
    ("crlf.json", b'{"text":"a"}\r\n{"text":"b"}\r\n', {}),
    ("blank_lines.json", b'{"text":"a"}\n\n{"text":"b","c":1}\r\n  {"c":2,"text":"d"}', {}),
    ("adjacent.json", b'{"c":1,"text":"a"}{"text":"b"}\n', {}),
    ("over_lines.json", b'{"c":1,\n"text":"a"}\n{"text":"b"}\n', {}),
    ("no_text_column.json", b'{"content":"a","id":"x"}\n{"content":"b","id":"y"}\n', {}),
    ("later_column.json", b'{"b":"x","text":"a"}\n{"a":1,"text":"b"}\n', {}),
    ("strings.json", b'["a","b\\n",""]', {}),
    ("objects.json", b'[{"text":"a"},\n {"text":"b"}]\n', {}),
    ("objects_spaced.json", b'  [ {"text" : "a" } , {"text":"b"} ] ', {}),
    ("null.json", b'{"text":"a"}\n{"text":null}\n{"text":"b"}\n', {}),
    ("absent.json", b'{"text":"a"}\n{"x":"b"}\n', {}),
    ("escapes.json", b'{"text":"\\u00e9\\ud83d\\ude00 \\"q\\" \\\\ \\/ \\b\\f\\n\\r\\t \\u0000"}\n', {}),
    ("raw_separators.json", '{"text":"a\x85b\u2028c"}\n{"text":"d"}\n'.encode(), {}),
    ("nested.json", b'{"a":{"b":[1,{"c":"}"}],"text":"no"},"text":"x"}\n{"a":null,"text":"y"}\n', {}),
    ("not_a_number.json", b'{"score":NaN,"text":"a"}\n{"score":-Infinity,"text":"b"}\n', {}),
    ("byte_order_mark.json", b'\xef\xbb\xbf{"text":"a"}\n', {}),
    ("field.json", b'{"version":"1","data":[{"text":"a"},{"text":"b"}],"end":{"x":[1]}}', {"field": "data"}),
    ("field_strings.json", b'{"data":["a","b"]}', {"field": "data"}),
    ("lone_surrogate.json", b'{"text":"\\ud83d"}\n', {}),
    ("low_surrogate.json", b'{"text":"\\ude00"}\n', {}),
    ("invalid_utf8.json", b'{"text":"a\xff"}\n', {}),
    ("raw_tab.json", b'{"text":"a\tb"}\n', {}),
    ("twice.json", b'{"text":"a","text":"b"}\n', {}),
    ("trailing_comma.json", b'{"text":"a",}\n', {}),
    ("top_level_string.json", b'"abc"\n', {}),
    ("comment.json", b'// c\n{"text":"a"}\n', {}),
    ("after_list.json", b'[{"text":"a"}]\n{"text":"z"}', {}),
    ("comma_between.json", b'{"text":"a"}, {"text":"b"}\n', {}),
    ("open_object.json", b'{"text":"a"\n{"text":"b"}\n', {}),
    ("open_list.json", b'["a","b"', {}),
    ("list_comma.json", b'["a",]', {}),
    ("words.json", b"hello world\n", {}),
    ("empty.json", b"", {}),
    ("blank.json", b"\n", {}),
    ("empty_list.json", b"[]", {}),
]
CSV = [
    ("plain.csv", b"id,text\n1,a\n2,b\n", {}),
    ("quotes.csv", b'text\na\n"b,""c"""\n\n   \n"x\r\ny"\n"l1\nl2"\nz', {}),
    ("crlf.csv", b'id,text\r\n1,a\r\n2,"b"c\r\n', {}),
    ("lone_cr.csv", b"id,text\r1,a\r\r2, b\r", {}),
    ("inner_quotes.csv", b'id,text\n1,a"b"\n2,"a"" x"\n3,b"\n', {}),
    ("across_rows.csv", b'id,text\n1,a"b"\n2,"a""\n3,b"\n', {}),
    ("blanks.csv", b'id,text\n1, a \n2,\tb\n \t \n3,  "q"\n', {}),
    ("leading_blanks.csv", b'text\n a \n\tb\n  "c d\n', {}),
    ("missing_words.csv", b"id,text\n1,none\n2,NA\n3,x\n", {}),
    ("empty_cell.csv", b"id,text\n1,\n2,x\n", {}),
    ("quoted_empty.csv", b'id,text\n1,x\n2,""\n', {}),
    ("short_row.csv", b"id,text\n1\n2,a\n", {}),
    ("no_text_column.csv", b"content,id\nhello,1\nworld,2\n", {}),
    ("byte_order_mark.csv", b'\xef\xbb\xbf"id","text"\n1,a\n', {}),
    ("repeated_names.csv", b"a,a,,a.1,a\nx,y,z,u,v\n", {}),
    ("quoted_header.csv", b'"te""xt\nx",b\nx,b\n', {}),
    ("blank_names.csv", b" id , text \nx,b\n", {}),
    ("header_after_blank.csv", b"\n\n  \ntext\na\n", {}),
    ("other_separators.csv", "text\na\x85b\u2028c\x0bd\n".encode(), {}),
    ("zero_byte.csv", b"text\na\x00b\n", {}),
    ("almost_missing.csv", b"text\nna\nNone \nNANA\nNULLS\n-\n", {}),
    ("open_quote.csv", b'id,text\n1,"a\n2,b\n', {}),
    ("too_many.csv", b"id,text\n1,a\n2,b,c\n", {}),
    ("invalid_utf8.csv", b"text\na\xff\n", {}),
    ("empty.csv", b"", {}),
    ("only_header.csv", b"text\n", {}),
]


def packed_cases():
    """Compressed variants; gzip without a time, so that a second run writes the same bytes."""
    text, lines = b"one\r\ntwo\n", b'{"text":"a"}\n{"text":"b"}\n'
    two = gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0)
    frames = zstandard.compress(b"one\n") + zstandard.compress(b"two\n")
    cut = gzip.compress(b"".join(b'{"text":"%d"}\n' % i for i in range(50)), mtime=0)
    return [
        ("packed.txt.gz", gzip.compress(text, mtime=0), {}),
        ("packed.txt.zst", zstandard.compress(text), {}),
        ("members.txt.gz", two, {}),
        ("frames.txt.zst", frames, {}),
        ("packed.json.gz", gzip.compress(lines, mtime=0), {}),
        ("packed.jsonl.zst", zstandard.compress(lines), {}),
        ("packed.csv.gz", gzip.compress(b"text\na\nb\n", mtime=0), {}),
        ("cut.json.gz", cut[:-12], {}),
        ("cut.txt.zst", zstandard.compress(bytes(range(32, 127)) * 3)[:-5], {}),
    ]


def load(*arguments, **options):
    with tempfile.TemporaryDirectory() as cache:
        return {
            name: {"columns": split.column_names, "rows": split.to_list()}
            for name, split in datasets.load_dataset(*arguments, cache_dir=cache, **options).items()
        }


def text_column(columns):
    return "text" if "text" in columns else columns[0]


def file_cases():
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content, options in TEXT + JSON + CSV + packed_cases():
            path = Path(folder) / name
            path.write_bytes(content)
            builder = BUILDERS[name.split(".")[1]]
            for keep in [True, False] if builder == "text" else [True]:
                if builder == "text":
                    options = {"keep_linebreaks": keep}
                case = {"name": name, "bytes": content.decode("latin-1")} | options
                try:
                    split = load(builder, data_files={"train": str(path)}, **options)["train"]
                except Exception:  # of many kinds, some of them BaseException's direct children
                    cases.append(case | {"error": True})
                    continue
                column = text_column(split["columns"])
                rows = [row[column] for row in split["rows"]]
                assert all(row is None or isinstance(row, str) for row in rows), (name, rows)
                cases.append(case | {"columns": split["columns"], "column": column, "rows": rows})
    return cases


def card(configs):
    return "---\nlicense: mit\n" + configs + "\n---\n# A dataset\n"


# name, {path: content}, config name
FOLDERS = [
    ("names", {"train.txt": "a\nb\n", "validation.txt": "c\n", "test.txt": "d\n"}, None),
    ("short_names", {"my_train_1.txt": "a\n", "x-dev.txt": "b\n", "eval.txt": "c\n"}, None),
    ("not_between_separators", {"trainer.txt": "a\n", "constrain.txt": "b\n"}, None),
    ("numbered", {f"train-0000{i}-of-00002.jsonl": f'{{"text":"{i}"}}\n' for i in (1, 0)}, None),
    ("data_folder", {f"data/train-0000{i}-of-00003.csv": f"text\nrow{i}\n" for i in range(3)} | {"notes.txt": "n\n"}, None),
    ("folders", {"train/1.txt": "a\n", "train/2.txt": "b\n", "val/x.txt": "c\n", "README.md": "# no front matter\n"}, None),
    ("deep_folders", {"en/train_set/a/1.txt": "a\n", "en/test/1.txt": "b\n"}, None),
    ("everything", {"b.txt": "b\n", "a.txt": "a\n", "sub/c.txt": "c\n", ".hidden.txt": "h\n", "__x__/d.txt": "d\n"}, None),
    ("two_formats", {"train.json": '{"text":"a"}\n', "train.csv": "text\nb\n", "train2.csv": "text\nc\n"}, None),
    (
        "card_splits",
        {
            "README.md": card(
                "configs:\n- config_name: one\n  data_files:\n  - split: train\n    path: one/tr*\n"
                "  - split: validation\n    path:\n    - one/v1.txt\n    - \"one/v0.txt\"  # quoted\n"
                "- config_name: two\n  default: true\n  data_files: two/*.txt"
            ),
            "one/tr1.txt": "a\n",
            "one/tr0.txt": "b\n",
            "one/v0.txt": "c\n",
            "one/v1.txt": "d\n",
            "two/x.txt": "e\n",
        },
        None,
    ),
    ("card_list", {"README.md": card("configs:\n  - config_name: default\n    data_files: [\"b.txt\", 'a.txt']\n"), "a.txt": "a\n", "b.txt": "b\n"}, None),
    ("card_separator", {"README.md": card('configs:\n- config_name: default\n  data_files: "d.csv"\n  sep: ";"'), "d.csv": "id;text\n1;a,b\n"}, None),
    ("card_data_dir", {"README.md": card("configs:\n- config_name: en\n  data_dir: en\n- config_name: fr\n  data_dir: fr"), "en/train.txt": "a\n", "fr/train.txt": "b\n"}, "fr"),
    ("card_missing", {"README.md": card("configs:\n- config_name: en\n  data_files: nothing.txt"), "a.txt": "a\n"}, None),
    ("card_unnamed", {"README.md": card("configs:\n- config_name: en\n  data_files: a.txt\n- config_name: fr\n  data_files: a.txt"), "a.txt": "a\n"}, None),
    ("card_unknown", {"README.md": card("configs:\n- config_name: en\n  data_files: a.txt"), "a.txt": "a\n"}, "de"),
    ("nothing", {"picture.xyz": "x"}, None),
]


def folder_cases():
    cases = [folder_case(*case) for case in FOLDERS]
    name, files, _ = next(case for case in FOLDERS if case[0] == "card_splits")
    return cases + [folder_case("card_splits_one", files, "one")]


def folder_case(name, files, config):
    case = {"name": name, "files": files, "config": config}
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(content, encoding="utf-8")
        try:
            splits = load(folder, config)
        except Exception:
            return case | {"error": True}
        return case | {
            "splits": {split: [row[text_column(value["columns"])] for row in value["rows"]] for split, value in splits.items()}
        }


def saved(folder, dataset):
    """save_to_disk, with the fingerprint (random for some datasets) made constant."""
    shutil.rmtree(folder, ignore_errors=True)
    dataset.save_to_disk(folder)
    for state in sorted(folder.rglob("state.json")):
        content = json.loads(state.read_text())
        content["_fingerprint"] = "0123456789abcdef"
        state.write_text(json.dumps(content, indent=2, sort_keys=True))


def arrow_cases():
    rows = [f"row {i} é" if i % 7 else "" for i in range(40)]
    other = pa.array([{"a": [i]} for i in range(40)])
    cases = {}

    def parquet(name, columns, expected, **options):
        pq.write_table(pa.table(columns), TARGET / name, **options)
        cases[name] = {"columns": list(columns), "rows": expected}

    parquet("snappy.parquet", {"meta": other, "text": pa.array(rows)}, rows, row_group_size=15)
    parquet("zstd_large.parquet", {"text": pa.array(rows, pa.large_string())}, rows, compression="zstd", data_page_version="2.0", use_dictionary=False)
    parquet("dictionary.parquet", {"text": pa.array(rows).dictionary_encode()}, rows, compression="gzip")
    parquet("nulls.parquet", {"text": pa.array(["a", None, "b"])}, ["a", None, "b"])
    parquet("numbers.parquet", {"text": pa.array([1, 2])}, [1, 2])

    table = pa.table({"id": pa.array(range(40)), "text": pa.array(rows)})
    with pa.OSFile(str(TARGET / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)
    cases["file.arrow"] = {"columns": ["id", "text"], "rows": rows}

    text = datasets.Dataset.from_dict({"text": rows})
    shutil.rmtree(TARGET / "saved", ignore_errors=True)
    text.save_to_disk(TARGET / "saved", num_shards=2)
    saved_state = TARGET / "saved" / "state.json"
    content = json.loads(saved_state.read_text()) | {"_fingerprint": "0123456789abcdef"}
    saved_state.write_text(json.dumps(content, indent=2, sort_keys=True))
    saved(TARGET / "saved_dict", datasets.DatasetDict({"train": text.select(range(30)), "validation": text.select(range(30, 40)).flatten_indices()}))

    blocks = [[(7 * i + j) % 50 for j in range(8)] for i in range(5)]
    features = datasets.Features(
        {
            "input_ids": datasets.List(datasets.Value("int32")),
            "attention_mask": datasets.List(datasets.Value("int8")),
            "labels": datasets.List(datasets.Value("int64")),
        }
    )
    tokens = {"input_ids": blocks, "attention_mask": [[1] * 8] * 5, "labels": [block[:-1] + [-100] for block in blocks]}
    saved(TARGET / "tokens", datasets.Dataset.from_dict(tokens, features=features))
    return cases | {"saved": {"rows": rows}, "tokens": {"blocks": blocks}}


def wikicorpus_case():
    """An archive like raw.en.tgz and its articles: lines between the two marks, each keeping its line break and joined by
    one more, stripped."""
    pages = {
        "raw.en/englishText_0_10": (
            '<doc id="12" title="Anarchism" nonfiltered="1" processed="1" dbindex="0">\n'
            "\nAnarchism is a caf\xe9 philosophy.\nSecond line\r\n\n</doc>\nENDOFARTICLE.\n"
            '<doc id="13" title="Empty &quot;one&quot;" x="1">\n  \xa0 \x85\n</doc>\nENDOFARTICLE.\n'
            "<doc id>\nno metadata\n</doc>\nENDOFARTICLE.\n"
        ),
        "raw.en/" + "long" * 40 + "/englishText_10_20": (
            '<doc id="20" title="Last" x="1">\ntext behind a long name\n</doc>\nENDOFARTICLE.\n'
            '<doc id="21" title="Cut" x="1">\nnever ended\n'
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folder = tarfile.TarInfo("raw.en")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for path, page in pages.items():
            content = page.encode("latin-1")
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (TARGET / "raw.en.tgz").write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    rows = []
    for page in pages.values():
        for article in re.findall(r"<doc id.*\n((?s:.*?))ENDOFARTICLE.*\n", page):
            lines = [line for line in article.splitlines(keepends=True) if not line.startswith("</doc>")]
            # splitlines also cuts at \x85; the script reads lines that end in \n only.
            lines = "".join(lines).replace("\n", "\n\0").split("\0")
            rows.append("\n".join(line for line in lines if line).strip())
    return rows


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    write_json(TARGET / "cases.json", file_cases())
    write_json(TARGET / "folders.json", folder_cases())
    write_json(TARGET / "arrow.json", arrow_cases() | {"raw.en.tgz": {"rows": wikicorpus_case()}})
