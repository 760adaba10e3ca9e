-- Routers and capacities against plain Lua: who is chosen, with what weight, what is dropped, what the losses are.
-- ranks: 1 2 4
--
-- The references work on lists of numbers of the whole batch, token by token, and know nothing of ranks; what routers
-- choose on blocks must be the same. Decisions are exact; numbers differ by roundings of f64.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local registry = gm.registry
require "ganymede.nn"

local ranks = core.world()
local B, S, WIDTH = 5, 6, 7
local meshes = {
  [1] = { { { "data", 1 } } }, [2] = { { { "expert", 2 } }, { { "sequence", 2 } } },
  [4] = { { { "data", 2 }, { "expert", 2 } }, { { "expert", 2 }, { "sequence", 2 } }, { { "sequence", 4 } } },
}
local rows = { cuts = { { "data.expert" }, { "sequence" } } }

-- "2 x 2" of a mesh
local function name_of(mesh)
  local words = {}
  for i, axis in ipairs(mesh) do words[i] = axis[1] .. " " .. axis[2] end
  return table.concat(words, " x ")
end

-- Axes that the mesh lacks cut nothing.
local function laid(t) return t:redistribute(rows) end

local function logits_of(x, w)
  local all = {}
  for t = 1, #x do
    all[t] = {}
    for e = 1, #w do
      local sum = 0
      for i = 1, #w[e] do sum = sum + x[t][i] * w[e][i] end
      all[t][e] = sum
    end
  end
  return all
end

