-- The op that sends tokens to their experts: against a loop over experts with plain ops, and cut against whole.
-- ranks: 1 2 4
--
-- The loop computes every expert for every token and counts it by the weights of the choices that name it: it knows
-- nothing of sorting, sending or grouping. Then the same op on blocks must give what it gives on whole tensors: values
-- and the gradients of tokens, weights and all parameters.
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ranks = core.world()
local WIDTH, HIDDEN = 6, 10

local seed = 5200
local function any(...)
  seed = seed + 1
  return gm.uniform({ ... }, { low = -1, high = 1, dtype = "f64", seed = seed })
end

-- choices of k different experts of E for n tokens, some of them dropped; uneven: the last expert gets nothing
local function choices(n, k, experts, dropped)
  local list = {}
  local used = math.max(k, experts - (experts > 4 and 1 or 0))
  for t = 0, n - 1 do
    for j = 0, k - 1 do
      local e = (t * t + 3 * math.floor(t / 4) + j) % used
      list[#list + 1] = dropped and (t + 2 * j) % 5 == 3 and -1 or e
    end
  end
  return list
end

local function index_of(shape, k, experts, dropped)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local all = { unpack(shape) }
  all[#all + 1] = k
  return gm.tensor(choices(n, k, experts, dropped), { dtype = "i64", shape = all })
end

local function plain(x, index, weight, up, up_bias, down, down_bias, activation, gate, gate_bias)
  local y
  for e = 1, up:size(1) do
    local chosen = ops.cast(ops.eq(ops.cast(index, "f64"), e - 1), "f64")
    local share = ops.sum(ops.mul(chosen, weight), -1, true)
    local first = not gate and activation or nil
    local hidden = ops.linear(x, ops.select(up, 1, e), up_bias and ops.select(up_bias, 1, e), first)
    if gate then
      local a = ops.linear(x, ops.select(gate, 1, e), gate_bias and ops.select(gate_bias, 1, e))
      hidden = ops[activation](a, hidden)
    end
    local result = ops.linear(hidden, ops.select(down, 1, e), down_bias and ops.select(down_bias, 1, e))
    local term = ops.mul(result, share)
    y = y and ops.add(y, term) or term
  end
  return y
end

local function layer(up, up_bias, down, down_bias, activation, gate, gate_bias)
  return { up = up, up_bias = up_bias, down = down, down_bias = down_bias, activation = activation, gate = gate,
    gate_bias = gate_bias }
end

local function parameters(experts)
  return any(experts, HIDDEN, WIDTH), any(experts, HIDDEN), any(experts, WIDTH, HIDDEN), any(experts, WIDTH)
end

-- Values and gradients of both functions of the same leaves.
local function same(fn, want_fn, leaves)
  local results, gradients = {}, {}
  for i, f in ipairs { fn, want_fn } do
    for _, t in ipairs(leaves) do t:requires_grad(false):requires_grad(true) end
    local y = f()
    local factor = gm.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = "f64", seed = 9 })
    ops.sum(ops.mul(y, factor)):backward()
    results[i], gradients[i] = y, {}
    for k, t in ipairs(leaves) do gradients[i][k] = numeric.flat(t:grad()) end
  end
  numeric.agree(results[1], results[2], 1e-12, 1e-3)
  for k in ipairs(leaves) do numeric.agree(gradients[1][k], gradients[2][k], 1e-12, 1e-3) end
end

