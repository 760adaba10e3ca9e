--- EmbeddingBag on one rank and on two that share the batch: bags with gaps, weights, tables cut by rows and columns,
-- against sums in plain Lua. spec/golden/dlrm_spec.lua compares with PyTorch.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local world = core.world()
local COUNTS, WIDTH = { 5, 2, 4 }, 3
-- (3, 3, 2): samples, tables, places; -1 is no index
local bags = { { { 0, 4 }, { 1, -1 }, { 3, 3 } }, { { 2, 2 }, { -1, -1 }, { -1, 0 } },
  { { 1, 0 }, { 0, 1 }, { 2, 3 } } }

local function i64(list) return gm.tensor(list, { dtype = "i64" }) end

-- The tensor as it comes from a loader: its samples are shared by the ranks.
local function shared(t) return world == 1 and t or core.redistribute(t, { cuts = { { "data" } } }) end

-- y and dL/dw of L = sum(y * seed), in plain Lua. weight(b, t, k) of an index; mean: divided by the indices of a bag
local function truth(w, seed, weight, mean)
  local y, dw, first = {}, {}, { 0, 5, 7 }
  for r = 1, #w do
    dw[r] = {}
    for c = 1, WIDTH do dw[r][c] = 0 end
  end
  for b = 1, 3 do
    y[b] = {}
    for t = 1, 3 do
      local n = 0
      for k = 1, 2 do n = n + (bags[b][t][k] >= 0 and 1 or 0) end
      y[b][t] = {}
      for c = 1, WIDTH do
        y[b][t][c] = 0
        for k = 1, 2 do
          local at = bags[b][t][k]
          local row, share = first[t] + at + 1, (weight and weight[b][t][k] or 1) / (mean and math.max(n, 1) or 1)
          if at >= 0 then
            y[b][t][c] = y[b][t][c] + share * w[row][c]
            dw[row][c] = dw[row][c] + share * seed[b][t][c]
          end
        end
      end
    end
  end
  return y, dw
end

