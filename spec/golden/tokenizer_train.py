"""tokenizer_train.py - a byte-level BPE that Python's trainer makes of a small text, ties included.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3
    V/bin/python spec/golden/tokenizer_train.py       spec/golden/tokenizers/trained.jsonl -> trained.json"""
import json
import os

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "tokenizers/trained.jsonl"), encoding="utf-8") as f:
    texts = [json.loads(line)["text"] for line in f]
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False,
                                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
t.save(os.path.join(here, "tokenizers/trained.json"), pretty=False)