-- (B, S, n) tensor -> list of B S lists
local function tokens_of(t)
  local list = {}
  for _, sample in ipairs(core.gather(t):totable()) do
    for _, token in ipairs(sample) do list[#list + 1] = token end
  end
  return list
end

local function softmax(row)
  local sum, out = 0, {}
  for _, v in ipairs(row) do sum = sum + math.exp(v) end
  for e, v in ipairs(row) do out[e] = math.exp(v) / sum end
  return out
end

local function sigmoid(row)
  local out = {}
  for e, v in ipairs(row) do out[e] = 1 / (1 + math.exp(-v)) end
  return out
end

-- places from 0 of the k largest, the lower of equals first
local function largest(row, k)
  local order = {}
  for e = 1, #row do order[e] = e end
  table.sort(order, function(a, b) return row[a] > row[b] or row[a] == row[b] and a < b end)
  local out = {}
  for j = 1, k do out[j] = order[j] - 1 end
  return out
end

local function picked(row, index, sum_to)
  local out, sum = {}, 0
  for j, e in ipairs(index) do
    out[j] = row[e + 1]
    sum = sum + out[j]
  end
  for j = 1, sum_to and #out or 0 do out[j] = out[j] * sum_to / sum end
  return out
end

-- E sum_e f_e P_e and the mean of lse^2
local function losses_of(logits, probabilities, index)
  local experts, tokens, k = #logits[1], #logits, #index[1]
  local f, p, z = {}, {}, 0
  for e = 1, experts do f[e], p[e] = 0, 0 end
  for t = 1, tokens do
    local sum = 0
    for e = 1, experts do
      p[e] = p[e] + probabilities[t][e] / tokens
      sum = sum + math.exp(logits[t][e])
    end
    for j = 1, k do f[index[t][j] + 1] = f[index[t][j] + 1] + 1 / (tokens * k) end
    z = z + math.log(sum) ^ 2 / tokens
  end
  local balance = 0
  for e = 1, experts do balance = balance + experts * f[e] * p[e] end
  return balance, z
end

-- First choices of all tokens, then second ones, while there is room.
local function served(index, experts, room)
  local taken, out = {}, {}
  for e = 0, experts - 1 do taken[e] = 0 end
  for t = 1, #index do out[t] = {} end
  for j = 1, #index[1] do
    for t = 1, #index do
      local e = index[t][j]
      out[t][j] = -1
      if e >= 0 and taken[e] < room then out[t][j], taken[e] = e, taken[e] + 1 end
    end
  end
  return out
end

local function normalised(row)
  local sum, out = 0, {}
  for _, v in ipairs(row) do sum = sum + v end
  for e, v in ipairs(row) do out[e] = v / sum end
  return out
end

-- type, k, scores(logits), what the weights sum to (nil: as they are), probabilities of the loss
local kinds = {
  { "SwitchRouter", 1, softmax, nil, {} }, { "Top2Router", 2, softmax, 1, {} },
  { "TopKRouter", 3, softmax, 1, { k = 3 } }, { "SigmoidRouter", 2, sigmoid, 2.5, { k = 2, scale = 2.5 } },
}

for _, mesh in ipairs(meshes[ranks]) do
  describe("routers on " .. name_of(mesh) .. ":", function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    for _, kind in ipairs(kinds) do
      for _, experts in ipairs { 4, 8 } do
        it(("%s of %d"):format(kind[1], experts), function()
          gm.scope(function()
            local options = { width = WIDTH, experts = experts, balance = 0.5, z = 0.25 }
            for key, value in pairs(kind[5]) do options[key] = value end
            local router = registry.routers:get(kind[1])(options)
            router.weight:detach():copy_(gm.normal({ experts, WIDTH }, { dtype = "f64", seed = 31 }))
            local whole = gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 30 })
            local index, weight, losses = router(laid(whole))
            local logits = logits_of(tokens_of(whole), router.weight:totable())
            local want_index, want_weight, probabilities = {}, {}, {}
            for t, row in ipairs(logits) do
              local scores = kind[3](row)
              want_index[t] = largest(scores, kind[2])
              want_weight[t] = picked(scores, want_index[t], kind[4])
              probabilities[t] = normalised(scores)
            end
            assert.same(want_index, tokens_of(index))
            numeric.agree(tokens_of(weight), want_weight, 1e-12)
            local balance, z = losses_of(logits, probabilities, want_index)
            numeric.agree({ losses[1]:item(), losses[2]:item() }, { 0.5 * balance, 0.25 * z }, 1e-12)
          end)
        end)
      end
    end

    -- Ties, experts that nobody wants, choices that are dropped already, no room at all.
    it("an expert takes its first choices in the order of the batch", function()
      gm.scope(function()
        local list, experts, k = {}, 3, 2
        for t = 0, B * S - 1 do
          list[#list + 1] = t % 7 == 0 and -1 or t * t % 3
          list[#list + 1] = t % 5 == 0 and -1 or (t * t + 1) % 3
        end
        local whole = gm.tensor(list, { dtype = "i64", shape = { B, S, k } })
        local dropped = 0
        for _, room in ipairs { 0, 1, 4, 7, 11, 1000 } do
          local got = tokens_of(core.experts_capacity(laid(whole), experts, room))
          assert.same(served(tokens_of(whole), experts, room), got)
          for t, row in ipairs(got) do dropped = dropped + (row[1] ~= tokens_of(whole)[t][1] and 1 or 0) end
        end
        assert.is_true(dropped > 20)
        local counts = core.experts_counts(laid(whole), experts, "f64"):settle():totable()
        local want = { 0, 0, 0 }
        for _, e in ipairs(list) do want[e + 1] = e >= 0 and want[e + 1] + 1 or want[e + 1] end
        assert.same(want, counts)
      end)
    end)

    it("top_k works on cut rows, and refuses rows of which a rank has a part", function()
      both.agree {
        inputs = { gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 37 }) }, cuts = { rows },
        fn = function(x) return (gm.ops.top_k(x, 3)) end,
      }
      if ranks == 1 then return end
      local x = gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 37 })
      local ok, err = pcall(gm.ops.top_k, x:redistribute { cuts = { {}, {}, { "data.expert.sequence" } } }, 3)
      assert(not ok and tostring(err):find("whose largest are picked is cut", 1, true), tostring(err))
    end)

    it("noise is that of the whole batch, and training's alone", function()
      gm.scope(function()
        for _, noise in ipairs { "normal", "uniform" } do
          local router = registry.routers:get("TopKRouter") {
            width = WIDTH, experts = 4, noise = noise, noise_scale = 0.5, balance = 0,
          }
          local whole = gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 33 })
          local function logits(x)
            core.begin_step()
            return tokens_of(router:logits(x))
          end
          local want, got = logits(whole), logits(laid(whole))
          numeric.agree(got, want, 1e-12)
          router:eval()
          assert.is_true(numeric.relative_error(logits(whole), want) > 1e-3)
          numeric.agree(logits(whole), logits_of(tokens_of(whole), router.weight:totable()), 1e-12)
        end
      end)
    end)

    it("the bias of a SigmoidRouter moves once for all batches of a step", function()
      gm.scope(function()
        local router = registry.routers:get("SigmoidRouter") { width = WIDTH, experts = 4, k = 1, bias_step = 0.5 }
        router.weight:detach():copy_(gm.normal({ 4, WIDTH }, { dtype = "f64", seed = 35 }))
        local sum = { 0, 0, 0, 0 }
        local last
        for seed = 1, 3 do -- each piece prefers another expert than all three do
          local x = laid(gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = seed, mean = seed - 2 }))
          last = core.experts_counts((router(x)), 4, "f64"):settle():totable()
          for e, n in ipairs(last) do sum[e] = sum[e] + n end
        end
        local function moves(counts, tokens)
          local list = {}
          for e, n in ipairs(counts) do list[e] = n > tokens / 4 and -0.5 or n < tokens / 4 and 0.5 or 0 end
          return list
        end
        assert.are_not.same(moves(sum, 3 * B * S), moves(last, B * S)) -- else nothing is told apart
        router:after_update()
        assert.same(moves(sum, 3 * B * S), router.bias:totable())
      end)
    end)

    it("the bias of a SigmoidRouter moves against the load and makes it even", function()
      gm.scope(function()
        local router = registry.routers:get("SigmoidRouter") { width = WIDTH, experts = 4, k = 1, bias_step = 0.05 }
        router.weight:detach():copy_(gm.normal({ 4, WIDTH }, { dtype = "f64", seed = 35 }))
        local x = laid(gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 36, mean = 0.7 })) -- most like one expert
        local function load()
          local counts = core.experts_counts((router(x)), 4, "f64"):settle():totable()
          return counts, math.max(unpack(counts)) - math.min(unpack(counts))
        end
        local counts, before = load()
        router:after_update()
        for e, bias in ipairs(router.bias:totable()) do
          local move = counts[e] > B * S / 4 and -0.05 or counts[e] < B * S / 4 and 0.05 or 0
          assert.is_true(math.abs(bias - move) < 1e-7)
        end
        for _ = 1, 40 do
          load()
          router:after_update()
        end
        local _, after = load()
        assert.is_true(before >= 9 and after <= 4, ("loads differ by %d, then by %d"):format(before, after))
        router:eval()
        router:after_update()
        local bias = router.bias:totable()
        load()
        router:after_update()
        assert.same(bias, router.bias:totable()) -- evaluation counts nothing
      end)
    end)
  end)
