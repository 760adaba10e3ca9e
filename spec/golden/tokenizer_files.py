"""tokenizer_files.py - small tokenizers of every kind, trained on this tree's own texts, and the ids that Python gives.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3
    V/bin/python spec/golden/tokenizer_files.py            writes spec/golden/tokenizers/*.json

Each NAME.json is a tokenizer; expected.json has for each name a list of { text, pair, special, ids, decoded, shown }:
`decoded` without special tokens, `shown` with them. Training uses hash maps and several threads, so that a second run
may give other merges where counts are equal; the files here are one run's."""
import glob
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "tokenizers")
texts = [open(f, encoding="utf-8").read() for f in sorted(glob.glob(os.path.join(here, "../../docs/*.md")))]
foreign = ["日本語のテキスト。東京は日本の首都です。", "Привет мир, как дела?", "naïve café Ångström ﬁne Ⅷ ½ ①",
           "emoji 😀👩‍👩‍👧 🇩🇪 done", "العربية مرحبا", "हिन्दी में पाठ", "한국어 텍스트", "İstanbul ıǧ ẞ ß ſ"]
corpus = texts + foreign * 20
END = "<|endoftext|>"
made = {}


def changed(tokenizer, change):
    document = json.loads(tokenizer.to_str())
    change(document)
    return Tokenizer.from_str(json.dumps(document))


def byte_level(pre, size=600, normalizer=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, special_tokens=[END], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def split(*patterns):
    cuts = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


made["gpt2"] = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))

t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
t.add_tokens([AddedToken("helloworld", single_word=True), AddedToken("  <x>", lstrip=True, rstrip=True,
                                                                     normalized=False), "ABC"])
t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
t.post_processor = processors.RobertaProcessing((END, 0), (END, 0))
made["roberta"] = t

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
t = byte_level(split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL))
t = changed(t, lambda d: d["model"].update(ignore_merges=True))
t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
    single=END + " $A", pair=END + " $A " + END + ":1 $B:1", special_tokens=[(END, 0)])])
made["llama3"] = t

made["qwen2"] = byte_level(split(
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL), normalizer=normalizers.NFC())
made["deepseek"] = byte_level(split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + TAIL)))
made["smollm"] = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False)]))

t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
t.train_from_iterator([x[:9000] for x in corpus], trainers.BpeTrainer(
    vocab_size=800, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)],
    show_progress=False, max_token_length=8, limit_alphabet=90))
t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
made["llama2"] = changed(t, lambda d: d.update(added_tokens=d["added_tokens"][:3]))

METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
made["first"] = changed(made["llama2"], lambda d: (
    d["model"].update(byte_fallback=False, fuse_unk=False),
    d.update(normalizer=None, pre_tokenizer=METASPACE, decoder=METASPACE)))

t = Tokenizer(models.BPE(unk_token=END, end_of_word_suffix="</w>"))
t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                     normalizers.Lowercase()])
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(
    Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
    pre_tokenizers.ByteLevel(add_prefix_space=False)])
t.decoder = decoders.ByteLevel()
t.train_from_iterator(corpus, trainers.BpeTrainer(
    vocab_size=700, special_tokens=[END], end_of_word_suffix="</w>", show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
made["clip"] = t

t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
t.decoder = decoders.WordPiece()
t.train_from_iterator(corpus, trainers.WordPieceTrainer(
    vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False,
    limit_alphabet=120))
t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
made["bert"] = t

t = Tokenizer(models.Unigram())
t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
t.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=800, special_tokens=["<unk>", "<s>", "</s>", "<mask>"],
                                                      unk_token="<unk>", show_progress=False))
t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
made["unigram"] = t

t = Tokenizer(models.WordLevel(unk_token="<unk>"))
t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip(),
                                     normalizers.Lowercase()])
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(
    "merged_with_previous"), pre_tokenizers.Digits()])
t.train_from_iterator(corpus, trainers.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False))
t.add_tokens(["new york", "Zürich"])
made["wordlevel"] = t

SAMPLES = foreign + [
    "", " ", "a", "  two  spaces\n\n\nand lines\r\n\tdone  ", "The quick brown fox doesn't jump; IT'S 12345 o'CLOCK.",
    "a<|endoftext|>b <s> </s><unk>[CLS] [MASK]<mask> x", "helloworld xhelloworld helloworld! ABCABC   <x>  y",
    "in Zürich or New York", "e\u0301 \u212b \u0085x\u180ey\u00a0z\u200bq\ufeff", "１２３ ⅧⅨ ²³ 七",
    "'S 'ſ don't WE'LL", "<0x41> ▁▁ __init__(self, *args): return {'a': [1, 2]}", "x" * 120, "\u0001\u0000\u007f",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👨‍👩‍👧‍👦🏳️‍🌈 ﷺ ｶﾞ"]

os.makedirs(out, exist_ok=True)
expected = {}
for name, t in made.items():
    t.save(os.path.join(out, name + ".json"), pretty=False)
    rows = []
    for i, text in enumerate(SAMPLES):
        for special, pair in ((True, None), (False, None), (True, SAMPLES[i - 1])):
            ids = t.encode(text, pair, add_special_tokens=special).ids
            rows.append({"text": text, "pair": pair, "special": special, "ids": ids, "decoded": t.decode(ids),
                         "shown": t.decode(ids, skip_special_tokens=False)})
    expected[name] = rows
with open(os.path.join(out, "expected.json"), "w", encoding="utf-8") as f:
    json.dump(expected, f, ensure_ascii=True, separators=(",", ":"))

# SentencePiece's own files, by Python's `sentencepiece` (0.2.3): V/bin/pip install sentencepiece
import io  # noqa: E402

import sentencepiece  # noqa: E402

KINDS = {
    "pieces_unigram": dict(model_type="unigram", vocab_size=500, normalization_rule_name="identity"),
    "pieces_unigram_user": dict(model_type="unigram", vocab_size=700, byte_fallback=True,
                                user_defined_symbols=["<x>", "ABC", "the"], normalization_rule_name="nmt_nfkc_cf"),
    "pieces_bpe": dict(model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
                       remove_extra_whitespaces=False),
    "pieces_bpe_user": dict(model_type="bpe", vocab_size=500, user_defined_symbols=["<x>", "ABC"],
                            add_dummy_prefix=False, normalization_rule_name="identity"),
    "pieces_suffix": dict(model_type="unigram", vocab_size=400, treat_whitespace_as_suffix=True,
                          normalization_rule_name="identity"),
}
lines = [line for text in corpus[:4000] for line in text.split("\n")]
rows = {}
for name, options in KINDS.items():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False,
                                             minloglevel=2, **options)
    with open(os.path.join(out, name + ".model"), "wb") as f:
        f.write(model.getvalue())
    p = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    rows[name] = [{"text": text, "ids": p.encode(text), "decoded": p.decode(p.encode(text))} for text in SAMPLES]
with open(os.path.join(out, "expected_pieces.json"), "w", encoding="utf-8") as f:
    json.dump(rows, f, ensure_ascii=True, separators=(",", ":"))
