"""Writes examples/data/quotes.jsonl: 200 sentences from Shakespeare's plays, with author and speaker, in the form of the dataset of
quotes that the FSDP v2 tutorial trains on.

    quotes.py
"""

import json
import re

from common import REPOSITORY

TEXT = REPOSITORY / "examples" / "data" / "tinyshakespeare" / "text.txt"
COUNT = 200


def sentences():
    """(speaker, sentence) for every sentence of a speech that stands well alone: of some length, and without a name or a cue before it."""
    for speech in TEXT.read_text(encoding="utf-8").split("\n\n"):
        speaker, _, body = speech.strip().partition(":\n")
        if not body or "\n" in speaker:
            continue
        for sentence in re.split(r"(?<=[.?!])\s+", " ".join(body.split())):
            if 8 <= len(sentence.split()) <= 24 and re.fullmatch(r"[A-Z][A-Za-z ,;:'-]*[.?!]", sentence):
                yield speaker.title(), sentence


def main():
    found = list(dict.fromkeys(sentences()))
    chosen = found[:: len(found) // COUNT][:COUNT]
    lines = [json.dumps({"quote": quote, "author": "William Shakespeare", "tags": [speaker]}, ensure_ascii=False) for speaker, quote in chosen]
    (REPOSITORY / "examples" / "data" / "quotes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(found), len(lines))


if __name__ == "__main__":
    main()