describe("experts on whole tensors are a loop over experts:", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", ranks } end)

  for _, experts in ipairs { 1, 2, 4, 8 } do
    for k = 1, math.min(experts, 3) do
      for _, dropped in ipairs { false, true } do
        it(("%d experts, %d choices%s"):format(experts, k, dropped and ", some dropped" or ""), function()
          gm.scope(function()
            local x, weight, index = any(3, 7, WIDTH), any(3, 7, k), index_of({ 3, 7 }, k, experts, dropped)
            local up, up_bias, down, down_bias = parameters(experts)
            for _, activation in ipairs { "gelu", false } do
              local f = activation or nil
              same(function() return core.experts(x, index, weight, layer(up, up_bias, down, down_bias, f)) end,
                function() return plain(x, index, weight, up, up_bias, down, down_bias, f) end,
                { x, weight, up, up_bias, down, down_bias })
            end
            same(function() return core.experts(x, index, weight, layer(up, nil, down, nil, "relu")) end,
              function() return plain(x, index, weight, up, nil, down, nil, "relu") end, { x, weight, up, down })
            local gate, gate_bias = parameters(experts)
            local all = { up, up_bias, down, down_bias, "swiglu", gate, gate_bias }
            same(function() return core.experts(x, index, weight, layer(unpack(all))) end,
              function() return plain(x, index, weight, unpack(all)) end,
              { x, weight, up, up_bias, down, down_bias, gate, gate_bias })
            same(function() return core.experts(x, index, weight, layer(up, nil, down, nil, "geglu", gate)) end,
              function() return plain(x, index, weight, up, nil, down, nil, "geglu", gate) end,
              { x, weight, up, down, gate })
          end)
        end)
      end
    end
  end

  it("of which no token chose any give zeros", function()
    gm.scope(function()
      local index = gm.tensor({ -1, -1, -1, -1 }, { dtype = "i64", shape = { 4, 1 } })
      local up, up_bias, down, down_bias = parameters(2)
      local x, weight = any(4, WIDTH):requires_grad(true), any(4, 1)
      local y = core.experts(x, index, weight, layer(up, up_bias, down, down_bias))
      ops.sum(y):backward()
      for _, t in ipairs { y, x:grad() } do
        for _, v in ipairs(numeric.flat(t)) do assert.equal(0, v) end
      end
    end)
  end)

  it("add to a gradient already there, also of a weight whose bias has none", function()
    gm.scope(function()
      local x, weight, index = any(3, 7, WIDTH), any(3, 7, 2), index_of({ 3, 7 }, 2, 4, true)
      local up, up_bias, down, down_bias = parameters(4)
      local leaves, gradients = { up, up_bias, down, down_bias }, {}
      local function ours() return core.experts(x, index, weight, layer(up, up_bias, down, down_bias, "gelu")) end
      local function theirs() return plain(x, index, weight, up, up_bias, down, down_bias, "gelu") end
      for i, fn in ipairs { ours, theirs } do
        for _, t in ipairs(leaves) do t:requires_grad(false):requires_grad(true) end
        ops.sum(ops.mul(up, 2)):backward()
        ops.sum(ops.mul(down_bias, 3)):backward()
        for _ = 1, 2 do ops.sum(fn()):backward() end
        gradients[i] = {}
        for k, t in ipairs(leaves) do gradients[i][k] = numeric.flat(t:grad()) end
      end
      for k in ipairs(leaves) do numeric.agree(gradients[1][k], gradients[2][k], 1e-12, 1e-3) end
    end)
  end)

  it("refuse what does not fit, and say how it lies", function()
    gm.scope(function()
      local up, up_bias, down, down_bias = parameters(2)
      local x, weight = any(4, WIDTH), any(4, 1)
      local function refused(text, ...)
        -- a GPU says so when it is read
        local ok, err = pcall(function(...) return core.experts(...):totable() end, ...)
        assert(not ok and tostring(err):find(text, 1, true), ("%s, wanted %s"):format(tostring(err), text))
      end
      local all = layer(up, up_bias, down, down_bias)
      local two = gm.tensor({ 0, 1, 2, 0 }, { dtype = "i64", shape = { 4, 1 } })
      refused("is none of 2 experts", x, two, weight, all)
      refused("leading dimensions of x", x, two:narrow(1, 1, 3), weight, all)
      refused("index should be i64", x, two:to "i32", weight, all)
      refused("up should be (E, f, h)", any(4, WIDTH + 1), two, weight, all)
      refused("dtypes differ", x:to "f32", two, weight, all)
      local one = gm.tensor({ 0, 1, 1, 0 }, { dtype = "i64", shape = { 4, 1 } })
      refused("a gated activation needs gate", x, one, weight, layer(up, nil, down, nil, "swiglu"))
      refused("no other has one", x, one, weight, layer(up, nil, down, nil, "gelu", up))
      refused("gate should be as up", x, one, weight, layer(up, nil, down, nil, "swiglu", down))
      refused("gate_bias without a gate", x, one, weight, layer(up, nil, down, nil, "gelu", nil, up_bias))
    end)
  end)
end)

-- Tokens cut by data.expert, experts by expert; 5 samples are no multiple of the ranks.
local meshes = {
  [2] = { { { "expert", 2 } } },
  [4] = { { { "expert", 4 } }, { { "data", 2 }, { "expert", 2 } }, { { "expert", 2 }, { "sequence", 2 } },
          { { "expert", 2 }, { "tensor", 2 } } },
}

local function name_of(mesh)
  local words = {}
  for i, axis in ipairs(mesh) do words[i] = axis[1] .. " " .. axis[2] end
  return table.concat(words, " x ")
end

for _, mesh in ipairs(meshes[ranks] or {}) do
  describe("experts over " .. name_of(mesh) .. ":", function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    local batch, sequence, hidden = {}, {}, {}
    for _, axis in ipairs(mesh) do
      if axis[1] == "data" or axis[1] == "expert" then batch[#batch + 1] = axis[1] end
      if axis[1] == "sequence" then sequence[1] = "sequence" end
      if axis[1] == "tensor" then hidden[1] = "tensor" end
    end
    local expect = table.concat(batch, ".") .. "," .. (sequence[1] or "-") .. ",-"
      .. (hidden[1] and " partial tensor" or "")
    local tokens, of_experts = { cuts = { batch, sequence } }, { "expert" }
    local cuts = { tokens, tokens, tokens, { cuts = { of_experts, hidden } }, { cuts = { of_experts, hidden } },
                   { cuts = { of_experts, {}, hidden } }, { cuts = { of_experts } },
                   { cuts = { of_experts, hidden } }, { cuts = { of_experts, hidden } } }

    for _, experts in ipairs { 1, 2, 4, 8 } do
      for k = 1, math.min(experts, 2) do
        it(("%d experts, %d choices"):format(experts, k), function()
          for _, b in ipairs { 4, 5, 1 } do
            local up, up_bias, down, down_bias = parameters(experts)
            both.agree {
              inputs = { any(b, 6, WIDTH), index_of({ b, 6 }, k, experts, b == 5), any(b, 6, k), up, up_bias, down,
                         down_bias },
              cuts = cuts, expect = expect,
              fn = function(x, index, weight, ...)
                local u, ub, d, db = ...
                return core.experts(x, index, weight, layer(u, ub, d, db, "gelu"))
              end,
            }
            if b == 5 then
              local gate, gate_bias = parameters(experts)
              both.agree {
                inputs = { any(b, 6, WIDTH), index_of({ b, 6 }, k, experts, true), any(b, 6, k), up, up_bias, down,
                           down_bias, gate, gate_bias },
                cuts = cuts, expect = expect,
                fn = function(x, index, weight, u, ub, d, db, g, gb)
                  return core.experts(x, index, weight, layer(u, ub, d, db, "swiglu", g, gb))
                end,
              }
            end
          end
        end)
      end
    end
  end)
end
