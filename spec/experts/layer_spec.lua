-- nn.MoE on every mesh against a mixture written with plain ops on whole tensors: results, losses, every gradient.
-- ranks: 1 2 4
--
-- The plain mixture has every expert compute every token. Who is chosen and who finds a place is decided by loops over
-- lists of numbers of the whole batch; the decisions enter as masks of ones and zeros, so that weights, losses and
-- their gradients (the router's among them) come from plain ops. It knows nothing of sorting, sending and layouts. f64:
-- only the order of sums differs.
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"
local against = require "spec.tensor.against_serial"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ranks = core.world()
local B, S, WIDTH, HIDDEN = 5, 3, 6, 7 -- 5 samples are no multiple of the ranks

local meshes = {
  [1] = { { name = "one rank", data = 1 } },
  [2] = { { name = "expert 2", data = 2, expert = 2 } },
  [4] = {
    { name = "expert 4", data = 4, expert = 4 }, { name = "data 2, expert 2", data = 4, expert = 2 },
    { name = "expert 2, 1d", data = 2, expert = 2, tensor = against.tensor("1d", 2) },
    { name = "expert 2, ring", data = 2, expert = 2, sequence = 2 },
  },
}

-- ---------------------------------------------------------------- the plain mixture

-- places from 0 of the k largest, the lower of equals first
local function largest(row, k)
  local order = {}
  for e = 1, #row do order[e] = e end
  table.sort(order, function(a, b) return row[a] > row[b] or row[a] == row[b] and a < b end)
  local out = {}
  for j = 1, k do out[j] = order[j] end
  return out
end

-- Masks (tokens, E) as lists: chosen, and of these the ones that find a place: first choices of all tokens, then
-- second ones, while there is room.
local function decide(scores, k, room)
  local chosen, served, taken, choice = {}, {}, {}, {}
  for t, row in ipairs(scores) do
    choice[t], chosen[t], served[t] = largest(row, k), {}, {}
    for e = 1, #row do chosen[t][e], served[t][e], taken[e] = 0, 0, 0 end
  end
  for j = 1, k do
    for t = 1, #scores do
      local e = choice[t][j]
      chosen[t][e] = 1
      if taken[e] < (room or math.huge) then served[t][e], taken[e] = 1, taken[e] + 1 end
    end
  end
  return chosen, served
end

local function mask(rows) return gm.tensor(rows, { dtype = "f64" }) end

-- E sum_e f_e P_e and the mean of lse^2, times their factors
local function losses_of(case, logits, probabilities, chosen)
  local share, n = {}, 0
  for e = 1, case.experts do share[e] = 0 end
  for _, row in ipairs(chosen) do
    for e, is in ipairs(row) do share[e], n = share[e] + is, n + is end
  end
  for e = 1, case.experts do share[e] = share[e] / n end
  local mean = ops.mean(probabilities, 1)
  local balance = ops.sum(mean * gm.tensor(share, { dtype = "f64" })) * (case.balance * case.experts)
  return balance + ops.mean(ops.square(ops.log(ops.sum(ops.exp(logits), -1)))) * case.z
end

local function count(rows)
  local n = 0
  for _, row in ipairs(rows) do
    for _, is in ipairs(row) do n = n + is end
  end
  return n
end

-- The case is what its name says: something is dropped, or nothing is; everybody chose the hot expert.
local function check_case(case, chosen, served)
  assert.equal(B * S * case.k, count(chosen))
  assert.equal(case.drops == true, count(served) < count(chosen))
  for _, row in ipairs(chosen) do assert.equal(1, case.hot and row[case.hot] or 1) end
end

-- p: whole leaves by name. -> y (tokens, width), loss
local function plain(case, x, p)
  x = ops.reshape(x, { B * S, WIDTH })
  local logits = ops.matmul(x, p["router.weight"], { transpose_b = true })
  local scores = case.router == "SigmoidRouter" and ops.sigmoid(logits) or ops.softmax(logits)
  local chosen, served = decide(scores:totable(), case.k, case.room)
  check_case(case, chosen, served)
  local weight = scores
  local as_they_are = case.router == "SwitchRouter" or case.gated
  if not as_they_are then weight = weight / ops.sum(weight * mask(chosen), -1, true) end
  weight = weight * mask(served)
  local function first(name, e)
    local w, b = e and ops.select(p[name], 1, e) or p[name .. ".weight"],
      e and ops.select(p[name .. "_bias"], 1, e) or p[name .. ".bias"]
    return ops.linear(x, w, b)
  end
  local y
  if case.gated then
    y = ops.linear(ops.swiglu(first "shared.gate", first "shared.up"), p["shared.down.weight"], p["shared.down.bias"])
    y = y * ops.sigmoid(ops.linear(x, p.shared_gate))
  end
  y = y or p["shared.up.weight"] and ops.linear(ops.linear(x, p["shared.up.weight"], p["shared.up.bias"], "silu"),
    p["shared.down.weight"], p["shared.down.bias"]) or ops.mul(x, 0)
  for e = 1, case.experts do
    local hidden = case.gated and ops.swiglu(first("gate", e), first("up", e)) or ops.silu(first("up", e))
    local result = ops.linear(hidden, ops.select(p.down, 1, e), ops.select(p.down_bias, 1, e))
    y = y + result * ops.narrow(weight, 2, e, 1)
  end
  local probabilities = scores / ops.sum(scores, -1, true)
  return ops.reshape(y, { B, S, WIDTH }), losses_of(case, logits, probabilities, chosen)
end

-- ---------------------------------------------------------------- both

local function build(case)
  local layer = gm.nn.MoE {
    width = WIDTH, hidden = HIDDEN, experts = case.experts, shared = case.shared or 0,
    activation = case.gated and "swiglu" or "silu", shared_gate = case.gated, shared_hidden = case.gated and 5 or nil,
    router = { type = case.router, k = case.named_k, balance = case.balance, z = case.z,
      normalise = case.normalise },
    capacity = case.capacity, min_capacity = case.min_capacity,
  }
  core.set_seed(41)
  core.begin_step()
  layer:materialize()
  layer.router.weight:detach():copy_(case.weight and case.weight() or
    gm.normal({ case.experts, WIDTH }, { dtype = "f64", seed = 42, std = 0.5 }))
  return layer
end

-- Of forward(x) -> y, loss: both, and the gradients of x and of the parameters { name, tensor }.
local function numbers(x, named, forward)
  x:requires_grad(true)
  local y, loss = forward(x)
  local factor = gm.uniform({ B, S, WIDTH }, { low = 0.5, high = 1.5, dtype = "f64", seed = 43 })
  local out = { y = core.gather(y:detach()):totable(), loss = loss:item(), gradients = {} }
  ops.add(ops.sum(ops.mul(y, factor)), loss):backward()
  out.gradients.x = core.gather(x:grad()):totable()
  for _, p in ipairs(named) do out.gradients[p.name] = core.gather(p.tensor:grad()):totable() end
  return out
end

local function run_layer(case, layer)
  auxiliary.clear()
  local x = case.x():redistribute({ cuts = { { "data.expert" }, { "sequence" } } }):detach()
  return numbers(x, layer:named_parameters(), function(v)
    local y = layer(v)
    return y, auxiliary.take()
  end)
end

local function run_plain(case, layer)
  local leaves, named = {}, {}
  for i, p in ipairs(layer:named_parameters()) do
    leaves[p.name] = core.gather(p.tensor):detach():clone():requires_grad(true)
    named[i] = { name = p.name, tensor = leaves[p.name] }
  end
  return numbers(case.x(), named, function(x) return plain(case, x, leaves) end)
end

local function agree(case)
  gm.scope(function()
    local layer = build(case)
    local got, want = run_layer(case, layer), run_plain(case, layer)
    local is_zero = case.zero or {}
    numeric.agree(got.y, want.y, 1e-12, is_zero.y and 1 or nil)
    numeric.agree(got.loss, want.loss, 1e-12)
    local compared = 0
    for name, gradient in pairs(want.gradients) do
      assert(got.gradients[name], name)
      assert(is_zero[name] or numeric.size(gradient) > 1e-3, name .. ": nearly zero, the comparison would say little")
      local ok, why = pcall(numeric.agree, got.gradients[name], gradient, 1e-12, is_zero[name] and 1 or nil)
      assert(ok, name .. ": " .. tostring(why))
      compared = compared + 1
    end
    assert.equal(case.gated and 15 or case.shared and 10 or 6, compared)
    for name in pairs(is_zero) do
      assert.equal(0, numeric.size(name == "y" and got.y or got.gradients[name]), name)
    end
  end)
end

-- ---------------------------------------------------------------- cases

local function normal() return gm.normal({ B, S, WIDTH }, { dtype = "f64", seed = 40 }) end

local cases = {}
local function add(case)
  case.x, case.balance, case.z = case.x or normal, 3, 2
  cases[#cases + 1] = case
end

add { name = "gated, weights as they are", router = "TopKRouter", experts = 4, k = 2, named_k = 2, gated = true,
  normalise = false }

for _, experts in ipairs { 1, 2, 4, 8 } do
  add { name = "Switch of " .. experts, router = "SwitchRouter", experts = experts, k = 1 }
  local seen = {}
  for _, k in ipairs { 1, 2, experts } do
    if k <= experts and not seen[k] then
      seen[k] = true
      add { name = ("top %d of %d"):format(k, experts), router = "TopKRouter", experts = experts, k = k,
            named_k = k }
      add { name = ("sigmoid, %d of %d, room for even shares"):format(k, experts), router = "SigmoidRouter",
            experts = experts, k = k, named_k = k, capacity = 1, min_capacity = 0,
            room = math.floor(k * B * S / experts), drops = k < experts }
    end
  end
end
add { name = "Top2 of 4 with shared experts", router = "Top2Router", experts = 4, k = 2, shared = 2 }
add { name = "Top2 of 5, uneven blocks of experts, with a capacity", router = "Top2Router", experts = 5, k = 2,
      capacity = 0.8, min_capacity = 1, room = 4, drops = true }
add { name = "a capacity that is above all there is", router = "Top2Router", experts = 4, k = 2, capacity = 100,
      room = math.huge }
add { name = "the least capacity", router = "Top2Router", experts = 4, k = 2, capacity = 0.01, min_capacity = 3,
      room = 3, drops = true }

-- Inputs are positive and one row of the router's weight alone is: that expert is everybody's first choice.
local function positive() return gm.uniform({ B, S, WIDTH }, { low = 0.5, high = 1.5, dtype = "f64", seed = 44 }) end
local function only(hot, experts)
  return function()
    local rows = {}
    for e = 1, experts do
      rows[e] = {}
      for i = 1, WIDTH do rows[e][i] = (e == hot and 0.15 or -0.1) + 0.01 * ((3 * e + 2 * i) % 5) end
    end
    return gm.tensor(rows, { dtype = "f64" })
  end
end
for _, hot in ipairs { 1, 4 } do
  add { name = "all tokens to expert " .. hot .. ", none to the others", router = "SwitchRouter", experts = 4, k = 1,
        x = positive, weight = only(hot, 4), hot = hot }
  add { name = "all to expert " .. hot .. ", which takes a few", router = "SwitchRouter", experts = 4, k = 1,
        x = positive, weight = only(hot, 4), hot = hot, capacity = 1, min_capacity = 0,
        room = math.floor(B * S / 4), drops = true }
end
local nothing = { y = true, up = true, up_bias = true, down = true, down_bias = true }
add { name = "no room at all", router = "Top2Router", experts = 4, k = 2, capacity = 0.01, min_capacity = 0, room = 0,
      drops = true, zero = nothing }

for _, mesh in ipairs(meshes[ranks]) do
  describe("a mixture of experts on " .. mesh.name .. ":", function()
    against.throughout(mesh, setup, teardown)

    for _, case in ipairs(cases) do
      it(case.name, function() agree(case) end)
    end
  end)
end
