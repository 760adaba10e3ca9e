--- What each mode sends, holds and computes for one transformer block, against closed formulas: elements sent by a rank
-- in forward and backward, floats kept for backward, elements of parameters, and operations of all ranks.
--
-- The numbers come from `ganymede check -n P`, which rehearses a step as one rank of P without data (what it counts is
-- what a run sends: spec/cli/check_ranks_spec.lua). Sizes divide evenly, so that every rank sends the mean.
--
-- Derivations: M rows, width h, a heads, n ranks in a group, V elements. A ring all_reduce costs a rank 2(n-1)/n V (or
-- (n-1) V where V is small: spec/support/sums.lua), an all_gather and a reduce_scatter (n-1)/n V of the whole, a
-- broadcast and a sum at one owner (n-1)/n V in the mean. A block has four products M x K x N: qkv h, 3h; output h, h;
-- up h, 4h; down 4h, h; biases 9h, two norms of 2h each. What backward needs: 2 sums and 2 norm results of Mh, qkv 3Mh,
-- attention's result Mh, pre-activation and activation of the MLP 4Mh each; mean and rstd 2M a norm; log-sum-exp aM.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local sums = require "spec.support.sums"
local support = require "spec.cli.support"

local M, h, a, batch, length = 144 * 64, 576, 576, 144, 64

local recipe = ([[
return {
  name = "block",
  model = { type = "GPT", vocabulary = 256, sequence_length = %d, width = %d, depth = 2, heads = %d },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train", sequence_length = %d,
                     stride = 1 }, batch_size = %d },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" }, steps = 1,
}
]]):format(length, h, a, length, batch)

local products = { { "qkv", h, 3 * h }, { "output", h, h }, { "up", h, 4 * h }, { "down", 4 * h, h } }
local weights, biases, norms = 12 * h * h, 9 * h, 4 * h
local ROWS = 2 -- numbers a row of a norm: (mean, variance) merged forward in two rounds, two sums backward

-- Of all products: sum of term(K, N).
local function over_products(term)
  local sum = 0
  for _, p in ipairs(products) do sum = sum + term(p[2], p[3]) end
  return sum
end

-- Kept for backward where everything is cut over p ranks but the statistics of norms, over r.
local function kept(p, r) return 16 * M * h / p + a * M / p + 4 * M / r end

local modes = {}

-- Whole activations (4 Mh of norms) on every rank; a pair of products sums Mh forward and backward.
modes["1d"] = function(p)
  local each = 4 * (p - 1) / p * M * h
  return { forward = each, backward = each, kept = 4 * M * h + 12 * M * h / p + a * M / p + 4 * M,
    parameters = (weights + 7 * h) / p + 2 * h + norms }
end

-- The stream is cut: gathered before each pair and scattered after it; backward gathers the cut input once more for the
-- gradient of the first weight. Parameters that are copied see only their rows: summed with the gradients.
modes.megatron = function(p)
  local each = 2 * (p - 1) / p * M * h
  return { forward = 2 * each, backward = 3 * each, kept = kept(p, p),
    parameters = (weights + 7 * h) / p + 2 * h + norms }
end

-- SUMMA on q x q ranks, d times. Which two of (x, w, y) travel follows from the sizes; vectors are gathered over q.
local function grid(q, d)
  local p = q * q * d
  local moved = over_products(function(K, N) return M / d * math.min(K, N) + K * N end)
  local vectors = (q - 1) * (biases + norms)
  local merged, summed = 2 * 2 * (q - 1) * ROWS * M / d, 2 * q * sums.sent(q, 4 * ROWS * M / d / q) / 4
  local each = ((q - 1) * moved + vectors + merged) / (q * q)
  local twice = (2 * (q - 1) * moved + vectors + summed) / (q * q)
  return { forward = each, backward = twice, kept = kept(p, q * d) + norms / 2 / q,
    parameters = (weights + biases + norms) / (q * q),
    gradients = 2 * (d - 1) / d * (weights + biases + norms) / (q * q), p = p }
end
modes["2d"] = function(p) return grid(math.sqrt(p), 1) end
modes["2.5d"] = function(p, d) return grid(math.sqrt(p / d), d) end

