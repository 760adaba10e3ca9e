--- A Stage is what one rank holds of a model in a pipeline; it runs its parts.
--
--     local stage = stage.split(model, { stages = 4, rank = 1, parts = parts, split = "parameters" })
--     local tensors, text = stage:pack(stage:forward(1, x))            -- chunk 1; the next part unpacks them
--
-- The schedule has `parts[rank + 1][chunk]` (ganymede.schedules.pipeline): the part of the model that each rank holds
-- as each chunk. A Stage has the fields model, chunks, parts (of this rank, by chunk), n_parts, bounds (first and last
-- section of each part), names (of the sections), rank (coordinate along the pipeline, from 0), stages.
-- Modules of other stages are absent from the model (Module:set_present). If a module here is tied to a parameter of an
-- absent one, this rank still holds that parameter. shared() lists it, because its gradients must be summed over the
-- stages that hold it.
-- The trap: split the model before anything reads its weights; otherwise all of it is allocated first.
-- @module ganymede.pipeline.stage
local context = require "ganymede.job.context"
local geometry = require "ganymede.job.geometry"
local module = require "ganymede.nn.module"
local packing = require "ganymede.pipeline.packing"
local partition = require "ganymede.pipeline.partition"
local sections = require "ganymede.nn.sections"

local M = { unpack = packing.unpack }

local Stage = {}
Stage.__index = Stage
M.Stage = Stage

local function attach(fields)
  local stage = setmetatable(fields, Stage)
  stage.chunks = #stage.parts
  stage.model._module.stage = stage
  return stage
end

--- Returns the Stage of a model, or nil.
function M.of(model) return module.is_module(model) and model._module.stage or nil end

-- ---------------------------------------------------------------- a model that is cut

-- Returns rank_of[part], from 0.
local function owners(parts)
  local rank_of = {}
  for part, owner in ipairs(geometry.owners { parts = parts }) do rank_of[part] = owner.rank end
  return rank_of
end

