--- Generation on the stages of a pipeline writes what one rank writes, whatever the number of prompts.
-- ranks: 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local alone = require "spec.generation.alone"
local core = require "ganymede.core"
local gm = require "ganymede"
local ranks = require "ganymede.job.ranks"

local meshes = ({
  [2] = { { name = "two stages", pipeline = 2 } },
  [4] = { { name = "four stages", pipeline = 4 },
          { name = "two stages, 1d on 2", pipeline = 2, tensor = { size = 2, mode = "1d" } } },
})[core.world()]

local prompts = { { 5, 9, 33, 2 }, { 7 }, { 50, 41, 3, 3, 8, 1, 0 }, { 11, 12 }, { 1, 2, 3 } }

local makers = {
  llama = function()
    return gm.models.Llama { vocabulary = 60, width = 16, depth = 4, heads = 4, kv_heads = 2, hidden = 24, std = 0.3,
      tied = false }
  end,
  ["a tied gpt"] = function() -- as long as the longest prompt and what is added to it
    return gm.models.GPT { vocabulary = 60, width = 16, depth = 4, heads = 4, std = 0.3, sequence_length = 15 }
  end,
}

for _, mesh in ipairs(meshes) do
  describe("generation on " .. mesh.name, function()
    against.throughout(mesh, setup, teardown)

    for _, name in ipairs { "llama", "a tied gpt" } do
      it("writes what one rank writes: " .. name, function()
        local make = makers[name]
        for _, count in ipairs { 1, 2, 5 } do
          local opt = { prompts = { unpack(prompts, 1, count) }, max_tokens = count == 5 and 9 or 6 }
          assert.same(alone.want(mesh, make, opt), alone.lines(make, opt))
        end
      end)
    end

    it("goes on with a short prompt to the last position of the model, beside longer ones", function()
      local opt = { prompts = { { 50, 41, 3, 3, 8, 1, 0 }, { 7 }, { 5, 9, 33 } }, max_tokens = 30 }
      local want = {}
      for i, prompt in ipairs(opt.prompts) do
        want[i] = alone.want(mesh, makers["a tied gpt"], { prompts = { prompt }, max_tokens = 30 })[1]
        assert.matches("positions$", want[i])
      end
      assert.same(want, alone.lines(makers["a tied gpt"], opt))
    end)

    it("ends each prompt by itself, and draws as one rank does", function()
      local opt = { prompts = prompts, max_tokens = 12, temperature = 1.5, top_k = 30, repetition_penalty = 1.1,
        seed = 4, stop_tokens = { 1, 4, 8, 15, 22, 23, 29, 38, 44, 51 } }
      local want, here = alone.want(mesh, makers.llama, opt), alone.lines(makers.llama, opt)
      assert.same(want, here)
      local ends = table.concat(want, "\n")
      assert.truthy(ends:find("stop token", 1, true) and ends:find("length", 1, true), ends) -- both happen
      for _, there in ipairs(ranks.texts(table.concat(here, "\n"))) do assert.equal(ends, there) end
    end)

    it("refuses prompts that may grow over the border of LongRoPE, and takes those behind it", function()
      local function make()
        return gm.models.Llama { vocabulary = 60, width = 16, depth = 4, heads = 4, kv_heads = 2, hidden = 24,
          std = 0.5, rotary = { base = 100, scaling = { type = "longrope", length = 5, factor = 4, short = { 1, 1.3 },
          long = { 2, 5 } } } }
      end
      local opt = { prompts = { { 50, 41, 3, 3, 8, 1, 0 }, { 5, 9, 33 } }, max_tokens = 3 }
      assert.same(alone.want(mesh, make, opt), alone.lines(make, opt))
      opt.max_tokens = 4
      assert.error_matches(function() gm.generate(make(), opt) end,
        "prompt 2 has 3 tokens and may grow to 6; LongRoPE .* give max_tokens = 3 at most")
    end)

    it("tells the texts on every rank, and takes the model a second time", function()
      local t = gm.tokenizer "spec/golden/tokenizers/llama3.json"
      core.set_seed(3)
      local model = gm.models.Llama { vocabulary = t.size, width = 16, depth = 4, heads = 4, kv_heads = 2, hidden = 24,
        std = 0.3 }
      local opt = { prompts = { "The capital", "Once" }, tokenizer = t, max_tokens = 6 }
      local first, told = gm.generate(model, opt), { "", "" }
      opt.on_text = function(i, piece) told[i] = told[i] .. piece end
      for i, row in ipairs(gm.generate(model, opt)) do
        assert.same(first[i].tokens, row.tokens)
        assert.equal(row.completion, told[i])
      end
    end)
  end)
end
