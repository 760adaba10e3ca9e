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
end)
