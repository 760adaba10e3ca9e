"""tokenizer_fuzz.py - random Unicode, tokenized by Python's `tokenizers` and `sentencepiece`, beside `ganymede`.

    python3 spec/golden/tokenizer_fuzz.py [COUNT [SEED]]    compares COUNT texts with each tokenizer, by build/ganymede
    python3 spec/golden/tokenizer_fuzz.py golden            writes tokenizers/hard.json: few hard texts for each

Tokenizers: the files of tokenizers/, and variants of them with each other normalizer and pre-tokenizer. Texts come from
all planes: scripts, marks that combine, what normal forms change, emoji sequences, spaces of all kinds, controls, long
runs, special tokens inside. Compared are the numbers, with and without special tokens, and both decoded texts.
Needs tokenizers (0.23) and sentencepiece (0.2), no network."""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "../..")
files = os.path.join(here, "tokenizers")

SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u180e\u200b\u2060\ufeff"
MARKS = [c for c in map(chr, range(0x300, 0x1100)) if unicodedata.combining(c)] + list("\u20d0\u20dd\u3099\u309a\ufe20")
CHANGES = [chr(c) for c in range(0x80, 0x30000) if not 0xd800 <= c < 0xe000 and (
    unicodedata.normalize("NFKD", chr(c)) != chr(c) or chr(c).lower() != chr(c))]
WORDS = ["the", "don't", "IT'S", "we'LL", "'s", "'S", "\u017f", "hello", "World", "12345", "1st", "3.14", "e\u0301",
    "caf\u00e9",
         "__init__", "a.b", "x=1;", "www.x.org", "\u2581", "\u2581\u2581", "##ing", "<0x41>", "\u0130stanbul",
         "stra\u00dfe",
         "\ufb01ne", "\u4e2d\u6587", "\u65e5\u672c\u8a9e", "\ud55c\uad6d\uc5b4", "\u0939\u093f\u0928\u094d\u0926\u0940",
         "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "\U0001f1e9\U0001f1ea",
         "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\u1100\u1161\u11a8", "\u0f71\u0f72\u0f80", "\u0e33", "\u0345\u0313"]
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<x>", "ABC",
            "helloworld", "  <x>", "new york", "Z\u00fcrich"]
BLOCKS = [(0x20, 0x7f), (0x80, 0x250), (0x250, 0x600), (0x600, 0x1000), (0x1000, 0x2000), (0x2000, 0x2c00),
          (0x2e80, 0xa000), (0xa000, 0xd800), (0xe000, 0x10000), (0x10000, 0x11800), (0x1d000, 0x1d800),
          (0x1f000, 0x1fb00), (0x20000, 0x20400), (0xe0000, 0xe01f0), (0xf0000, 0xf0040), (0x10fff0, 0x110000), (0,
          0x20)]


def assigned(c):
    """Characters of Unicode 15, which is what ganymede has tables of; later ones are documented as unknown."""
    return unicodedata.category(c) != "Cn"


def character(r):
    low, high = r.choice(BLOCKS)
    c = chr(r.randrange(low, high))
    return c if assigned(c) else "\u00e9"


def piece(r):
    kind = r.randrange(12)
    if kind < 3:
        return r.choice(WORDS)
    if kind == 3:
        return r.choice(SPECIALS)
    if kind == 4:
        return "".join(r.choice(SPACES) for _ in range(r.randrange(1, 5)))
    if kind == 5:
        return character(r) + "".join(r.choice(MARKS) for _ in range(r.randrange(1, 6)))
    if kind == 6:
        return r.choice(CHANGES)
    if kind == 7:
        return r.choice([character(r), " ", "a", "1", "\n", "\u0301", "."]) * r.choice([2, 3, 7, 40, 150])
    if kind == 8:
        return str(r.randrange(10 ** r.randrange(1, 9)))
    if kind == 9:
        return " "
    return "".join(character(r) for _ in range(r.randrange(1, 8)))


def text_of(r):
    return "".join(piece(r) for _ in range(r.randrange(0, 12)))


