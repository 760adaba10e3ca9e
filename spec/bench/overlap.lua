-- overlap.lua - what summing gradients over the ranks costs a step, with and without overlap.
--
--     ganymede run spec/bench/overlap.lua -n 2 --threads 1
--     ganymede run spec/bench/overlap.lua -n 2 --threads 1 --set depth=4 --set width=512 --set batch=8
--
-- A transformer's forward and backward pass (GPT, f32), three ways in turn, in one run: no sums at all; sums in
-- buckets while backward runs; the same sums after it. Printed for rank 0: medians of the seconds of a step, what the
-- sums add to it (exposed time by the clock), and what the communicator counted: from start to end of the
-- operations, and the part in which the host did nothing but wait or move data. Cores that compute cannot also move
-- data: where ranks use every core, overlap can hide waiting, not moving.
local gm = require "ganymede"
local core = require "ganymede.core"

local config = gm.launch { width = 384, depth = 4, batch = 8, length = 128, steps = 15, bucket_mb = 4, parallel = {} }

local model = gm.models.GPT {
  vocabulary = 512, sequence_length = config.length, width = config.width, depth = config.depth, heads = 8,
}
model:materialize()
local parameters, elements = model:parameters(), 0
for _, p in ipairs(parameters) do elements = elements + p:numel() end
local loss_function = gm.nn.CrossEntropyLoss {}

-- Tokens of one batch, the same in every step; each rank has its own block of rows.
local tokens = {}
for i = 1, config.batch do
  tokens[i] = {}
  for j = 1, config.length do tokens[i][j] = (i * 131 + j * j * 7) % 512 end
end
local x = gm.tensor(tokens, { dtype = "i64" }):keep()

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local everybody = core.comm_group()

-- Seconds of one step; mode: "none", "overlapped" or "after".
local function step(reducer)
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    core.zero_grad(parameters)
    local loss = loss_function(model(x), x)
    if reducer then core.reducer_arm(reducer, true) end
    loss:backward()
    if reducer then core.reducer_finish(reducer) end
  end)
  return core.now() - began
end

local function traffic()
  local seconds, exposed = 0, 0
  for _, entry in ipairs(core.comm_traffic()) do
    if entry.op == "all_reduce" then seconds, exposed = seconds + entry.seconds, exposed + entry.exposed end
  end
  return seconds, exposed
end

local modes = { "none", "overlapped", "after" }
local times, inside = { none = {}, overlapped = {}, after = {} }, { overlapped = { {}, {} }, after = { {}, {} } }
for round = 0, config.steps do
  for _, mode in ipairs(modes) do
    local reducer = mode ~= "none" and core.reducer_new(parameters,
      { bucket_bytes = config.bucket_mb * 2 ^ 20, overlap = mode == "overlapped" })
    step(reducer) -- the first with a new reducer touches fresh memory
    core.comm_reset_traffic()
    local seconds = step(reducer)
    local total, exposed = traffic()
    if reducer then core.reducer_free(reducer) end
    if round > 0 then
      table.insert(times[mode], seconds)
      if reducer then
        table.insert(inside[mode][1], total)
        table.insert(inside[mode][2], exposed)
      end
    end
  end
end

if core.rank() == 0 then
  local none = median(times.none)
  print(("%d ranks, %.1f MB of gradients, buckets of %g MB; medians of %d steps, in ms"):format(core.world(),
    4 * elements / 1e6, config.bucket_mb, config.steps))
  print(("%-12s %8s %8s %12s %14s"):format("", "step", "added", "operations", "wait or move"))
  print(("%-12s %8.1f"):format("none", 1e3 * none))
  local added = {}
  for _, mode in ipairs { "overlapped", "after" } do
    added[mode] = median(times[mode]) - none
    print(("%-12s %8.1f %8.1f %12.1f %14.1f"):format(mode, 1e3 * median(times[mode]), 1e3 * added[mode],
      1e3 * median(inside[mode][1]), 1e3 * median(inside[mode][2])))
  end
  print(("overlapped / after: %.2f by the clock, %.2f of waiting and moving"):format(added.overlapped / added.after,
    median(inside.overlapped[2]) / median(inside.after[2])))
end