local function weights_of(model, list, split)
  if split == "parameters" then return sections.weights(list) end
  local weights = type(split) == "function" and split(model, list) or split.weights
  if type(weights) ~= "table" or #weights ~= #list then
    error(("split: there are %s weights for the %d sections of %s; give one for each"):format(type(weights) == "table"
      and #weights or "no", #list, model.name), 0)
  end
  return weights
end

--- Cuts a list of sections into n parts and returns their bounds { first, last }. split: "uniform"; "parameters"
-- (balanced by elements); { weights = list } or a function(model, list) that returns weights, one number for each
-- section (balanced by these); or sizes or first sections as partition.listed takes them. ganymede.pipeline.flops
-- counts FLOPs as such weights.
function M.bounds(model, list, n, split)
  split = split or "parameters"
  if split == "uniform" then return partition.uniform(#list, n) end
  if type(split) == "table" and not split.weights then return partition.listed(split, #list, n) end
  if split ~= "parameters" and type(split) == "string" then
    error(("split = \"%s\": measure the weights first and give them as { weights = list }"):format(split), 0)
  end
  return partition.balanced(weights_of(model, list, split), n)
end

-- Marks the modules that each stage holds; the stage of a section is that of its part.
local function mark(list, bounds, rank_of, rank)
  for part, bound in ipairs(bounds) do
    for i = bound[1], bound[2] do
      for _, m in ipairs(list[i].modules) do m:set_present(rank_of[part] == rank, "stage " .. rank_of[part]) end
    end
  end
end

-- Returns stage_of[module] for all modules that sections list, and those below them.
local function stages_of_modules(list, bounds, rank_of)
  local stage_of = {}
  for part, bound in ipairs(bounds) do
    for i = bound[1], bound[2] do
      for _, listed in ipairs(list[i].modules) do
        for _, m in ipairs(listed:modules()) do stage_of[m] = rank_of[part] end
      end
    end
  end
  return stage_of
end

local function names_of(list)
  local names = {}
  for i = 1, #list do names[i] = sections.name(list, i) end
  return names
end

local function check_ties(model)
  for _, p in ipairs(model:declared()) do
    if p.entry.shared_by then
      error(("%s of %s is registered with a PipelineSharedModuleWrapper, which is for parts that a recipe builds; in "
        .. "a whole model tie it (Module:tie)"):format(p.name, model.name), 0)
    end
  end
end

--- Cuts a model and returns this rank's Stage. opt = { stages, rank (coordinate along the pipeline), parts (those of
-- the schedule, of all ranks), split (see bounds; default "parameters") }. If the model cannot be cut, it raises an
-- error with the reason. It marks modules as absent; it does not communicate and does not allocate.
function M.split(model, opt)
  local list, reason = sections.of(model)
  if not list then error(("%s cannot be cut into parts: %s"):format(model.name, reason), 0) end
  check_ties(model)
  local rank_of = owners(opt.parts)
  local bounds = M.bounds(model, list, #rank_of, opt.split)
  mark(list, bounds, rank_of, opt.rank)
  return attach { model = model, parts = opt.parts[opt.rank + 1], n_parts = #rank_of, bounds = bounds, rank = opt.rank,
    stages = opt.stages, names = names_of(list), stage_of = stages_of_modules(list, bounds, rank_of) }
end

--- Returns the Stage of a model that is not cut: it has one part, which is the model.
function M.whole(model)
  local list = sections.of(model)
  return attach { model = model, parts = { 1 }, n_parts = 1, bounds = { { 1, list and #list or 1 } }, rank = 0,
    stages = 1, names = list and names_of(list) or { model.name }, own = { model } }
end

-- ---------------------------------------------------------------- parts that a recipe made

-- The class of a tree of several chunks, whose names do not change.
local Chunks = module.class("PipelineChunks", nil, false)

local function check_names(model)
  local seen = {}
  for _, p in ipairs(model:declared()) do
    if seen[p.name] then
      error(("two chunks of this stage declare a parameter '%s'; build each with the names that it has in the whole "
        .. "model (an nn.ModuleList may leave positions out)"):format(p.name), 0)
    end
    seen[p.name] = true
  end
end

local function one_tree(list)
  if #list == 1 then return list[1] end
  local model = Chunks {}
  for i, chunk in ipairs(list) do module.attach_unnamed(model, i, chunk) end
  check_names(model)
  return model
end

--- Makes a Stage of what a recipe has built for this rank: a module, or a list with one for each chunk. opt: stages,
-- rank and parts, as for split; default: those of the live context, chunk after chunk along the ranks.
function M.own(chunks, opt)
  opt = opt or {}
  local list = module.is_module(chunks) and { chunks } or chunks
  if #list == 0 then error("a stage needs a module for each of its chunks; got none", 0) end
  local now = context.current()
  local stages, rank = opt.stages or now.plan.pipeline, opt.rank or now.coordinate.pipeline or 0
  local parts = opt.parts or geometry.looped(stages, #list)
  if #parts[rank + 1] ~= #list then
    error(("the schedule has %d chunks on each stage, and %d modules are given"):format(#parts[rank + 1], #list), 0)
  end
  local n_parts, bounds, names = #owners(parts), {}, {}
  for part = 1, n_parts do bounds[part], names[part] = { part, part }, "part " .. part end
  for i, chunk in ipairs(list) do names[parts[rank + 1][i]] = chunk.name end
  return attach { model = one_tree(list), parts = parts[rank + 1], n_parts = n_parts, bounds = bounds, rank = rank,
    stages = stages, names = names, own = list }
end

-- ---------------------------------------------------------------- asking and running

function Stage:holds(part)
  for _, held in ipairs(self.parts) do
    if held == part then return true end
  end
  return false
end

--- Returns whether this rank holds the part that reads the input.
function Stage:holds_first() return self:holds(1) end
--- Returns whether this rank holds the part that returns the output.
function Stage:holds_last() return self:holds(self.n_parts) end

local function run_part(self, part, ...)
  local bound = self.bounds[part]
  return sections.run((self.model:section_list()), bound[1], bound[2], part < self.n_parts, ...)
end

--- Runs a chunk (from 1) on what the part before returned (the first part: on the input), and returns what the next
-- part receives, or the output of the model. It runs like a call of the model: under its path, in a scope of its own.
function Stage:forward(chunk, ...)
  local part = self.parts[chunk]
  if not part then error(("this stage has %d chunks; there is no chunk %s"):format(self.chunks, tostring(chunk)), 2) end
  if self.own then return self.own[chunk](...) end
  return module.call_as(self.model, run_part, self, part, ...)
end

--- Returns the list of the tensors in the results of a forward, and a text; stage.unpack(list, text) turns them back
-- into the results (ganymede.pipeline.packing).
function Stage:pack(...) return packing.pack(...) end -- luacheck: ignore self

local function add_ties(stages, p, stage_of)
  for _, tie in ipairs(p.ties or {}) do
    if tie.entry.tied then
      stages[stage_of[tie.module]] = true
      add_ties(stages, tie.entry, stage_of)
    end
  end
end

-- The coordinates of the stages that hold a declared parameter, in ascending order.
local function holders(p, stage_of)
  local set, list = { [stage_of[p.module]] = true }, {}
  add_ties(set, p.entry, stage_of)
  for rank in pairs(set) do list[#list + 1] = rank end
  table.sort(list)
  return list
end

-- Orders parameters by their wrappers, which all stages make in one order; trees of recipes may declare in any order.
local function in_order_of_wrappers(a, b)
  local p, q = a.at, b.at
  if p[1] ~= q[1] then return p[1] < q[1] end
  return p[2] < q[2]
end

--- Returns the parameters here that other stages also hold: a list of { name, tensor, stages (their coordinates,
-- ascending), broadcast }, in an order that is the same on all of these stages. broadcast: a
-- PipelineSharedModuleWrapper shares it, so it must first become equal to that of the lowest stage.
function Stage:shared()
  local out = {}
  if self.stages == 1 then return out end
  self.model:materialize()
  for _, p in ipairs(self.model:declared()) do
    local by_hand = p.entry.shared_by
    local stages = by_hand or self.stage_of and self.stage_of[p.module] and holders(p, self.stage_of) or {}
    if p.present and not p.tied and #stages > 1 then
      out[#out + 1] = { name = p.name, tensor = p.entry.tensor, stages = stages, broadcast = by_hand and true,
                        at = p.entry.shared_at }
    end
  end
  if not self.stage_of then table.sort(out, in_order_of_wrappers) end
  return out
end

return M