end

describe("a mixture of experts", function()
  it("takes a router of the user's own, by name or built", function()
    local own = gm.nn.class("LastExpertRouter", nil, "routers")
    own.options = { width = { type = "integer", doc = "" }, experts = { type = "integer", doc = "" } }
    function own:forward(x)
      local shape = x:shape()
      shape[#shape] = 1
      local weight = gm.ones(shape, { dtype = x:dtype() })
      return ((weight * (self.opt.experts - 1)):to "i64"), weight * 2, {}
    end
    gm.scope(function()
      for _, router in ipairs { "LastExpertRouter", own { width = 4, experts = 3 } } do
        local layer = gm.nn.MoE { width = 4, hidden = 5, experts = 3, router = router, activation = "relu" }
        local x = gm.normal({ 6, 4 }, { seed = 3 })
        local hidden = gm.ops.linear(x, layer.up:select(1, 3), layer.up_bias:select(1, 3), "relu")
        local want = gm.ops.linear(hidden, layer.down:select(1, 3), layer.down_bias:select(1, 3)) * 2
        numeric.agree(layer(x), want, 1e-6)
      end
    end)
  end)

  it("has the room that its capacity says, of the batch", function()
    local layer = gm.nn.MoE { width = 4, experts = 8, capacity = 1.25, capacity_eval = 2 }
    -- tokens, k -> max(4, floor(1.25 k T / 8)), and with 2
    for _, case in ipairs { { 64, 1, 10, 16 }, { 64, 2, 20, 32 }, { 10, 1, 4, 4 }, { 63, 2, 19, 31 } } do
      layer:train()
      assert.equal(case[3], layer:room(case[1], case[2]))
      layer:eval()
      assert.equal(case[4], layer:room(case[1], case[2]))
    end
    assert.is_nil(gm.nn.MoE { width = 4, experts = 8 }:room(64, 2))
  end)

  it("says what is wrong with its options", function()
    for text, options in pairs {
      ["k = 3 is more than the 2 experts"] = { width = 4, experts = 2, k = 3 },
      ["no option 'k'"] = { width = 4, experts = 2, k = 1, router = "SwitchRouter" },
      ["TopRouter"] = { width = 4, experts = 2, router = "TopRouter" },
      ["2 experts to choose from"] = { width = 4, experts = 1, router = "Top2Router" },
      ["min_capacity needs capacity"] = { width = 4, experts = 2, min_capacity = 1 },
      ["noise_scale needs noise"] = { width = 4, experts = 2, router = { type = "SigmoidRouter", noise_scale = 0.1 } },
    } do
      local ok, err = pcall(gm.nn.MoE, options)
      assert(not ok and tostring(err):find(text, 1, true), tostring(err))
    end
    assert.equal(3, gm.nn.MoE { width = 4, experts = 2, min_capacity = 3, capacity_eval = 0.1 }:eval():room(8, 2))
  end)

  it("are in the last of each `every` blocks, but for those that `dense` lists", function()
    local function places(dense, every)
      local model, list = gm.models.GPT { vocabulary = 5, sequence_length = 4, width = 4, depth = 6, heads = 1,
        moe = { experts = 2, every = every, dense = dense } }, {}
      for i, block in model.blocks:each() do list[i] = block.mlp.name == "MoE" and i or 0 end
      return list
    end
    assert.same({ 0, 2, 3, 0, 5, 6 }, places({ 4, 1 }))
    assert.same({ 0, 2, 0, 0, 0, 6 }, places({ 4, 1 }, 2))
    assert.error_matches(function() places { 7 } end, "moe.dense[1] must be the number of a block, from 1 to 6; got 7",
      1, true)
    assert.error_matches(function() places(3) end, "moe.dense must be a list of the blocks that have an MLP; got 3")
    assert.error_matches(function() places({ 3, 6 }, 3) end, "moe.dense lists all blocks that would have experts")
  end)

  it("are refused in a model of which no block would have them", function()
    local function model(depth)
      return gm.models.GPT { vocabulary = 5, sequence_length = 4, width = 4, depth = depth, heads = 1,
        moe = { experts = 2, every = 3 } }
    end
    assert.error_matches(function() model(2) end, "moe.every = 3, but there are only 2 blocks")
    local names = {}
    for _, m in ipairs(model(3):modules()) do
      if m.name == "MoE" then names[#names + 1] = m:path() end
    end
    assert.same({ "blocks.3.mlp" }, names)
  end)
end)
