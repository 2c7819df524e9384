"""Trains the small tokenizer with a chat template, examples/tokenizers/chat-1k, on examples/data/wendle.jsonl.

usage: chat_tokenizer.py
"""

import json

from common import REPOSITORY, write_json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

DATA = REPOSITORY / "examples" / "data" / "wendle.jsonl"
FOLDER = REPOSITORY / "examples" / "tokenizers" / "chat-1k"
SPECIAL = ["<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# The {% generation %} block marks answers, so that --assistant_only_loss works.
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
            {{- message['content'] + '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- message['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def main():
    texts = [message["content"] for line in DATA.open() for message in json.loads(line)["messages"]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts + ["user", "assistant", "system"], trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(FOLDER)
    config = {"eos_token": "<|im_end|>", "pad_token": "<|pad|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(FOLDER / "tokenizer_config.json", config)  # as versions before 5 read it, too
    loaded = AutoTokenizer.from_pretrained(FOLDER)
    messages = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Good day."}]
    print(len(loaded), loaded.apply_chat_template(messages, tokenize=False))


main()
