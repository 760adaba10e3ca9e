--- What a transformer layer sends and saves on p = 4, 8, 9, 16, 64 ranks, as `ganymede check` counts it: by formulas.
--
-- M tokens, width h, MLP 4 h, f32. Sums over the four products (qkv h -> 3h, output h -> h, up h -> 4h, down 4h -> h):
-- KN 12 h^2, MK 7 M h, MN 9 M h. Derivations:
--   1D (arXiv:1909.08053, 3): one all-reduce of M h for each pair of products forward, one backward: 2 (p-1)/p M h
--     each, 8 (p-1)/p M h. In Megatron's sequence mode (arXiv:2205.05198, 4.2.2) a gather and a scatter of (p-1)/p M h
--     stand for each; backward the inputs of the two columns are gathered once more for dw: 10 (p-1)/p M h. Norms are
--     whole there, and their gradients summed apart.
--   2D (arXiv:2104.05343, 3.1): each product broadcasts or reduces two of its three operands, (q-1)/q^2 of their size,
--     three times (y, dx, dw). The one that stays is the larger of x and y: the weight and the smaller of them travel,
--     12 h^2 and 4 M h. Rows of parameters in vectors, 13 h of them (biases 9 h, norms 4 h), are gathered from
--     q ranks and their gradients scattered: (q-1)/q^2 each way. A norm sums two numbers a token over q columns:
--     2 (q-1)/q 2 M/q forward and backward, twice a layer.
--   2.5D (arXiv:2105.14500, 3): 2D on M/d tokens; gradients are summed over depth apart.
--   3D (arXiv:2105.14450, 4): forward gathers x and w and scatters y, (q-1)/q^3 of each; backward gathers dy, x and w
--     and scatters dx and dw: x and w were saved as shards. A norm: as in 2D with M/q^2 tokens.
-- Broadcasts are trees, so ranks of one row send different amounts: formulas are means over the ranks. What a rank
-- sends along a row depends on its column alone, and the other way round, so the diagonal has the mean of all.
local json = require "ganymede.json"
local support = require "spec.cli.support"
local shell = support.shell

local h, heads, batch, length = 576, 24, 144, 8
local M = batch * length

