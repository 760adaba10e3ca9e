--- What was measured of an application once, so that a simulation can replay it: seconds of a step for placements and
-- batches, and what training learns at each batch.
--
-- A folder holds (the form of the artifact of Pollux, OSDI 2021):
--   placements.csv      placement (replicas of each node, such as 134), local_bsz, step_time, sync_time
--   scalability.csv     num_nodes, num_replicas, local_bsz, step_time, sync_time: more nodes than placements have
--   validation-N.csv    batch N, a row an epoch: progress (steps of the least batch that are worth as much, from the
--                       beginning), iteration (steps taken), grad_sqr, grad_var
-- Between what was measured, values are linear in the samples, in the nodes and in the replicas a node.
-- The trap: rows of placements name nodes in any order; a placement and its rotations count as one.
-- @module ganymede.cluster.profile
local core = require "ganymede.core"
local table_file = require "ganymede.cluster.table_file"

local profile = {}
profile.__index = profile

-- The least of the rotations of a list of digits, as a text.
local function rotated(counts)
  local text = table.concat(counts)
  local least = text
  for i = 2, #text do
    local other = text:sub(i) .. text:sub(1, i - 1)
    if other < least then least = other end
  end
  return least
end

local function insert(curve, b, step, sync) curve[#curve + 1] = { b, step, sync } end

local function sort(curve) table.sort(curve, function(x, y) return x[1] < y[1] end) end

-- Step and sync at b, on a curve of points { b, step, sync } in order. Beyond its ends it goes on as it ends.
local function at(curve, b)
  local i = 1
  while i < #curve - 1 and curve[i + 1][1] < b do i = i + 1 end
  local low, high = curve[i], curve[i + 1]
  if not high then return low[2], low[3] end
  local w = (b - low[1]) / (high[1] - low[1])
  return low[2] + w * (high[2] - low[2]), math.max(low[3] + w * (high[3] - low[3]), 0)
end

-- Means over all placements with as many nodes and replicas -> [nodes][replicas] = curve
local function add_mean(by, nodes, replicas, b, step, sync)
  by[nodes] = by[nodes] or {}
  by[nodes][replicas] = by[nodes][replicas] or {}
  local curve = by[nodes][replicas]
  local cell = curve[b] or { 0, 0, 0 }
  curve[b] = { cell[1] + step, cell[2] + sync, cell[3] + 1 }
end

local function means(by)
  for _, of_nodes in pairs(by) do
    for replicas, cells in pairs(of_nodes) do
      local curve = {}
      for b, cell in pairs(cells) do insert(curve, b, cell[1] / cell[3], cell[2] / cell[3]) end
      sort(curve)
      of_nodes[replicas] = curve
    end
  end
  return by
end

local function keys(of)
  local list = {}
  for key in pairs(of) do list[#list + 1] = key end
  table.sort(list)
  return list
end

local function read_steps(self, folder)
  self.exact, self.by = {}, {}
  local least, most = math.huge, 0
  for _, row in ipairs(table_file.read(folder .. "/placements.csv", { "placement", "local_bsz", "step_time",
    "sync_time" })) do
    local text, replicas = ("%d"):format(row.placement), 0
    for digit in text:gmatch "." do replicas = replicas + tonumber(digit) end
    self.exact[text] = self.exact[text] or {}
    insert(self.exact[text], row.local_bsz, row.step_time, row.sync_time)
    add_mean(self.by, #text, replicas, row.local_bsz, row.step_time, row.sync_time)
    least, most = math.min(least, row.local_bsz), math.max(most, row.local_bsz)
  end
  for _, row in ipairs(table_file.read(folder .. "/scalability.csv", { "num_nodes", "num_replicas", "local_bsz",
    "step_time", "sync_time" })) do
    add_mean(self.by, row.num_nodes, row.num_replicas, row.local_bsz, row.step_time, row.sync_time)
  end
  for _, curve in pairs(self.exact) do sort(curve) end
  means(self.by)
  self.nodes, self.replicas = keys(self.by), {}
  for nodes, of_nodes in pairs(self.by) do self.replicas[nodes] = keys(of_nodes) end
  return least, most
end

local function read_learning(self, folder)
  self.batches, self.learning = {}, {}
  for _, name in ipairs(core.list_folder(folder)) do
    local batch = tonumber(name:match "^validation%-(%d+)%.csv$")
    if batch then
      self.batches[#self.batches + 1] = batch
      self.learning[batch] = table_file.read(folder .. "/" .. name,
        { "progress", "iteration", "grad_sqr", "grad_var" })
    end
  end
  if not self.batches[1] then error(folder .. " holds no validation-N.csv", 0) end
  table.sort(self.batches)
end

--- folder -> a profile. given: { epochs = N (default: all that were measured), max_local = N, max_replicas = N,
-- batch = N (a batch that nobody changes) }
function profile.read(folder, given)
  local self = setmetatable({ name = folder:match "[^/]+$", max_replicas = given.max_replicas, batch = given.batch },
    profile)
  local least, most = read_steps(self, folder)
  read_learning(self, folder)
  self.epochs = given.epochs
  for _, rows in pairs(self.learning) do self.epochs = math.min(self.epochs or #rows, #rows) end
  self.limits = { first_batch = self.batches[1], max_batch = self.batches[#self.batches], min_local = least,
    max_local = given.max_local or most }
  self.known = {}
  return self
end

-- ---------------------------------------------------------------- seconds

-- Neighbours of x in an ordered list, and the weight of the upper one. What lies outside takes the nearest.
local function bracket(list, x)
  local i = 1
  while i < #list and list[i + 1] <= x do i = i + 1 end
  local low, high = list[i], list[i + 1] or list[i]
  if x <= low or low == high then return low, low, 0 end
  return low, high, (x - low) / (high - low)
end

local function of_nodes(self, nodes, per_node, b)
  local low, high, w = bracket(self.replicas[nodes], per_node * nodes)
  local step, sync = at(self.by[nodes][low], b)
  if w == 0 then return step, sync end
  local more_step, more_sync = at(self.by[nodes][high], b)
  return step + w * (more_step - step), sync + w * (more_sync - sync)
end

local function measured(self, counts, b)
  local curve = self.exact[rotated(counts)]
  if curve then return at(curve, b) end
  local replicas = 0
  for _, n in ipairs(counts) do replicas = replicas + n end
  local low, high, w = bracket(self.nodes, #counts)
  local per_node = replicas / #counts
  local step, sync = of_nodes(self, low, per_node, b)
  if w == 0 then return step, sync end
  local more_step, more_sync = of_nodes(self, high, per_node, b)
  return step + w * (more_step - step), sync + w * (more_sync - sync)
end

--- Seconds of a step with one gradient of b samples on each replica, and of these the seconds of the sum over replicas.
-- counts: replicas on each node, at least 1.
function profile:step(counts, b)
  local key = table.concat(counts) .. ":" .. b
  local found = self.known[key]
  if not found then
    found = { measured(self, counts, b) }
    self.known[key] = found
  end
  return found[1], found[2]
end

-- ---------------------------------------------------------------- learning

-- A column of learning at a batch, linear between the measured ones.
local function between(self, batch, epoch, column)
  local low, high, w = bracket(self.batches, batch)
  local value = self.learning[low][epoch][column]
  return w == 0 and value or value + w * (self.learning[high][epoch][column] - value)
end

--- The squared norm and the variance of the gradient in an epoch, from 1.
function profile:gradient(batch, epoch)
  return between(self, batch, epoch, "grad_sqr"), between(self, batch, epoch, "grad_var")
end

--- Steps that so many epochs take with a batch.
function profile:steps(batch, epochs) return epochs == 0 and 0 or between(self, batch, epochs, "iteration") end

--- Progress at the end of so many epochs: steps of the first batch that are worth as much.
function profile:progress(epochs)
  if epochs == 0 then return 0 end
  local least = math.huge
  for _, rows in pairs(self.learning) do least = math.min(least, rows[epochs].progress) end
  return least
end

return profile
