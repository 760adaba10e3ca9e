--- Generation: what it gives is what the model gives when all tokens are computed anew, on any number of ranks.
-- ranks: 1 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local ranks = require "ganymede.job.ranks"
local tables = require "spec.support.tables"

local ops = gm.ops
local TOKENIZER = "spec/golden/tokenizers/llama3.json"

local function llama(more)
  local opt = { vocabulary = 60, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24, std = 0.3 }
  for k, v in pairs(more or {}) do opt[k] = v end
  return gm.models.Llama(opt)
end

-- The likeliest tokens by a forward pass of everything for each of them.
local function plain(model, ids, count)
  local list = { unpack(ids) }
  for _ = 1, count do
    gm.scope(gm.no_grad, function()
      local logits = model(gm.tensor({ list }, { dtype = "i64" }))
      list[#list + 1] = ops.argmax(logits, 3):totable()[1][#list]
    end)
  end
  return list
end

local meshes = ({
  [1] = { { name = "one rank" } },
  [2] = { { name = "1d", tensor = { size = 2, mode = "1d" } }, { name = "data", data = 2 } },
  [4] = { { name = "2d", tensor = { size = 4, mode = "2d" } },
          { name = "1d and data", data = 2, tensor = { size = 2, mode = "1d" } } },
})[core.world()]

local prompts = { { 5, 9, 33, 2 }, { 7 }, { 50, 41, 3, 3, 8, 1, 0 } }

local makers = {
  llama, function() return llama { qk_norm = true, tied = false } end,
  function() -- texts grow over its border at different steps
    return llama { std = 0.5, rotary = { base = 100, scaling = { type = "longrope", length = 9, factor = 4,
      short = { 1, 1.3 }, long = { 2, 5 } } } }
  end,
  function()
    return gm.models.GPT { vocabulary = 60, width = 16, depth = 2, heads = 4, std = 0.3, sequence_length = 40 }
  end,
}

for _, mesh in ipairs(meshes) do
  describe("generation on " .. mesh.name, function()
    against.throughout(mesh, setup, teardown)

    it("writes the likeliest tokens, for prompts of different lengths at once", function()
      for _, make in ipairs(makers) do
        core.set_seed(3)
        local model, want = make(), {}
        model:eval()
        for i, ids in ipairs(prompts) do want[i] = plain(model, ids, 12) end
        model:train()
        for i, out in ipairs(gm.generate(model, { prompts = prompts, max_tokens = 12 })) do
          assert.same(want[i], out.tokens)
          assert.same(prompts[i], out.ids)
          assert.equal("length", out.ended)
        end
        assert.is_true(model.training)
        assert.same(want[2], gm.generate(model, { prompts = { prompts[2] }, max_tokens = 12 })[1].tokens)
      end
    end)

    it("goes on with a short prompt to the last position of the model, beside longer ones", function()
      core.set_seed(3)
      local model = gm.models.GPT { vocabulary = 60, width = 16, depth = 1, heads = 4, std = 0.3, sequence_length = 9,
        window = 20 } -- a window keeps the batch in one piece
      local list, want = { { 5, 9, 33, 2, 6 }, { 7 }, { 1, 2 } }, {}
      model:eval()
      for i, ids in ipairs(list) do want[i] = plain(model, ids, 9 - #ids) end
      for i, out in ipairs(gm.generate(model, { prompts = list, max_tokens = 30 })) do
        assert.same(want[i], out.tokens)
        assert.equal("positions", out.ended)
      end
    end)

    it("draws by the seed, the same on every rank and as one rank alone", function()
      local function run(seed)
        core.set_seed(3)
        local rows = gm.generate(llama(), { prompts = prompts, max_tokens = 12, temperature = 1.5, top_k = 30,
          top_p = 0.95, repetition_penalty = 1.1, seed = seed })
        local lines = {}
        for i, row in ipairs(rows) do lines[i] = table.concat(row.tokens, " ") end
        return table.concat(lines, "\n")
      end
      local here = run(1)
      assert.equal(here, run(1))
      assert.not_equal(here, run(2))
      for _, there in ipairs(ranks.texts(here)) do assert.equal(here, there) end
      against.install { data = core.world() }
      local alone = run(1)
      against.install(tables.without(mesh, "name"))
      assert.equal(alone, here)
    end)
  end)
end

if core.world() > 1 then return end

describe("generation", function()
  it("ends at tokens and at texts, and tells the text as it comes", function()
    local t = gm.tokenizer(TOKENIZER)
    local model = llama { vocabulary = t.size }
    local free = gm.generate(model, { prompts = { "The capital" }, tokenizer = t, max_tokens = 10 })[1]
    assert.equal(t:decode(free.tokens), free.text)
    assert.equal(10, #free.tokens - #free.ids)
    local sixth = free.tokens[#free.ids + 6]
    local stopped = gm.generate(model, { prompts = { "The capital" }, tokenizer = t, max_tokens = 10,
      stop_tokens = { sixth } })[1]
    assert.equal("stop token", stopped.ended)
    assert.equal(sixth, stopped.tokens[#stopped.tokens])
    local text = free.completion
    local part, pieces = text:sub(5, 8), {}
    local cut = gm.generate(model, { prompts = { "The capital" }, tokenizer = t, max_tokens = 10, stop = { part },
      on_text = function(i, piece)
        assert.equal(1, i)
        pieces[#pieces + 1] = piece
      end })[1]
    assert.equal("stop text", cut.ended)
    assert.equal(text:sub(1, (text:find(part, 1, true)) - 1), cut.completion)
  end)

  it("refuses prompts and options that cannot be", function()
    local model = llama()
    local function refused(words, opt)
      assert.error_matches(function() gm.generate(model, opt) end, words)
    end
    refused("there are no prompts", { prompts = {} })
    refused("give its tokenizer", { prompts = { "text" } })
    refused("not empty", { prompts = { {} } })
    refused("token 2 of prompt 1", { prompts = { { 1, -1 } } })
    refused("stop is about texts", { prompts = { { 1 } }, stop = { "x" } })
    refused("temperature", { prompts = { { 1 } }, temperature = -1 })
    refused("top_p is about draws", { prompts = { { 1 } }, top_p = 0.9 })
    refused("top_k is about draws", { prompts = { { 1 } }, temperature = 0, top_k = 3 })
    refused("max_tokens", { prompts = { { 1 } }, max_tokens = 0 })
    refused("prompt", { prompt = "x" })
    refused("token 2 of prompt 1 is 60; the model.s vocabulary has tokens 0 to 59", { prompts = { { 1, 60 } } })
    refused("entry 2 of stop is \"\"", { prompts = { { 1 } }, stop = { "x", "" }, tokenizer = gm.tokenizer(TOKENIZER) })
    refused("entry 1 of stop_tokens is \"</s>\"", { prompts = { { 1 } }, stop_tokens = { "</s>" } })
  end)

  it("is refused where scores are not finite, also if the likeliest token is taken", function()
    local model = llama()
    for _, p in ipairs(model:named_parameters()) do
      if p.name == "norm.weight" then gm.no_grad(function() p.tensor:fill_(0 / 0) end) end
    end
    for _, temperature in ipairs { 0, 1 } do
      assert.error_matches(function()
        gm.generate(model, { prompts = { { 1 }, { 2 } }, max_tokens = 3, temperature = temperature })
      end, "not finite")
    end
  end)

  it("continues more prompts than LuaJIT unpacks", function()
    local many = {}
    for i = 1, 8100 do many[i] = { i % 60 } end
    local model = gm.models.GPT { vocabulary = 60, width = 4, depth = 1, heads = 1, sequence_length = 4 }
    assert.equal(8100, #gm.generate(model, { prompts = many, max_tokens = 1 }))
  end)
end)