local recipe = ([[
return {
  name = "layer",
  model = { type = "GPT", vocabulary = 64, sequence_length = %d, width = %d, depth = 2, heads = %d },
  data = { train = { type = "Synthetic", kind = "tokens", length = 1000, sequence_length = %d, vocab_size = 64 },
    batch_size = %d },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]]):format(length, h, heads, length, batch)

describe("a transformer layer", function()
  local home
  setup(function() home = support.home(recipe) end)
  teardown(function() shell.remove(home) end)

  -- -> elements that a rank sends in the second block forward and backward, elements that the block saves there
  local function layer(ranks, rank, parallel)
    local result = support.run(home, { "check", "recipe.lua", "--json", "-n", tostring(ranks), "--rank", tostring(rank),
      "--set", "parallel=" .. parallel })
    assert.equal(0, result.code, result.err)
    local sent, saved = { forward = 0, backward = 0 }, 0
    for _, row in ipairs(json.decode(result.out, "check").modules) do
      if row.path:find "^blocks%.2" then
        saved = saved + row.saved_bytes / 4
        for _, e in ipairs(row.sent) do sent[e.phase] = sent[e.phase] + e.bytes / 4 end
      end
    end
    return sent.forward, sent.backward, saved
  end

  -- Means over the given ranks.
  local function mean(ranks, list, parallel)
    local forward, backward, saved = 0, 0, 0
    for _, rank in ipairs(list) do
      local f, b, s = layer(ranks, rank, parallel)
      forward, backward, saved = forward + f, backward + b, saved + s
    end
    return forward / #list, backward / #list, saved / #list
  end

  -- Ranks (i, i) of the last two axes.
  local function diagonal(q)
    local list = {}
    for i = 0, q - 1 do list[i + 1] = i * q + i end
    return list
  end

  -- What a block saves: x of its norms, of its projections and what goes into the activation, what attention reads and
  -- gives, in units of M h: norm 1 + qkv 1 + attention 3 + 1 + norm 1 + up 1 + 4 + down 4. Besides, mean and deviation
  -- of the rows of two norms, attention's log-sums, and what norms gathered of their weights.
  local function saved(p, rows, weights) return (16 * M * h + M * heads) / p + 4 * rows + (weights or 0) end

  local function agrees(what, expected, got)
    local said = ("%s: %.1f elements, the formula says %.1f"):format(what, got, expected)
    assert.is_true(math.abs(got - expected) < 0.5, said)
  end

  it("on one rank sends nothing and saves 16 M h", function()
    local forward, backward, kept = layer(1, 0, "{}")
    assert.same({ 0, 0 }, { forward, backward })
    agrees("saved", saved(1, M), kept)
  end)

  for _, p in ipairs { 4, 8 } do
    it(("in 1D on %d ranks sends 8 (p-1)/p M h; 10 in Megatron's sequence mode, which saves 1/p"):format(p), function()
      local unit = (p - 1) / p * M * h
      local forward, backward = layer(p, 1, ('{ tensor = { size = %d, mode = "1d" } }'):format(p))
      agrees("forward", 4 * unit, forward)
      agrees("backward", 4 * unit, backward)
      local kept
      forward, backward, kept = layer(p, 1, ('{ tensor = { size = %d, mode = "1d", sequence = true } }'):format(p))
      agrees("forward", 4 * unit, forward)
      agrees("backward", 6 * unit, backward)
      agrees("saved", saved(p, M / p), kept)
    end)
  end

  local function flat(q, d)
    local m = M / d
    local rows = (q - 1) / q ^ 2 * (13 * h + 8 * m)
    local product = (q - 1) / q ^ 2 * (4 * m * h + 12 * h ^ 2)
    return product + rows, 2 * product + rows
  end

  for _, q in ipairs { 2, 3, 4, 8 } do
    it(("in 2D on %d ranks sends the smaller operands, saves 1/p"):format(q * q), function()
      local parallel = ('{ tensor = { size = %d, mode = "2d" } }'):format(q * q)
      local forward, backward, kept = mean(q * q, diagonal(q), parallel)
      local f, b = flat(q, 1)
      agrees("forward", f, forward)
      agrees("backward", b, backward)
      agrees("saved", saved(q * q, M / q, 2 * h / q), kept)
    end)
  end

  for _, shape in ipairs { { 2, 2 }, { 2, 4 }, { 4, 4 } } do
    local q, d = unpack(shape)
    it(("in 2.5D on %d ranks of depth %d sends 2D's with M/d tokens, saves 1/p"):format(q * q * d, d), function()
      local p = q * q * d
      local forward, backward, kept = mean(p, diagonal(q),
        ('{ tensor = { size = %d, mode = "2.5d", depth = %d } }'):format(p, d))
      local f, b = flat(q, d)
      agrees("forward", f, forward)
      agrees("backward", b, backward)
      agrees("saved", saved(p, M / (q * d), 2 * h / q), kept)
    end)
  end

  for _, q in ipairs { 2, 4 } do
    it(("in 3D on %d ranks sends (q-1)/q^3 of three matrices a product, and of five backward, saves 1/p"):format(q ^ 3),
      function()
        local share, p = (q - 1) / q ^ 3, q ^ 3
        local parallel = ('{ tensor = { size = %d, mode = "3d" } }'):format(p)
        local forward, backward, kept = layer(p, 1, parallel)
        agrees("forward", share * (16 * M * h + 12 * h ^ 2 + 8 * M), forward)
        agrees("backward", share * (23 * M * h + 24 * h ^ 2 + 8 * M), backward)
        agrees("saved", saved(p, M / q ^ 2), kept)
      end)
  end
end)
