-- Attention over a sequence that ranks share, ring and Ulysses, against one rank: values and every gradient.
-- ranks: 2 3 4
--
-- spec/unit/ring_test.c has every size, the bytes and the work of each rank; here is what models do with it, over real
-- messages. Gradients are those of a sum with a factor for each element of the result, so that a backward that loses a
-- block, or divides by the number of ranks, is off by as much.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local nn = require "ganymede.nn"
local ops = gm.ops
local parallel = require "ganymede.job.parallel"
local sequence_parallel = require "ganymede.nn.sequence_parallel"

local seed = 4200
local function normal(...)
  seed = seed + 1
  return gm.normal({ ... }, { dtype = "f64", seed = seed })
end

local ranks = core.world()
local rows = { cuts = { {}, { "sequence" } } }

local function share(mode)
  context.install(assert(parallel.resolve({ sequence = { size = ranks, mode = mode } }, ranks)))
end

-- i64 (2, s, 2): documents of 1, 2, 3, ... positions, and in the second sample of 5 each, the last of which is padding
local function limits_of(s)
  local x, k, left = {}, 1, 1
  for i = 1, s do
    x[i], x[s + i] = k, i > s - 3 and -1 or math.floor(i / 5)
    left = left - 1
    if left == 0 then k, left = k + 1, k + 1 end
  end
  return ops.narrow(ops.documents(gm.tensor(x, { dtype = "i64", shape = { 2, s } })), 3, 1, 2):contiguous()
end

-- u8 (2, s): 0 hides; the second sample's first keys are hidden, so that causal queries see nothing
local function mask_of(s)
  local m = {}
  for i = 1, s do m[i], m[s + i] = i % 5 == 4 and 0 or 1, i <= 3 and 0 or 1 end
  return gm.tensor(m, { dtype = "u8", shape = { 2, s } })
end

local kinds = {
  { name = "all keys" }, { name = "causal", causal = true, balance = false },
  { name = "causal and zigzag", causal = true, balance = true, zigzag = true },
  { name = "window of one key", causal = true, window = 1 },
  { name = "window and cap", causal = true, window = 4, softcap = 0.8, balance = false },
  { name = "window, cap and zigzag", causal = true, window = 5, softcap = 0.8, balance = true, zigzag = true },
}

for _, mode in ipairs { "ring", "ulysses" } do
  describe(mode .. ":", function()
    both.in_f64(setup, teardown, function() share(mode) end)
    teardown(function() context.destroy() end)

    -- key_heads of 12 query heads; s positions; limits whole (false) or cut (true), or none
    local function agrees(key_heads, s, options, mask_cut, limits_cut)
      local inputs = { normal(2, s, 12, 3), normal(2, s, key_heads, 3), normal(2, s, key_heads, 3), mask_of(s),
                       limits_of(s) }
      both.agree {
        inputs = inputs, cuts = { rows, rows, rows, mask_cut and rows, limits_cut and rows },
        expect = "-,sequence,-,-", fn = function(q, k, v, mask, limits)
          options.key_mask = mask_cut ~= nil and mask or nil
          options.limits = limits_cut ~= nil and limits or nil
          return sequence_parallel.attention(q, k, v, options)
        end,
      }
    end

    for _, kind in ipairs(kinds) do
      if not kind.zigzag or mode == "ring" then
        local function options(more)
          more.causal, more.balance, more.window, more.softcap = kind.causal, kind.balance, kind.window, kind.softcap
          return more
        end

        it(kind.name .. ": lengths that divide and lengths that leave ranks with less or nothing", function()
          for _, s in ipairs { 24, 10, 7, 2 } do agrees(12, s, options {}) end
        end)
        it(kind.name .. ": masks of keys, whole and cut", function()
          agrees(12, 10, options {}, false)
          agrees(12, 24, options { scale = 0.4 }, true)
        end)
        it(kind.name .. ": limits, whole and cut, with and without a mask", function()
          agrees(12, 10, options {}, nil, false)
          agrees(12, 24, options { dropout = 0.3 }, true, true)
          agrees(12, 7, options {}, nil, true)
        end)
        if mode == "ring" or 6 % ranks == 0 then
          it(kind.name .. ": grouped heads", function() agrees(6, 10, options {}, true) end)
        end
        it(kind.name .. ": the same probabilities are dropped", function()
          agrees(12, 10, options { dropout = 0.5 }, true)
        end)
      end
    end

    it("a layer with one projection, grouped or not, is the layer of one rank", function()
      for _, kv_heads in ipairs { 12, mode == "ring" and 2 or 12 } do
        local options = { width = 24, heads = 12, kv_heads = kv_heads, causal = true, dropout = 0.2 }
        local layer = nn.MultiHeadAttention(options)
        layer:materialize()
        both.agree {
          inputs = { normal(2, 10, 24) }, cuts = { rows }, expect = "-,sequence,-",
          fn = function(x) return layer(x) end,
        }
      end
    end)

    it("a bias goes with whole sequences, and its heads are cut as those of queries", function()
      local function run(q, bias) return sequence_parallel.attention(q, q, q, { bias = bias }) end
      local q, bias = normal(2, 10, 12, 3), normal(1, 12, 10, 10)
      if mode == "ring" then
        assert.error_matches(function() run(q:redistribute(rows), bias) end, "a bias needs whole sequences", 1, true)
      else
        both.agree { inputs = { q, bias }, cuts = { rows, false }, expect = "-,sequence,-,-", fn = run }
      end
    end)

    if mode == "ulysses" then
      it("heads that cannot be divided evenly are an error that says which ranks would do, and what has no such limit",
        function()
          local q = normal(1, 8, 5, 2):redistribute(rows)
          local said = ("ulysses gives each of the %d ranks that share a sequence whole heads, but 5 key heads cannot "
            .. "be divided evenly over %d; with them parallel.sequence.size may be 1, 5, and parallel.sequence.mode = "
            .. "\"ring\" has no such limit"):format(ranks, ranks)
          assert.error_matches(function() sequence_parallel.attention(q, q, q) end, said, 1, true)
          assert.error_matches(function() nn.MultiHeadAttention { width = 20, heads = 5 } end, said, 1, true)
        end)
    end
  end)
end
