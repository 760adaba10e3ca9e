--- Generation where ranks share a sequence writes what one rank writes, in the ring and by Ulysses. A rank keeps its
-- part of the keys and values alone.
-- ranks: 2 4
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local against = require "spec.tensor.against_serial"
local alone = require "spec.generation.alone"
local caches = require "ganymede.nn.cache"
local core = require "ganymede.core"
local gm = require "ganymede"
local ranks = require "ganymede.job.ranks"

local meshes = ({
  [2] = { { name = "a ring", sequence = { size = 2, mode = "ring" } },
          { name = "ulysses", sequence = { size = 2, mode = "ulysses" } } },
  [4] = { { name = "a ring of 4", sequence = { size = 4, mode = "ring" } },
          { name = "a ring of 2, 1d on 2", sequence = { size = 2, mode = "ring" }, tensor = { size = 2, mode = "1d" } },
          { name = "a ring of 2 in 2 stages", sequence = { size = 2, mode = "ring" }, pipeline = 2 } },
})[core.world()]

local prompts = { { 5, 9, 33, 2 }, { 7 }, { 50, 41, 3, 3, 8, 1, 0 } }

local function llama(more)
  local opt = { vocabulary = 60, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24, std = 0.3 }
  for k, v in pairs(more or {}) do opt[k] = v end
  return gm.models.Llama(opt)
end

local makers = {
  llama, function() return llama { window = { 5, 0 }, attention_softcap = 4, attention_scale = 0.8, qk_norm = true,
    tied = false } end,
  function()
    return gm.models.GPT { vocabulary = 60, width = 16, depth = 2, heads = 4, std = 0.3, sequence_length = 40 }
  end,
}

-- Texts grow over its border, which stages refuse.
local function long()
  return llama { std = 0.5, rotary = { base = 100, scaling = { type = "longrope", length = 9, factor = 4,
    short = { 1, 1.3 }, long = { 2, 5 } } } }
end

for _, mesh in ipairs(meshes) do
  describe("generation in " .. mesh.name, function()
    against.throughout(mesh, setup, teardown)

    it("writes what one rank writes, from prompts of different lengths, of one length, and of one token", function()
      for _, make in ipairs { mesh.pipeline and makers[1] or long, unpack(makers) } do
        for _, list in ipairs { prompts, { { 5, 9, 33 }, { 4, 4, 1 } }, { { 7 } } } do
          local opt = { prompts = list, max_tokens = 11 }
          assert.same(alone.want(mesh, make, opt), alone.lines(make, opt))
        end
      end
    end)

    it("draws as one rank does, and all ranks alike", function()
      local opt = { prompts = prompts, max_tokens = 8, temperature = 1.5, top_k = 30, seed = 4 }
      local want, here = alone.want(mesh, llama, opt), alone.lines(llama, opt)
      assert.same(want, here)
      for _, there in ipairs(ranks.texts(table.concat(here, "\n"))) do assert.equal(table.concat(here, "\n"), there) end
    end)
  end)
end

describe("what ranks keep of a sequence that they share", function()
  against.throughout({ sequence = { size = core.world(), mode = "ring" } }, setup, teardown)

  it("is an equal part of the positions", function()
    core.set_seed(3)
    local model = llama():eval()
    gm.scope(gm.no_grad, function()
      local kept = caches.new(nil, 4 * core.world())
      caches.with(kept, 9, model, gm.tensor({ { 5, 9, 33, 2, 1, 7, 8, 9, 3 } }, { dtype = "i64" }))
      for token = 1, 7 do caches.with(kept, 1, model, gm.tensor({ { token } }, { dtype = "i64" })) end
      local block = math.ceil(9 / core.world())
      local count = math.max(0, math.min(9 - core.rank() * block, block))
      for at = 9, 15 do count = count + (at % core.world() == core.rank() and 1 or 0) end
      assert.equal(count, #kept.own)
      local position = 2 * 2 * 2 * 4 * 8 -- keys and values, layers, key heads, their width, bytes of f64
      assert.is_true(kept:bytes() <= 2 * math.max(count, 4) * position, kept:bytes()) -- room is doubled when it is full
      assert.error_matches(function()
        caches.with(kept, 2, model, gm.tensor({ { 1, 2 } }, { dtype = "i64" }))
      end, "one position at a time")
      kept:close()
    end)
  end)
end)
