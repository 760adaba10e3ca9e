-- The backward pass of experts in two halves (zero-bubble schedules): the first gives the gradients of tokens and
-- router weights, the second those of the experts, from rows that are where they belong already: it sends nothing.
-- ranks: 1 2 4
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local against = require "spec.tensor.against_serial"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ranks = core.world()
local TOKENS, WIDTH, HIDDEN, EXPERTS = 13, 6, 8, 5 -- tokens and experts are no multiple of the ranks

local meshes = {
  [1] = { { name = "one rank", data = 1 } },
  [2] = { { name = "expert 2", data = 2, expert = 2 }, { name = "1d", data = 1, tensor = against.tensor("1d", 2) } },
  [4] = { { name = "data 2, expert 2", data = 4, expert = 2 }, { name = "expert 4", data = 4, expert = 4 },
          { name = "expert 2, 1d", data = 2, expert = 2, tensor = against.tensor("1d", 2) } },
}

local rows = { cuts = { { "data.expert" } } }

local function sent()
  local bytes = 0
  for _, entry in ipairs(core.comm_traffic()) do bytes = bytes + entry.bytes end
  return bytes
end

local function leaf(t) return t:detach():requires_grad(true) end
local function random(seed, ...)
  return gm.normal({ ... }, { dtype = "f64", seed = seed })
end

-- Backward of a scalar from these inputs, whole or in halves -> bytes that the second half sent. between: called after
-- the first.
local function run(loss, inputs, halves, between)
  local tape = core.tape_take()
  if not halves then
    core.tape_run(tape, { outputs = { loss } })
    return core.tape_free(tape)
  end
  core.tape_run(tape, { pass = "input", outputs = { loss }, inputs = inputs })
  between()
  core.comm_reset_traffic()
  core.tape_run(tape, { pass = "weight" })
  core.tape_free(tape)
  return sent()
end

local function gradients_of(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = core.gather(assert(t:grad())):totable() end
  return out
end

-- forward(input) -> loss, the parameters. Both ways give the same gradients, each of which says something.
local function agree(input, forward, between)
  local whole, halves, bytes
  for _, in_halves in ipairs { false, true } do
    core.begin_step()
    local x = leaf(input)
    local loss, parameters = forward(x)
    local second = run(loss, { x }, in_halves, function() between(x, parameters) end)
    local all = gradients_of { x, unpack(parameters) }
    if in_halves then halves, bytes = all, second else whole = all end
    core.zero_grad(parameters)
  end
  assert.equal(#whole, #halves)
  for i, want in ipairs(whole) do numeric.agree(halves[i], want, 1e-14) end -- terms of a sum in another order
  return bytes
end

local function experts(activation)
  local axes = { "expert" }
  local function cut(seed, layout, ...) return leaf(random(seed, EXPERTS, ...):redistribute { cuts = layout }) end
  local layer = {
    up = cut(1, { axes, { "tensor" } }, HIDDEN, WIDTH), up_bias = cut(2, { axes, { "tensor" } }, HIDDEN),
    down = cut(3, { axes, {}, { "tensor" } }, WIDTH, HIDDEN), down_bias = cut(4, { axes }, WIDTH),
    activation = activation,
  }
  local list = { layer.up, layer.up_bias, layer.down, layer.down_bias }
  if activation == "swiglu" then
    layer.gate, layer.gate_bias = cut(5, { axes, { "tensor" } }, HIDDEN, WIDTH), cut(6, { axes, { "tensor" } }, HIDDEN)
    list[5], list[6] = layer.gate, layer.gate_bias
  end
  return layer, list
end

local function chosen()
  local list = {}
  for t = 0, TOKENS - 1 do
    list[#list + 1] = t * t % EXPERTS
    list[#list + 1] = t % 4 == 1 and -1 or (t * t + 1) % EXPERTS
  end
  return gm.tensor(list, { dtype = "i64", shape = { TOKENS, 2 } }):redistribute(rows)
end

for _, mesh in ipairs(meshes[ranks]) do
  describe("the backward pass of experts in halves, on " .. mesh.name .. ":", function()
    against.throughout(mesh, setup, teardown)

    local function token_rows(seed, n) return random(seed, TOKENS, n):redistribute(rows):detach() end

    it("the layer, whose experts wait and send nothing", function()
      gm.scope(function()
        core.set_seed(5)
        local layer = gm.nn.MoE { width = WIDTH, hidden = HIDDEN, experts = EXPERTS, capacity = 1.5, min_capacity = 1,
                                  router = { type = "TopKRouter", k = 2, balance = 2, z = 1 } }
        local factor = token_rows(7, WIDTH)
        local function forward(x)
          auxiliary.clear()
          local y = layer(x)
          return ops.sum(ops.mul(y, factor)):settle() + auxiliary.take():settle(), layer:parameters()
        end
        local bytes = agree(token_rows(6, WIDTH), forward, function(x)
          assert.is_not_nil(x:grad())
          for _, name in ipairs { "up", "up_bias", "down", "down_bias" } do
            assert.is_nil(core.grad_part(layer[name]))
          end
        end)
        assert.equal(0, bytes)
      end)
    end)

    -- What the input leads to decides what waits: here the weights of the choices are parameters, there the tokens.
    for _, activation in ipairs { "silu", "swiglu", false } do
      it(("the op, %s"):format(activation or "without activation"), function()
        gm.scope(function()
          local index, factor = chosen(), token_rows(7, WIDTH)
          local x, weight = token_rows(8, WIDTH), token_rows(9, 2)
          local function loss_of(y) return ops.sum(ops.mul(y, factor)):settle() end
          local function none(parameters)
            for _, p in ipairs(parameters) do assert.is_nil(core.grad_part(p)) end
          end
          local layer, parameters = experts(activation or nil)
          local both = agree(x, function(input)
            return loss_of(core.experts(input, index, ops.mul(ops.narrow(input, 2, 1, 2), 2), layer)), parameters
          end, function(_, waiting) none(waiting) end)
          assert.equal(0, both)
          local later = { leaf(weight), unpack(parameters) }
          agree(x, function(input) return loss_of(core.experts(input, index, later[1], layer)), later end,
            function(_, waiting) none(waiting) end)
          later[1] = leaf(x)
          agree(weight, function(input) return loss_of(core.experts(later[1], index, input, layer)), later end,
            function(_, waiting) none(waiting) end)
        end)
      end)
    end
  end)
end