describe("EmbeddingBag", function()
  before_each(function()
    gm.context.load_config {}
    core.set_seed(9)
  end)

  local seed = { { { 1, 2, -1 }, { 0.5, 1, 3 }, { 2, -2, 1 } }, { { -1, 1, 0.25 }, { 1, 1, 1 }, { 3, 0.5, -1 } },
    { { 0.75, 1, 2 }, { -3, 1, 0.5 }, { 1, 4, -0.5 } } }
  local weights = { { { 0.5, 2 }, { -1, 7 }, { 1, 3 } }, { { 0.25, 1 }, { 5, 5 }, { 9, -2 } },
    { { 1, 1.5 }, { 2, 1 }, { -0.5, 0.5 } } }

  for _, cut in ipairs { "none", "rows", "columns" } do
    for _, case in ipairs { { "sum" }, { "mean" }, { "sum", weights } } do
      it(("of mode %s%s, cut by %s, adds up the rows of each bag"):format(case[1], case[2] and " with weights" or "",
        cut), numeric.f64(function()
        local layer = nn.EmbeddingBag { counts = COUNTS, width = WIDTH, mode = case[1], cut = cut }
        layer:materialize {}
        if world > 1 and cut ~= "none" then
          assert.same({ "data" }, core.layout(layer.weight).cuts[cut == "rows" and 1 or 2])
        end
        local given = case[2] and shared(gm.tensor(case[2], { dtype = "f64" })):detach():requires_grad(true) or nil
        local y = layer(shared(i64(bags)), given)
        if world > 1 then assert.same({ "data" }, core.layout(y).cuts[1]) end
        local want, gradient = truth(core.gather(layer.weight):totable(), seed, case[2], case[1] == "mean")
        numeric.agree(core.gather(y), want, 1e-15)
        ;(y * shared(gm.tensor(seed, { dtype = "f64" }))):sum():settle():backward()
        numeric.agree(core.gather(core.settle(layer.weight:grad())), gradient, 1e-15)
        if given then
          local slope, w = core.gather(given:grad()):totable(), core.gather(layer.weight):totable()
          local dot = 0
          for c = 1, WIDTH do dot = dot + w[1 + bags[1][1][2]][c] * seed[1][1][c] end -- row 4 of the first table
          assert.near(dot, slope[1][1][2], 1e-14)
          assert.equal(0, slope[2][2][1]) -- no index
        end
      end))
    end
  end

  it("of one table takes bags (b, n), and one index for each of several tables", numeric.f64(function()
    local layer = nn.EmbeddingBag { count = 4, width = 2 }
    local w = layer.weight:totable()
    local y = layer(i64 { { 3, 1 }, { 0, -1 } }):totable()
    for c = 1, 2 do
      assert.equal(w[4][c] + w[2][c], y[1][c])
      assert.equal(w[1][c], y[2][c])
    end
    layer = nn.EmbeddingBag { counts = { 2, 3 }, width = 2 }
    w, y = layer.weight:totable(), layer(i64 { { 1, 2 }, { -1, 0 } }):totable()
    assert.same({ { w[2], w[5] }, { { 0, 0 }, w[3] } }, y)
  end))

  it("refuses indices of another table, shapes and options that do not fit", function()
    local layer = nn.EmbeddingBag { counts = COUNTS, width = 2 }
    for _, row in ipairs { { 2, 0, 2, 0 }, { 5, 5, 0, 0 }, { 4, 0, 0, -2 } } do
      assert.error_matches(function()
        layer(i64 { { unpack(row, 2) } })
        core.synchronize() -- a GPU says it where something waits
      end,
        ("outside a table of %d rows"):format(row[1]))
    end
    assert.error_matches(function() layer(i64 { { 0, 1 } }) end,
      "index is %(1, 2%); 3 tables need %(b, 3%) or %(b, 3, n%)")
    assert.error_matches(function() nn.EmbeddingBag { width = 2 } end, "either count or counts")
    assert.error_matches(function() nn.EmbeddingBag { counts = { 3, 0.5 }, width = 2 } end,
      "counts%[2%] must be a whole number")
    local mean = nn.EmbeddingBag { count = 3, width = 2, mode = "mean" }
    assert.error_matches(function() mean(i64 { { 0 } }, gm.ones { 1, 1 }) end, "go with mode = \"sum\" only")
    local sum = nn.EmbeddingBag { count = 3, width = 2 }
    assert.error_matches(function() sum(i64 { { 0 } }, gm.ones { 1, 2 }) end, "differ in shape")
    local bags_of = nn.EmbeddingBag.bags_of
    assert.error_matches(function() bags_of(i64 { 0, 1 }, i64 { 0, 3 }) end, "offset 0 of bag 1; offsets begin with 0")
    assert.error_matches(function() bags_of(i64 { 0, 1 }, i64 { 1 }) end, "offset 1 of bag 1")
    assert.error_matches(function() bags_of(gm.tensor { 0.5, 1 }, i64 { 0 }) end, "index is %(2%) of f")
    assert.error_matches(function() bags_of({ 0, 1 }, i64 { 0 }) end, "index is { 0, 1 }, should be a tensor")
    assert.error_matches(function() bags_of(i64 { 0, 1 }) end, "offsets is nil, should be a tensor")
    assert.error_matches(function() bags_of(i64 { { 0, 1 } }, i64 { 0 }) end, "index is %(1, 2%) of i64")
    assert.error_matches(function() bags_of(i64 { 0, 1 }, gm.tensor { 0 }) end, "offsets is %(1%) of f")
    assert.error_matches(function() bags_of(i64 { 0, 1 }, i64 { 0 }, gm.ones { 3 }) end, "%(3%) and index %(2%)")
    local none = gm.zeros({ 0 }, { dtype = "i64" })
    assert.error_matches(function() bags_of(i64 { 0, 1 }, none) end, "no bag begins, and there are 2 indices")
    assert.same({ 0, 1 }, bags_of(none, none):shape())
    assert.error_matches(function() gm.models.DLRM { counts = { 3 }, dense = 2 }(i64 { { 0, 1 } }) end,
      "x is %(1, 2%), should be %(b, 3%): 2 counts and an index for each of 1 tables")
  end)
end)
