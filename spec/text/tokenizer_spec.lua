-- Tokenizers against Python's `tokenizers` on the same files (spec/golden/tokenizer_files.py): numbers equal, no
-- tolerance; and what is refused.
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local tree = require "spec.support.tree"

local folder = "spec/golden/tokenizers/"
local expected = json.decode(tree.read(folder .. "expected.json"))
local names = {}
for name in pairs(expected) do names[#names + 1] = name end
table.sort(names)

describe("gm.tokenizer gives the numbers of Python's tokenizers", function()
  for _, name in ipairs(names) do
    it("with " .. name, function()
      local t = gm.tokenizer(folder .. name .. ".json")
      assert(#expected[name] > 60)
      for _, row in ipairs(expected[name]) do
        local pair = type(row.pair) == "string" and row.pair or nil
        local about = ("%s %q %q"):format(name, row.text, pair or "-")
        local ids = t:encode(row.text, { special = row.special, pair = pair })
        assert.equal(table.concat(row.ids, " "), table.concat(ids, " "), about)
        assert.equal(row.decoded, t:decode(ids, { special = false }), about)
        assert.equal(row.shown, t:decode(ids), about)
      end
      t:close()
    end)
  end
end)

-- Texts of all planes, marks that combine, runs, special tokens inside (spec/golden/tokenizer_fuzz.py).
describe("gm.tokenizer gives the numbers of Python for hard texts", function()
  local hard = json.decode(tree.read(folder .. "hard.json"))
  local found = 0
  for name, rows in pairs(hard) do
    if name ~= "texts" then
      found = found + 1
      it("with " .. name, function()
        local t = gm.tokenizer(folder .. name)
        for i, row in ipairs(rows) do
          local ids = t:encode(hard.texts[i])
          assert.equal(table.concat(row[1], " "), table.concat(ids, " "), hard.texts[i])
          assert.equal(row[2], t:decode(ids, { special = false }), hard.texts[i])
        end
        t:close()
      end)
    end
  end
  it("of all files", function() assert.equal(18, found) end)
end)

describe("gm.tokenizer gives the numbers of Python's sentencepiece", function()
  local pieces = json.decode(tree.read(folder .. "expected_pieces.json"))
  for _, name in ipairs { "bpe", "bpe_user", "suffix", "unigram", "unigram_user" } do
    it("with " .. name, function()
      local t = gm.tokenizer(folder .. "pieces_" .. name .. ".model")
      assert(#pieces["pieces_" .. name] > 20)
      for _, row in ipairs(pieces["pieces_" .. name]) do
        local ids = t:encode(row.text)
        assert.equal(table.concat(row.ids, " "), table.concat(ids, " "), row.text)
        assert.equal(row.decoded, t:decode(ids, { special = false }), row.text)
      end
      t:close()
    end)
  end

  it("and refuses files that are cut, at each byte of their beginning", function()
    local path, bytes = os.tmpname() .. ".model", tree.read(folder .. "pieces_bpe.model")
    local whole = 0 -- where a piece ends: a shorter model, which has its unknown piece
    for n = 0, 200 do
      shell.write(path, bytes:sub(1, n))
      if n == whole and n > 0 then
        gm.tokenizer(path):close()
      else
        assert.error_matches(function() gm.tokenizer(path) end, "%.model: ")
      end
      if n == whole then whole = n + 2 + bytes:byte(n + 2) end
    end
    os.remove(path)
  end)
end)

describe("a tokenizer", function()
  local t
  setup(function() t = gm.tokenizer(folder .. "roberta.json") end)
  teardown(function() t:close() end)

  it("says its size, its tokens and their numbers", function()
    assert.equal("BPE", t.model)
    local token, special = t:token(0)
    assert.equal("<|endoftext|>", token)
    assert.is_true(special)
    assert.equal(0, t:id "<|endoftext|>")
    assert.is_nil(t:id "no such token")
    assert.is_nil(t:token(t.size))
    assert.is_nil(t:token(-1))
    assert.equal("ABC", t:token(t:id "ABC"))
    assert.same({ 0, t:id "<mask>" }, t.special)
    assert.is_true(t.size > t:id "<mask>")
  end)

  it("comes from a folder as well", function()
    local dir = shell.temporary_folder()
    shell.run(("cp %sgpt2.json %s/tokenizer.json"):format(folder, dir))
    assert.equal(dir .. "/tokenizer.json", gm.tokenizer(dir).path)
    shell.remove(dir)
  end)

  it("refuses texts that are no UTF-8, numbers of no token, and what it does not know", function()
    assert.error_matches(function() t:encode "ab\255c" end, "no UTF%-8: byte 2 of 4 is 0xff")
    assert.error_matches(function() t:encode "a\237\160\128" end, "no UTF%-8: byte 1")
    assert.error_matches(function() t:decode { 1, 99999 } end, "has no token 99999 %(number 2 of 2%)")
    assert.error_matches(function() t:decode { "x" } end, "numbers of tokens")
    assert.error_matches(function() t:decode { 1.5 } end, "numbers of tokens")
    assert.error_matches(function() t:encode("a", { specials = true }) end, "special")
  end)

  it("that was closed says so", function()
    local other = gm.tokenizer(folder .. "gpt2.json")
    other:close()
    assert.error_matches(function() other:encode "a" end, "was closed")
  end)
end)

describe("a tokenizer.json", function()
  local path
  before_each(function() path = os.tmpname() end)
  after_each(function() os.remove(path) end)

  -- Opens a small file, changed.
  local function open(change)
    local document = { model = { type = "WordLevel", vocab = { a = 0, ["?"] = 1 }, unk_token = "?" } }
    change(document)
    shell.write(path, type(document.text) == "string" and document.text or json.encode(document))
    return gm.tokenizer(path)
  end

  local function refused(pattern, change)
    assert.error_matches(function() open(change) end, pattern)
  end

  it("is read", function() assert.same({ 0 }, open(function() end):encode "a") end)

  -- By tokenizers 0.23: NFD of U+0345 U+0898 U+0334 leaves U+0898 where it is, and so what stands on its two sides;
  -- [[:alpha:]] is Unicode's Alphabetic, which has U+093F.
  it("knows marks of later versions of Unicode and named classes as Python does", function()
    local text = "a\205\133\224\162\152\204\180"
    local t = open(function(d) d.normalizer, d.model.vocab[text] = { type = "NFD" }, 2 end)
    assert.same({ 2 }, t:encode(text))
    t = open(function(d)
      d.pre_tokenizer = { type = "Split", pattern = { Regex = "[[:alpha:]]+" }, behavior = "Isolated" }
      d.model.vocab["\224\164\184\224\164\191"] = 2
    end)
    assert.same({ 2 }, t:encode "\224\164\184\224\164\191")
    refused("%[:punct:%]%]', which is not read here", function(d)
      d.pre_tokenizer = { type = "Split", pattern = { Regex = "[[:punct:]]" }, behavior = "Isolated" }
    end)
  end)

  it("joins the leftmost of equal pairs first", function()
    local t = open(function(d)
      d.model = { type = "BPE", vocab = { a = 0, aa = 1, aaaa = 2 }, merges = { "a a", "aa aa" } }
    end)
    assert.same({ 1, 0 }, t:encode "aaa")
    assert.same({ 2, 1, 0 }, t:encode "aaaaaaa")
  end)

  it("of bytes has the number of each byte, in all texts, and gives them back", function()
    local t = gm.tokenizer "bytes"
    assert.equal(256, t.size)
    for _, text in ipairs { "", "a", "h\195\169llo\n\0 <0x41>  w", "\240\159\152\128\239\191\189" } do
      local ids = t:encode(text)
      assert.same({ text:byte(1, -1) }, ids)
      assert.equal(text, t:decode(ids))
    end
    assert.equal("\239\191\189", t:decode { 195 }) -- half a character
    assert.error_matches(function() t:decode { 256 } end, "has no token 256")
    t:close()
  end)

  it("refuses wrong arguments at the line of the caller, by the names of its methods", function()
    local t = gm.tokenizer "spec/golden/tokenizers/gpt2.json"
    for words, call in pairs {
      ["bad argument #1 to 'tokenizer:encode' %(text must be a string"] = function() t:encode { "a" } end,
      ["bad argument #1 to 'tokenizer:decode' %(ids must be a table"] = function() t:decode "a" end,
      ["bad argument #1 to 'tokenizer:chat' %(messages must be a table"] = function() t:chat "a" end,
      ["tokenizer:encode has no option 'specal' %(did you mean 'special'%?%)"] = function()
        t:encode("a", { specal = true })
      end,
    } do
      local ok, why = pcall(call)
      assert.is_false(ok)
      assert.matches("^spec/text/tokenizer_spec%.lua:%d+: ", why)
      assert.matches(words, why)
    end
    t:close()
  end)

  it("is refused where it has what is not known, by its place", function()
    refused("the field 'x' is not known", function(d) d.x = 1 end)
    refused("model: the type 'RNN' is not known", function(d) d.model.type = "RNN" end)
    refused("model: the field 'y' is not known", function(d) d.model.y = 1 end)
    refused("normalizer: the type 'Upper' is not known", function(d) d.normalizer = { type = "Upper" } end)
    refused("pre_tokenizer%.pretokenizers%.1: the type 'Z' is not known", function(d)
      d.pre_tokenizer = { type = "Sequence", pretokenizers = { { type = "Whitespace" }, { type = "Z" } } }
    end)
    refused("decoder: the type 'CTC' is not known", function(d) d.decoder = { type = "CTC" } end)
    refused("post_processor: the type 'P' is not known", function(d) d.post_processor = { type = "P" } end)
    refused("'truncation' would cut texts short", function(d) d.truncation = { max_length = 5 } end)
    refused("'padding' would lengthen texts", function(d) d.padding = { strategy = { Fixed = 5 } } end)
    refused("version: '2%.0'", function(d) d.version = "2.0" end)
  end)

  it("is refused where it is wrong", function()
    refused("line 1, column", function(d) d.text = "{" end)
    refused("is no object", function(d) d.text = "[]" end)
    refused("the number of 'b' is no number", function(d) d.model.vocab.b = -1 end)
    refused("too high", function(d) d.model.vocab.b = 2000000000 end)
    refused("vocab", function(d) d.model.vocab = json.array {} end)
    refused("the id of 'new' is 7, but its place in the vocabulary is 2", function(d)
      d.added_tokens = { { id = 7, content = "new" } }
    end)
    refused("twice", function(d) d.added_tokens = { { id = 0, content = "a" }, { id = 0, content = "a" } } end)
    refused("merges%.0: 'a' and 'c'", function(d)
      d.model = { type = "BPE", vocab = { a = 0, b = 1 }, merges = { "a c" } }
    end)
    refused("merges%.0: is no pair", function(d)
      d.model = { type = "BPE", vocab = { a = 0, b = 1 }, merges = { "a b c" } }
    end)
    refused("dropout: merges are left out at random", function(d)
      d.model = { type = "BPE", vocab = { a = 0 }, merges = json.array {}, dropout = 0.1 }
    end)
    refused("the regular expression", function(d)
      d.pre_tokenizer = { type = "Split", pattern = { Regex = "(" }, behavior = "Isolated" }
    end)
    refused("\\K, which is not read here", function(d)
      d.pre_tokenizer = { type = "Split", pattern = { Regex = "a\\K" }, behavior = "Isolated" }
    end)
    refused("behavior: 'Sideways'", function(d)
      d.pre_tokenizer = { type = "Split", pattern = { Regex = "a" }, behavior = "Sideways" }
    end)
    refused("nested too deeply", function(d)
      local inner = { type = "NFC" }
      for _ = 1, 12 do inner = { type = "Sequence", normalizers = { inner } } end
      d.normalizer = inner
    end)
    refused("precompiled_charsmap", function(d)
      d.normalizer = { type = "Precompiled", precompiled_charsmap = 7 }
    end)
    refused("table of characters", function(d)
      d.normalizer = { type = "Precompiled", precompiled_charsmap = "////f2E=" }
    end)
  end)
end)
