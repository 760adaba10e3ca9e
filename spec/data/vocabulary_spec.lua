--- Tokens of a larger vocabulary than the model's are refused before the first step, by check, run and gm.initialize,
-- whatever tokens the file happens to hold.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local recipe = [[
return { name = "words", seed = 3, steps = 2,
  model = { type = "GPT", vocabulary = %d, sequence_length = 8, width = 8, depth = 1, heads = 2 },
  data = { train = %s, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }
]]

describe("tokens of a larger vocabulary than the model's", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    local tokens = {}
    for i = 1, 200 do tokens[i] = i % 16 end -- all of them below 16
    gm.data.write_tokens(home .. "/words.bin", tokens, { vocab_size = 300, dtype = "u16" })
    gm.data.write_tokens(home .. "/few.bin", tokens, { vocab_size = 16, dtype = "u16" })
  end)
  after_each(function() shell.remove(home) end)

  local function data(name) return ("{ type = 'Tokens', path = '%s/%s', sequence_length = 8 }"):format(home, name) end

  local function run(verb, vocabulary, train)
    shell.write(home .. "/recipe.lua", recipe:format(vocabulary, train))
    return support.run(home, { verb, "recipe.lua" })
  end

  local said = "words.bin are of a vocabulary of 300, and the model has one of 299 (GPT.vocabulary, the rows of "
    .. "tokens.weight): give the model vocabulary = 300"

  for _, verb in ipairs { "check", "run" } do
    it("are refused by " .. verb, function()
      local result = run(verb, 299, data "words.bin")
      assert.equal(2, result.code, result.err)
      assert.matches("data.train: the tokens of " .. home, result.err, 1, true)
      assert.matches(said, result.err, 1, true)
      assert.not_matches("step 1", result.out)
    end)
  end

  it("are refused as a part of a mix", function()
    local result = run("check", 299, ("{ type = 'Mix', weights = { 1, 1 }, datasets = { %s, %s } }"):format(
      data "few.bin", data "words.bin"))
    assert.equal(2, result.code, result.err)
    assert.matches(said, result.err, 1, true)
  end)

  it("are refused by gm.initialize", function()
    local loader = gm.data.loader { dataset = { type = "Tokens", path = home .. "/words.bin", sequence_length = 8 },
      batch_size = 4 }
    finally(function() loader:close() end)
    local ok, err = pcall(gm.initialize, { criterion = { type = "CrossEntropyLoss" }, test_dataloader = loader,
      model = { type = "GPT", vocabulary = 299, sequence_length = 8, width = 8, depth = 1, heads = 2 } })
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("gm.initialize: test_dataloader: the tokens of ", failure.text(err), 1, true)
    assert.matches(said, failure.text(err), 1, true)
  end)

  it("are none where the vocabulary is as large, or not known", function()
    assert.equal(0, run("check", 300, data "words.bin").code)
    assert.equal(0, run("check", 16, data "few.bin").code)
    shell.write(home .. "/raw.bin", ("\1\0"):rep(200))
    local raw = "{ type = 'Tokens', path = 'raw.bin', dtype = 'u16', sequence_length = 8%s }"
    assert.equal(0, run("check", 16, raw:format "").code)
    local result = run("check", 16, raw:format ", vocab_size = 17")
    assert.equal(2, result.code, result.err)
    assert.matches("of a vocabulary of 17, and the model has one of 16", result.err, 1, true)
  end)
end)
