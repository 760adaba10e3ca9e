--- What was given is of another kind than what is taken: a table of numbers as a recipe, a model that writes no texts,
-- a name of a model on a hub. The message says what was expected, what was given, and what to try.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local support = require "spec.cli.support"
local shell = support.shell

local function refused(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  return failure.text(err), failure.code(err)
end

local function has(text, ...)
  for _, part in ipairs { ... } do assert.matches(part, text, 1, true) end
end

describe("a file that is no recipe", function()
  local home
  before_each(function()
    home = support.home(nil, { ["train.csv"] = "a,b\n1,2\n", ["x.json"] = '{"a": 1}',
      ["wrong.lua"] = "return {\n a = }", ["lines.jsonl"] = '{"messages": []}\n', ["recipe.txt"] = support.recipe })
  end)
  after_each(function() shell.remove(home) end)

  it("is refused with what a recipe is, and how data are named in one", function()
    for _, verb in ipairs { "run", "check" } do
      local result = support.run(home, { verb, "train.csv" })
      assert.equal(2, result.code)
      has(result.err, "train.csv is no recipe: a recipe is a file of Lua that returns a table of settings",
        "(line 2: ", 'data = { train = { type = "CSV", path = "train.csv", ... } }', "`ganymede data train.csv`")
    end
    has(support.run(home, { "run", "lines.jsonl" }).err, "lines.jsonl is no recipe",
      'type = "Chat", path = "lines.jsonl"')
    has(support.run(home, { "run", "x.json" }).err, "x.json is no recipe", "`ganymede help recipe`")
  end)

  it("is none of Lua that is wrong, nor Lua with another name", function()
    local result = support.run(home, { "run", "wrong.lua" })
    assert.equal(2, result.code)
    assert.matches("^ganymede: wrong%.lua:2: unexpected symbol", result.err)
    assert.equal(0, support.run(home, { "run", "recipe.txt", "--steps", "1" }).code)
  end)
end)

describe("a model that writes no texts", function()
  local takes = "gm.generate takes a language model: tokens (batch, s) of i64 -> logits (batch, s, vocabulary)"

  it("is refused by gm.generate", function()
    local mlp = gm.models.MLP { inputs = 2, hidden = { 3 }, classes = 2 }
    has(refused(gm.generate, mlp, { prompts = { { 1, 2, 3 } } }), "a sample must have 2 elements", takes,
      "this one is MLP")
    has(refused(gm.generate, gm.nn.Linear(2, 2), { prompts = { { 1, 2 } } }), takes, "this one is Linear")
    has(refused(gm.generate, { type = "GPT" }, { prompts = { { 1, 2 } } }), "gm.pretrained(DIR); got ")
    local pairs_of = gm.nn.class "Rows"
    function pairs_of.forward(_, x) return x:to "f32" end
    has(refused(gm.generate, pairs_of {}, { prompts = { { 1, 2 } } }),
      "the model must return logits (batch, 2, vocabulary); it returned (1, 2)", takes, "this one is Rows")
  end)

  it("is none of one's own that returns logits", function()
    local own = gm.nn.class "Own"
    function own.forward(_, x) return gm.ones { 1, x:size(2), 5 } end
    assert.same({ 1, 2, 0 }, gm.generate(own {}, { prompts = { { 1, 2 } }, max_tokens = 1, temperature = 0 })[1].tokens)
  end)
end)

describe("a name of a model", function()
  it("is refused with what a model is", function()
    local text, code = refused(gm.pretrained, "no/such")
    assert.equal(2, code)
    has(text, "no/such: there is no such folder, or it is empty", "config.json and model.safetensors", "a GGUF file",
      "download the model first")
    local home = support.home()
    finally(function() shell.remove(home) end)
    has(refused(gm.pretrained, home), home .. "/config.json: cannot be read; the folder of a model has it, beside")
  end)
end)

-- own.blamed puts the user's line into texts. A failure that has taken over such a text has an exit status, too.
describe("a failure with a line of Ganymede's own files", function()
  it("is said without that line", function()
    local home = support.home()
    finally(function() shell.remove(home) end)
    shell.write(home .. "/fails.lua", ([[require("ganymede.base.failure")(2, "%%s", %q)]]):format(
      GANYMEDE_ROOT .. "/lua/ganymede/base/x.lua:12: no room for it"))
    local result = support.run(home, { "run", "fails.lua" })
    assert.equal(2, result.code, result.err)
    assert.matches("ganymede: no room for it\n", result.err, 1, true)
  end)
end)
