--- Mutants of tokenizers and of chat templates: host/text, host/data/tokenize.c, lua/ganymede/text. What a row says:
-- spec/mutants/table.lua.
return {
  {
    name = "790-bpe-ties", file = "host/text/bpe.c",
    find = [[return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;]],
    replace = [[return a->rank != b->rank ? a->rank < b->rank : a->place > b->place;]],
    breaks = "of equal pairs the last is joined first",
    test = "spec/text/tokenizer_spec.lua -f leftmost",
  },
  {
    name = "791-added-order", file = "host/text/added.c",
    find = [[while (t->left && begin > done) {]],
    replace = [[while (false && begin > done) {]],
    breaks = "added tokens leave the spaces before them",
    test = "spec/text/tokenizer_spec.lua -f roberta",
  },
  {
    name = "792-tokenize-next-file", file = "host/data/tokenize.c",
    find = [[z->now.file++, z->now.bytes = z->now.line = 0;]],
    replace = [[z->now.file++, z->now.line = 0;]],
    breaks = "the next file is read from where the last one ended",
    test = "spec/text/tokenize_spec.lua -f 'takes texts, lines'",
  },
  {
    name = "793-train-ties", file = "host/text/bpe_train.c",
    find = [[return a->count != b->count ? a->count > b->count : a->key < b->key;]],
    replace = [[return a->count != b->count ? a->count > b->count : a->key > b->key;]],
    breaks = "of equally frequent pairs the one with higher numbers becomes a token",
    test = "spec/text/tokenize_spec.lua -f train",
  },
  {
    name = "794-template-trim", file = "lua/ganymede/text/template_parse.lua",
    find = [[strip, trim = right == "-", kind ~= "{" and right ~= "+"]],
    replace = [[strip, trim = right == "-", false]],
    breaks = "the line end behind a block stays",
    test = "spec/text/template_spec.lua -f zephyr",
  },
  {
    name = "795-pieces-unknown", file = "host/text/sentencepiece_model.c",
    find = [[*before = !all; /* neighbours that are unknown become one */]],
    replace = [[*before = false; /* neighbours that are unknown become one */]],
    breaks = "neighbours that are unknown stay apart",
    test = "spec/text/tokenizer_spec.lua -f sentencepiece",
  },
  {
    name = "807-pick-temperature", file = "host/text/pick.c",
    find = [[exp((c[i].value - most) / r->temperature)]],
    replace = [[exp((c[i].value - most) * r->temperature)]],
    breaks = "scores are multiplied by the temperature",
    test = "spec/text/pick_spec.lua -f 'rule 2'",
  },
  {
    name = "808-pick-penalty-twice", file = "host/text/pick.c",
    find = [[if (t < 0 || t >= n || done[t]) continue;]],
    replace = [[if (t < 0 || t >= n) continue;]],
    breaks = "a token that was seen twice is punished twice",
    test = "spec/text/pick_spec.lua -f 'once each'",
  },
}
