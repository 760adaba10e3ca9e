--- Steps of generation that are recorded and replayed (ganymede.generation.recorded) write what the same steps write
-- one by one. Where they cannot be recorded, none is.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local recorded = require "ganymede.generation.recorded"

local function llama(more)
  core.set_seed(3)
  local opt = { vocabulary = 60, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24, std = 0.3 }
  for k, v in pairs(more or {}) do opt[k] = v end
  return gm.models.Llama(opt):eval()
end

describe("steps that are recorded", function()
  -- The tokens of three prompts that end one after the other, and how many steps were replayed; off: none is.
  local function tokens_of(model, opt, off)
    local replayed, new = 0, recorded.new
    finally(function() recorded.new = new end)
    function recorded.new(spec)
      local steps = new(spec)
      if off then steps.off = true end
      local run = steps.run
      function steps.run(...)
        local list = run(...)
        replayed = replayed + (list and 1 or 0)
        return list
      end
      return steps
    end
    opt.prompts, opt.max_tokens = { { 5, 9, 33 }, { 7 }, { 50, 41, 3, 3, 8 } }, 30
    local lines = {}
    for i, out in ipairs(gm.generate(model, opt)) do lines[i] = table.concat(out.tokens, " ") .. " " .. out.ended end
    recorded.new = new
    return lines, replayed
  end

  it("write what steps one by one write, while prompts come and go", function()
    local gpt = gm.models.GPT { vocabulary = 60, width = 16, depth = 1, heads = 2, sequence_length = 20, std = 0.3 }
    local long = llama { std = 0.5, rotary = { base = 100, scaling = { type = "longrope", length = 12, factor = 4,
      short = { 1, 1.3 }, long = { 2, 5 } } } }
    for _, model in ipairs { llama(), gpt, long } do
      for _, opt in ipairs { { stop_tokens = { 3, 8, 15, 22 } }, { cache = { page = 4, pages = 9 } },
        { temperature = 1.2, seed = 3, repetition_penalty = 1.1 }, { cache = { page = 4, pages = 16, rows = 2 } } } do
        local want = tokens_of(model, opt, true)
        local lines, replayed = tokens_of(model, opt)
        assert.same(want, lines)
        assert.is_true(replayed > 5, replayed)
      end
    end
  end)

  it("are those of weights of few bits too", function()
    local model = llama()
    gm.quantize(model, { bits = 4 })
    local want = tokens_of(model, {}, true)
    local lines, replayed = tokens_of(model, {})
    assert.same(want, lines)
    assert.is_true(replayed > 20)
  end)

  it("give the same tokens with experts, whose rows are other ones in each step", function()
    local experts = llama { moe = { experts = 4, k = 2 } }
    local want = tokens_of(experts, {}, true)
    local lines, replayed = tokens_of(experts, {})
    assert.same(want, lines)
    assert.is_true(replayed > 20)
  end)

  it("are not recorded where a layer is not ours", function()
    local model = llama()
    local forward = model.blocks[1].mlp.forward
    rawset(model.blocks[1].mlp, "forward", function(...) return forward(...) end)
    local _, by_foreign = tokens_of(model, {})
    assert.equal(0, by_foreign)
  end)
end)
