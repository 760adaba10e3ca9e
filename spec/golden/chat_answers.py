"""chat_answers.py - which tokens of a conversation are the model's: of the templates in chat_templates/ and the
tokenizers in tokenizers/, by offsets of characters of Python's tokenizers, and text of jinja2.

    V/bin/python spec/golden/chat_answers.py           writes spec/golden/chat_answers.json

A token belongs to an answer if it begins in what the template writes for an assistant's turn after the prompt of an
answer, up to the token that ends the turn. Needs tokenizers and jinja2."""
import json
import os

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

here = os.path.dirname(os.path.abspath(__file__))
CASES = [  # template, tokenizer, tokens that are added to it, what ends a turn
    ("chatml", "smollm", ["<|im_start|>", "<|im_end|>"], "<|im_end|>"),
    ("llama3", "llama3", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>"], "<|eot_id|>"),
    ("llama2", "llama2", [], "</s>"),
    ("mistral", "llama2", [], "</s>"),
    ("gemma", "qwen2", ["<start_of_turn>", "<end_of_turn>", "<s>"], "<end_of_turn>"),
    ("zephyr", "deepseek", ["</s>"], "</s>"),
    ("chatml", "trained", [], None),  # no token ends a turn: it is written in pieces
]
TALKS = [
    [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am a small model."},
     {"role": "user", "content": "Really  "},
     {"role": "assistant", "content": "Yes.\n\nReally: \u00e4\u6f22\U0001f600!"}],
    [{"role": "user", "content": "list"}, {"role": "assistant", "content": "\n\n1. one\n2. two\n"}],
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": " leading and trailing  "},
     {"role": "user", "content": "y"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "z"}],
]
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.globals["raise_exception"] = lambda message: (_ for _ in ()).throw(ValueError(message))


def text_of(template, messages, prompt):
    return environment.from_string(template).render(messages=messages, add_generation_prompt=prompt, bos_token="<s>",
                                                    eos_token="</s>", tools=None, documents=None)


def tokenizer_of(name, added):
    with open(os.path.join(here, "tokenizers", name + ".json"), encoding="utf-8") as f:
        data = json.load(f)
    size = len(data["model"]["vocab"])
    for i, token in enumerate(added):
        data["added_tokens"].append({"id": size + i, "content": token, "single_word": False, "lstrip": False,
                                     "rstrip": False, "normalized": False, "special": True})
    processor = data.get("post_processor")
    if processor and processor["type"] == "ByteLevel":
        processor["trim_offsets"] = False  # where tokens begin, spaces included
    return Tokenizer.from_str(json.dumps(data))


rows = []
for template, name, added, end in CASES:
    with open(os.path.join(here, "chat_templates", template + ".jinja"), encoding="utf-8", newline="") as f:
        source = f.read()
    tokenizer = tokenizer_of(name, added)
    for talk, messages in enumerate(TALKS):
        text, spans = text_of(source, messages, False), []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            first = len(text_of(source, messages[:i], True))
            last = len(text_of(source, messages[:i + 1], False))
            if end and end in text[first:last]:
                last = first + text[first:last].rindex(end) + len(end)
            spans.append((first, last))
        encoding = tokenizer.encode(text, add_special_tokens=False)
        own = [int(any(a <= begin < b for a, b in spans)) for begin, _ in encoding.offsets]
        rows.append({"template": template, "tokenizer": name, "added": added, "messages": messages, "text": text,
                     "ids": encoding.ids, "own": own})
        print(template, name, talk, len(encoding.ids), sum(own))
with open(os.path.join(here, "chat_answers.json"), "w", encoding="utf-8") as f:
    json.dump(rows, f, ensure_ascii=True)
