"""Writes tests/golden/text/chat/rendered.json.gz: what transformers' apply_chat_template makes of every template in
tests/golden/text/chat/templates with every conversation of chat_conversations.py: the text and the spans of
{% generation %} blocks, or that it raises an exception. The same for every line of snippets.txt, and for every two
lines in a row, with one conversation.
"""

import copy
import datetime
import gzip
import json
import os
import time

from common import GOLDEN

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from chat_conversations import CONVERSATIONS

CHAT = GOLDEN / "text" / "chat"
NOW = 1721043296.25
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SNIPPET_INPUTS = {
    "messages": [{"role": "user", "content": "Héllo wörld"}, {"role": "assistant", "content": None, "n": 3}],
    "x": 5, "f": 2.5, "s": "abc def", "l": [3, 1, 2], "d": {"b": 1, "a": [1, 2]}, "t": True, "n": None, "e": "", "y": "outside",
}


class Clock(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def byte_spans(text, spans):
    def offset(characters):
        return len(text[:characters].encode("utf-8"))

    return [[offset(begin), offset(end)] for begin, end in spans]


def rendered(tokenizer, template, conversation):
    given = copy.deepcopy(conversation)  # a filter of Jinja changes lists
    messages = given.pop("messages")
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **given)
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
    given = copy.deepcopy(conversation)
    messages = given.pop("messages")
    texts, spans = chat_template_utils.render_jinja_template(
        [messages], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL_TOKENS, **given
    )
    assert texts == [text]
    return {"text": text, "spans": byte_spans(text, spans[0])} if spans[0] else {"text": text}


def main():
    os.environ["TZ"] = "UTC"
    time.tzset()
    chat_template_utils.datetime = Clock
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL_TOKENS)
    templates = sorted(CHAT.glob("templates/*.jinja"))
    results = {}
    for path in templates:
        template = path.read_bytes().decode("utf-8")
        results[path.stem] = [rendered(tokenizer, template, conversation) for conversation in CONVERSATIONS.values()]
    lines = CHAT.joinpath("snippets.txt").read_text(encoding="utf-8").splitlines()
    snippets = lines + [f"{first}\n{second}" for first, second in zip(lines, lines[1:])]
    golden = {
        "now": NOW, "special_tokens": SPECIAL_TOKENS, "conversations": CONVERSATIONS, "results": results, "snippet_inputs": SNIPPET_INPUTS,
        "snippets": snippets, "snippet_results": [rendered(tokenizer, snippet, SNIPPET_INPUTS) for snippet in snippets],
    }
    data = json.dumps(golden, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    CHAT.joinpath("rendered.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    refused = sum("error" in result for row in results.values() for result in row)
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations, {refused} refusals")


if __name__ == "__main__":
    main()
