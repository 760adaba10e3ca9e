-- products.lua - what a step of two linear layers costs in each mode of tensor parallelism: time, and elements sent.
--
--     ganymede run spec/bench/products.lua -n 4 --threads 1 --set tensor_mode=2d
--     ganymede run spec/bench/products.lua -n 8 --threads 1 --set tensor_mode=3d --set keep=true
--     ganymede run spec/bench/products.lua --threads 2                      # one rank: the same work, nothing sent
--
-- 512 -> 2048 -> 512 on 1,024 rows, f32, forward and backward with the gradient of the rows. Printed by rank 0: median
-- and least seconds of a step, elements sent a rank (the mean over ranks), and the time in which rank 0 did nothing but
-- wait or move data.
--
-- Two cores (Sapphire Rapids, AVX-512), median of 15 steps and the least, in ms; Colossal-AI 0.1.10 on two such cores:
--     one rank, 2 threads   43.6 (41.9): the products alone, 12.9 GFLOP
--     1d on 4   40.7 (36.9)   peer 117        1d on 8     45.8 (39.1)   peer 205
--     2d on 4   46.1 (43.0)   peer 163        2.5d on 8   53.3 (50.7)   peer 332
--                                             3d on 8     60.5 (57.2)   peer 201
local gm = require "ganymede"
local core = require "ganymede.core"
local traffic = require "traffic"

local config = gm.launch { tensor_mode = "1d", keep = false, rows = 1024, width = 512, steps = 15, parallel = {} }

-- Square and cube roots of the ranks where a mode needs one.
local world = core.world()
local kind = config.tensor_mode
local q = math.floor((kind == "3d" and world ^ (1 / 3) or math.sqrt(world / (kind == "2.5d" and 2 or 1)))
  + 0.5)

-- Axes with their sizes; the cuts of x, of the two weights (out, in), and of the result.
-- 2D: of the second, narrowing layer w and y are sent, not x.
local flat, narrow = { { "col" }, { "row" } }, { { "row" }, { "col" } }
local modes = {
  ["1d"] = { mesh = { { "tensor", world } }, x = {}, up = { { "tensor" } }, down = { {}, { "tensor" } }, y = {} },
  ["2d"] = { mesh = { { "row", q }, { "col", q } }, x = { { "row" }, { "col" } }, up = flat, down = narrow },
  ["2.5d"] = { mesh = { { "depth", 2 }, { "row", q }, { "col", q } }, x = { { "depth", "row" }, { "col" } },
    up = flat, down = narrow },
  ["3d"] = { mesh = { { "output", q }, { "input", q }, { "weight", q } }, x = { { "weight", "input" }, { "output" } },
    up = { { "input" }, { "output", "weight" } }, down = { { "output" }, { "input", "weight" } } },
}
local mode = modes[config.tensor_mode]
if not mode then error("products.lua: tensor_mode is 1d, 2d, 2.5d or 3d, not " .. tostring(config.tensor_mode), 0) end
local ranks = 1
for _, axis in ipairs(mode.mesh) do ranks = ranks * axis[2] end
if ranks ~= world then error(("products.lua: %s does not fit on %d ranks"):format(config.tensor_mode, world), 0) end
core.set_mesh(world > 1 and mode.mesh or {})

local function make(rows, columns, cuts)
  local t = gm.uniform({ rows, columns }, { low = -1, high = 1, seed = rows }):redistribute { cuts = cuts }:detach()
  t:requires_grad(true)
  return t:keep()
end

local width = config.width
local x, up, down = make(config.rows, width, mode.x), make(4 * width, width, mode.up), make(width, 4 * width, mode.down)
local slope = make(config.rows, width, mode.y or mode.x):detach():keep()
local everybody = core.comm_group()
core.keep_gathered(config.keep)

local function step()
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    core.zero_grad { x, up, down }
    local y = gm.ops.linear(gm.ops.linear(x, up), down)
    if mode.y then y = y:redistribute { cuts = mode.y } end
    y:backward(slope)
    if mode.y then x:grad() end -- its sum over the ranks
  end)
  return core.now() - began
end

for _ = 1, 3 do step() end
core.comm_reset_traffic()
local seconds = {}
for i = 1, config.steps do seconds[i] = step() end
table.sort(seconds)
local bytes, exposed = traffic()
local all = 0
for _, text in ipairs(core.comm_exchange(everybody, ("%.0f"):format(bytes))) do all = all + tonumber(text) end
if core.rank() == 0 then
  print(("%-4s on %d: %6.1f ms a step (least %.1f), %9.0f elements sent a rank, %.1f ms waiting or moving"):format(
    config.tensor_mode, world, 1e3 * seconds[math.ceil(#seconds / 2)], 1e3 * seconds[1], all / world / config.steps / 4,
    1e3 * exposed / config.steps))
end