-- Gather x over input, w over weight, scatter y over output; backward the same of gradients, and x and w once more
-- unless what was gathered is kept. Vectors are copied over q * q ranks.
local function cube(p, _, keep)
  local q = math.floor(p ^ (1 / 3) + 0.5)
  local once = over_products(function(K, N) return M * K + K * N + M * N end)
  local again = over_products(function(K, N) return M * K + K * N end)
  local merged, summed = 2 * 2 * (q - 1) * ROWS * M / p, 2 * sums.sent(q, 4 * ROWS * M / (q * q)) / 4 / q
  return { forward = (q - 1) * once / p + merged,
    backward = (q - 1) * (once + (keep and 0 or again)) / p + summed,
    gradients = 2 * (q * q - 1) / (q * q) * (biases + norms) / q,
    kept = not keep and kept(p, q * q) or nil, parameters = weights / p + (biases + norms) / q }
end
modes["3d"] = cube
modes["3d kept"] = function(p) return cube(p, nil, true) end

-- Four exchanges of Mh/p: packed qkv there, the result back. Kept besides: attention's result in both forms.
modes.ulysses = function(p)
  local each = 4 * (p - 1) / p * M * h / p
  return { forward = each, backward = each, kept = 17 * M * h / p + a * M / p + 4 * M / p,
    parameters = weights + biases + norms, gradients = 2 * (p - 1) / p * (weights + biases + norms) }
end

local settings = {
  ["1d"] = "{ tensor = { size = %d, mode = '1d' } }",
  megatron = "{ tensor = { size = %d, mode = '1d', sequence = true } }",
  ["2d"] = "{ tensor = { size = %d, mode = '2d' } }",
  ["2.5d"] = "{ tensor = { size = %d, mode = '2.5d', depth = %d } }",
  ["3d"] = "{ tensor = { size = %d, mode = '3d' } }",
  ["3d kept"] = "{ tensor = { size = %d, mode = '3d', keep_gathered = true } }",
  ulysses = "{ sequence = { size = %d, mode = 'ulysses' } }",
}

local home
setup(function() home = support.home(recipe) end)
teardown(function() support.shell.remove(home) end)

local function examine(p, rank, parallel)
  local words = { "check", "recipe.lua", "--json" }
  if p > 1 then
    for _, word in ipairs { "-n", tostring(p), "--rank", tostring(rank), "--set", "parallel=" .. parallel } do
      words[#words + 1] = word
    end
  end
  local result = support.run(home, words)
  assert.equal(0, result.code, result.err)
  return json.decode(result.out, "check --json")
end

-- Of the modules below blocks.2: elements sent by phase, floats kept, elements of parameters.
local function second_block(found)
  local sum = { forward = 0, backward = 0, kept = 0, parameters = 0 }
  for _, module in ipairs(found.modules) do
    if module.path:find "^blocks%.2" then
      for _, sent in ipairs(module.sent) do sum[sent.phase] = sum[sent.phase] + sent.bytes / 4 end
      sum.kept, sum.parameters = sum.kept + module.saved_bytes / 4, sum.parameters + module.parameter_bytes / 4
    end
  end
  return sum
end

local cases = {
  { "1d", 4 }, { "1d", 8 }, { "1d", 9 }, { "1d", 16 }, { "1d", 64 },
  { "megatron", 4 }, { "megatron", 8 }, { "megatron", 64 },
  { "2d", 4 }, { "2d", 9 }, { "2d", 16 }, { "2d", 64 },
  { "2.5d", 4, 1 }, { "2.5d", 8, 2 }, { "2.5d", 16, 4 }, { "2.5d", 64, 4 },
  { "3d", 8 }, { "3d", 64 }, { "3d kept", 8 }, { "3d kept", 64 },
  { "ulysses", 4 }, { "ulysses", 8 }, { "ulysses", 16 }, { "ulysses", 64 },
}

describe("a transformer block", function()
  local serial = {}
  setup(function() serial = examine(1, 0) end)

  it("keeps for backward on one rank what the formula says", function()
    local got = second_block(serial)
    assert.equal(kept(1, 1), got.kept)
    assert.equal(weights + biases + norms, got.parameters)
  end)

  for _, case in ipairs(cases) do
    local mode, p, depth = case[1], case[2], case[3]
    it(("sends, keeps and computes what the formulas say: %s on %d%s"):format(mode, p,
      depth and ", depth " .. depth or ""), function()
      local want = modes[mode](p, depth)
      local flops = 0
      for _, rank in ipairs { 0, p - 1 } do
        local found = examine(p, rank, settings[mode]:format(p, depth))
        local got = second_block(found)
        for _, what in ipairs { "forward", "backward", "kept", "parameters" } do
          if want[what] then assert.is_near(want[what], got[what], 1e-6 * want[what], what) end
        end
        flops = flops + found.totals.product_flops_per_step * p / 2
      end
      assert.is_near(serial.totals.product_flops_per_step, flops, 1e-9 * flops, "operations of all ranks")
    end)
  end
end)