def variants():
    """name -> tokenizer.json"""
    out = {}
    for path in sorted(glob.glob(os.path.join(files, "*.json"))):
        name = os.path.basename(path)[:-5]
        if name in ("expected", "expected_pieces", "hard"):
            continue
        document = json.load(open(path, encoding="utf-8"))
        if "model" not in document:
            continue
        out[name] = document
    N, P = normalizers, pre_tokenizers
    extra = {
        "nfc": N.NFC(), "nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD(), "lower": N.Lowercase(),
        "strip": N.Sequence([N.Strip(True, False), N.Strip(False, True)]), "accents": N.Sequence(
            [N.NFD(), N.StripAccents()]), "nmt": N.Nmt(), "bert": N.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=False),
        "replace": N.Sequence([N.Replace(Regex(r"\s+"), " "), N.Replace("a", "bb"), N.Prepend(" ")])}
    for name, z in extra.items():
        for base in ("gpt2", "wordlevel", "unigram"):
            t = Tokenizer.from_str(json.dumps(dict(out[base], normalizer=None)))
            t.normalizer = z
            out["%s+%s" % (base, name)] = json.loads(t.to_str())
    cuts = {
        "whitespace": P.Whitespace(), "spaces": P.WhitespaceSplit(), "bert": P.BertPreTokenizer(),
        "punctuation": P.Punctuation("contiguous"), "next": P.Punctuation("merged_with_next"),
        "removed": P.Punctuation("removed"), "digits": P.Digits(False), "delimiter": P.CharDelimiterSplit("e"),
        "metaspace": P.Metaspace("\u2581", "first", True), "never": P.Metaspace("_", "never", False),
        "invert": P.Split(Regex(r"\w+|[^\w\s]+"), "removed", True), "prefix": P.ByteLevel(True, True),
        "marks": P.Split(Regex(r"\p{M}+|\p{Han}|[[:alpha:]]+"), "merged_with_previous")}
    for name, z in cuts.items():
        for base in ("bert", "wordlevel", "llama2"):
            t = Tokenizer.from_str(json.dumps(dict(out[base], pre_tokenizer=None)))
            t.pre_tokenizer = z
            out["%s/%s" % (base, name)] = json.loads(t.to_str())
    return out


def rows_of(t, texts):
    rows = []
    for text in texts:
        row = {"text": text}
        try:
            with_special, bare = t.encode(text).ids, t.encode(text, add_special_tokens=False).ids
            row.update(ids=with_special, bare=bare, decoded=t.decode(with_special),
                       shown=t.decode(with_special, skip_special_tokens=False))
        except Exception as e:  # a WordPiece without its unknown token, and the like
            row.update(error=str(e))
        rows.append(row)
    return rows


def piece_rows(p, texts):
    return [{"text": text, "bare": p.encode(text), "ids": p.encode(text), "decoded": p.decode(p.encode(text))}
            for text in texts]


LUA = """
local gm, json = require "ganymede", require "ganymede.base.json"
local file = assert(io.open(arg_path))
local compared, different = 0, 0
for line in file:lines() do
  local job = json.decode(line, "job")
  local t = gm.tokenizer(job.path)
  for _, row in ipairs(job.rows) do
    compared = compared + 1
    local ok, why = pcall(function()
      local ids, bare = t:encode(row.text), t:encode(row.text, { special = false })
      if row.error then return end
      assert(table.concat(ids, " ") == table.concat(row.ids, " "), "ids " .. table.concat(ids, " "))
      assert(table.concat(bare, " ") == table.concat(row.bare, " "), "bare " .. table.concat(bare, " "))
      local decoded, shown = t:decode(ids, { special = false }), t:decode(ids)
      assert(decoded == row.decoded, "decoded " .. decoded)
      assert(not row.shown or shown == row.shown, "shown " .. shown)
    end)
    if not ok and not row.error then
      different = different + 1
      if different <= 20 then
        print(json.encode { name = job.name, text = row.text, why = tostring(why), ids = row.ids,
        decoded = row.decoded })
      end
    end
  end
  t:close()
end
print(("%d texts compared, %d differ"):format(compared, different))
"""


def jobs(count, seed, folder):
    for name, document in variants().items():
        r = random.Random("%s %s" % (seed, name))
        path = os.path.join(folder, name.replace("/", "-") + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(document, f)
        yield name, path, rows_of(Tokenizer.from_file(path), [text_of(r) for _ in range(count)])
    for path in sorted(glob.glob(os.path.join(files, "*.model"))):
        name = os.path.basename(path)
        r = random.Random("%s %s" % (seed, name))
        p = sentencepiece.SentencePieceProcessor(model_file=path)
        yield name, path, piece_rows(p, [text_of(r) for _ in range(count)])


def compare(count, seed):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "jobs")
        with open(path, "w", encoding="utf-8") as f:
            for name, file, rows in jobs(count, seed, folder):
                f.write(json.dumps({"name": name, "path": file, "rows": rows}) + "\n")
        script = os.path.join(folder, "compare.lua")
        with open(script, "w") as f:
            f.write("local arg_path = %s\n%s" % (json.dumps(path), LUA))
        return subprocess.call([os.environ.get("GANYMEDE_BIN", os.path.join(root, "build/ganymede")), "run", script])


def golden():
    out = {}
    for path in sorted(glob.glob(os.path.join(files, "*.json")) + glob.glob(os.path.join(files, "*.model"))):
        name = os.path.basename(path)
        if name in ("expected.json", "expected_pieces.json", "hard.json"):
            continue
        r = random.Random("golden")
        texts = [text_of(r)[:60] for _ in range(24)]
        if path.endswith(".model"):
            rows = piece_rows(sentencepiece.SentencePieceProcessor(model_file=path), texts)
        else:
            rows = rows_of(Tokenizer.from_file(path), texts)
        out["texts"] = texts
        out[name] = [[row["ids"], row["decoded"]] for row in rows]
    with open(os.path.join(files, "hard.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    if sys.argv[1:] == ["golden"]:
        golden()
    else:
        sys.exit(compare(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2] if len(sys.argv) > 2 else "0"))
