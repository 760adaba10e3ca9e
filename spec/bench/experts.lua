-- experts.lua - what a mixture of experts costs: time of a step, beside an MLP of as many products, and bytes sent
-- beside the formula.
--
--     ganymede run spec/bench/experts.lua -n 4 --threads 1
--     ganymede run spec/bench/experts.lua -n 4 --threads 1 --set experts=16 --set k=1
--     ganymede run spec/bench/experts.lua -n 4 --threads 1 --set capacity=1            # each its even share at most
--     ganymede run spec/bench/experts.lua --threads 2                       # one rank: nothing is sent
--
-- Experts on every rank, 512 tokens a rank, 256 -> 1024 -> 256, f32, forward and backward. The formula: each choice
-- whose expert is elsewhere sends a row of 256 numbers there and back, in forward and in backward; counted from the
-- choices.
-- Spread evenly that is 4 (n-1)/n k T h a rank; padding to a capacity of 1 would send as much, used or not. Printed by
-- rank 0; the bytes must be equal.
local gm = require "ganymede"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local nn = require "ganymede.nn"

local config = gm.launch { experts = 8, k = 2, tokens = 512, width = 256, hidden = 1024, steps = 15, capacity = 0,
                           parallel = {} }
local world = core.world()
core.set_mesh(world > 1 and { { "expert", world } } or {})
local everybody = core.comm_group()

local x = gm.normal({ world * config.tokens, config.width }, { seed = 3 })
x = x:redistribute({ cuts = { { "expert" } } }):detach():requires_grad(true):keep()

local function step(layer)
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    core.zero_grad(layer:parameters())
    core.zero_grad { x }
    auxiliary.add_to(gm.ops.sum(layer(x))):backward()
  end)
  return core.now() - began
end

local function median(layer)
  for _ = 1, 3 do step(layer) end
  core.comm_reset_traffic()
  local seconds = {}
  for i = 1, config.steps do seconds[i] = step(layer) end
  table.sort(seconds)
  return 1e3 * seconds[math.ceil(#seconds / 2)]
end

local function sum_of(number)
  local sum = 0
  for _, text in ipairs(core.comm_exchange(everybody, ("%.0f"):format(number))) do sum = sum + tonumber(text) end
  return sum
end

-- Choices of this rank, -1 for what finds no place.
local function choices_of(layer)
  local index = layer.router(x)
  local room = layer:room(index:size(1), config.k)
  return (room and core.experts_capacity(index, config.experts, room) or index):local_tensor():totable()
end

-- Of all ranks: choices whose expert is elsewhere.
local function rows_elsewhere(layer)
  local index = gm.scope(choices_of, layer)
  local room, n = math.ceil(config.experts / world), 0
  for _, choices in ipairs(index) do
    for _, e in ipairs(choices) do n = n + ((e >= 0 and math.floor(e / room) ~= core.rank()) and 1 or 0) end
  end
  return sum_of(n)
end

local mlp = median(nn.MLP { width = config.width, hidden = config.k * config.hidden })
local layer = nn.MoE {
  width = config.width, hidden = config.hidden, experts = config.experts, k = config.k,
  capacity = config.capacity > 0 and config.capacity or nil,
}
local moe, sent, exposed = median(layer), 0, 0
for _, entry in ipairs(core.comm_traffic()) do
  if entry.op == "all_to_all_rows" then sent, exposed = sent + entry.bytes, exposed + entry.exposed end
end
sent = sum_of(sent) / config.steps
local formula = 4 * rows_elsewhere(layer) * config.width * 4
if core.rank() == 0 then
  print(("%d experts, %d of each token, on %d: %.1f ms a step, an MLP as wide %.1f ms; %.0f bytes sent, the formula "
    .. "says %.0f, evenly spread it would be %.0f; %.1f ms waiting or moving"):format(config.experts, config.k, world,
    moe, mlp, sent, formula, 16 * (world - 1) * config.k * config.tokens * config.width, 1e3 * exposed / config.steps))
  if sent ~= formula then error("the bytes sent are not those of the formula", 0) end
end
