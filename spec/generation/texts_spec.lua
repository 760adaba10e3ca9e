--- What is told of a text while it is written: whole characters, and nothing that is cut off later.
local gm = require "ganymede"
local prompts = require "ganymede.generation.prompts"
local texts = require "ganymede.generation.texts"

local TOKENIZER = gm.tokenizer "spec/golden/tokenizers/llama3.json"

-- Gives the tokens of `text`, cut into bytes where `bytes` is set, one after the other to a row that began with "a".
local function told(text, stop, bytes, limit)
  local list, pieces = {}, {}
  for piece in bytes and text:gmatch "." or text:gmatch ".+" do
    for _, id in ipairs(TOKENIZER:encode(piece, { special = false })) do list[#list + 1] = id end
  end
  local opt = { prompts = { "a" }, tokenizer = TOKENIZER, max_tokens = limit or #list, stop = stop or {},
    on_text = function(_, piece) pieces[#pieces + 1] = piece end }
  local row, at = prompts.rows(opt)[1], 0
  while not row.done do
    at = at + 1
    texts.add(opt, { row }, { list[at] }, {})
  end
  return pieces, row
end

describe("the text of a generation", function()
  it("is told as it comes, all of it", function()
    local pieces, row = told "The capital of France is Paris."
    assert.is_true(#pieces > 2)
    assert.equal("The capital of France is Paris.", table.concat(pieces))
    assert.equal("length", row.done)
  end)

  it("never has a part of a stop text, also where tokens cut it", function()
    local pieces, row = told("say bye now, and more", { "zzz", "bye now" }, true)
    assert.equal("say ", table.concat(pieces))
    assert.equal("say ", row.completion)
    assert.equal("stop text", row.done)
    local rest = told("say bye nobody", { "bye now" }, true)
    assert.equal("say bye nobody", table.concat(rest)) -- what looked like one was none
    for _, piece in ipairs(rest) do assert.is_falsy(piece:find "^bye?$") end
    assert.equal("say by", table.concat((told("say bye", { "bye now" }, true, 6)))) -- it ends while one may begin
  end)

  it("has whole characters only", function()
    local snowman, ids, pieces = "\226\152\131", {}, {}
    -- The tokens of its three bytes, as a byte-level vocabulary writes them: U+00E2, U+013A, U+0125.
    for i, name in ipairs { "\195\162", "\196\186", "\196\165" } do ids[i] = assert(TOKENIZER:id(name)) end
    local opt = { prompts = { "a" }, tokenizer = TOKENIZER, max_tokens = #ids + 1, stop = {},
      on_text = function(_, piece) pieces[#pieces + 1] = piece end }
    local row = prompts.rows(opt)[1]
    for i, id in ipairs(ids) do
      texts.add(opt, { row }, { id }, {})
      assert.equal(i == #ids and snowman or "", table.concat(pieces))
    end
    texts.add(opt, { row }, TOKENIZER:encode("x", { special = false }), {})
    assert.equal(snowman .. "x", table.concat(pieces))
  end)

  it("follows that of the prompt, where a vocabulary has no space at the beginning of a text", function()
    for _, name in ipairs { "pieces_bpe.model", "pieces_unigram.model", "unigram.json", "wordlevel.json" } do
      local t = gm.tokenizer("spec/golden/tokenizers/" .. name)
      local ids = t:encode("the a the is", { special = false })
      local whole = t:decode(ids)
      for k = 1, #ids - 1 do
        local opt = { prompts = { { unpack(ids, 1, k) } }, tokenizer = t, max_tokens = 100, stop = {} }
        local row = prompts.rows(opt)[1]
        for i = k + 1, #ids do texts.add(opt, { row }, { ids[i] }, {}) end
        assert.equal(whole, t:decode(row.ids) .. texts.added(opt, row), name)
      end
      t:close()
    end
  end)

  it("has the character that the prompt has only begun", function()
    local ids = TOKENIZER:encode("a", { special = false })
    for _, name in ipairs { "\195\162", "\196\186" } do ids[#ids + 1] = assert(TOKENIZER:id(name)) end
    local opt = { prompts = { ids }, tokenizer = TOKENIZER, max_tokens = 3, stop = {} }
    local row = prompts.rows(opt)[1]
    assert.equal("", texts.added(opt, row))
    texts.add(opt, { row }, { assert(TOKENIZER:id "\196\165") }, {})
    assert.equal("\226\152\131", texts.added(opt, row))
  end)

  it("may be longer than a list that LuaJIT unpacks", function()
    local opt = { prompts = { {} }, tokenizer = TOKENIZER, max_tokens = 9999, stop = {} }
    local one = TOKENIZER:encode("a", { special = false })[1]
    for i = 1, 9000 do opt.prompts[1][i] = one end
    local row = prompts.rows(opt)[1]
    assert.equal(9000, #row.tokens)
    for i = 9001, 18000 do row.tokens[i] = one end
    assert.equal(("a"):rep(9000), texts.added(opt, row))
  end)
end)
