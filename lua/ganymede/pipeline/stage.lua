--- What one rank holds of a model in a pipeline, and how it runs it.
--
--     local stage = stage.split(model, { stages = 4, rank = 1, parts = parts, split = "parameters" })
--     local tensors, text = stage:pack(stage:forward(1, x))            -- chunk 1; what the part behind unpacks
--
-- `parts[rank + 1][chunk]` is the schedule's (ganymede.schedules.pipeline): which part of the model each rank holds as
-- which of its chunks. A Stage has: model, chunks, parts (of this rank, by chunk), n_parts, bounds (first and last
-- section of each part), names (of the sections), rank (coordinate along the pipeline, from 0), stages.
-- What other stages hold is absent from the model (Module:set_present); a parameter that a module here is tied to is
-- held although its module is absent, and shared(): its gradients are to be summed over the stages that hold it.
-- The trap: split the model before anything touches its weights, or all of it is allocated first.
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

--- The Stage that a model was made into, or nil.
function M.of(model) return module.is_module(model) and model._module.stage or nil end

-- ---------------------------------------------------------------- a model that is cut

-- rank_of[part], from 0
local function owners(parts)
  local rank_of = {}
  for part, owner in ipairs(geometry.owners { parts = parts }) do rank_of[part] = owner.rank end
  return rank_of
end

local function weights_of(model, list, split)
  if split == "parameters" then return sections.weights(list) end
  local weights = type(split) == "function" and split(model, list) or split.weights
  if type(weights) ~= "table" or #weights ~= #list then
    error(("split: %s weights for the %d sections of %s"):format(type(weights) == "table" and #weights or "no",
      #list, model.name), 0)
  end
  return weights
end

--- Cuts a list of sections -> bounds { first, last } of each of n parts. split: "uniform"; "parameters" (balanced by
-- elements); { weights = a number a section } or a function(model, list) -> weights, balanced by these; sizes or first
-- sections as partition.listed takes them. Measured FLOPs are such weights: ganymede.plan measures them.
function M.bounds(model, list, n, split)
  split = split or "parameters"
  if split == "uniform" then return partition.uniform(#list, n) end
  if type(split) == "table" and not split.weights then return partition.listed(split, #list, n) end
  if split ~= "parameters" and type(split) == "string" then
    error(("split = \"%s\": weights must be measured first, and are given as { weights = list }"):format(split), 0)
  end
  return partition.balanced(weights_of(model, list, split), n)
end

-- Marks what each stage holds; a section's stage is its part's.
local function mark(list, bounds, rank_of, rank)
  for part, bound in ipairs(bounds) do
    for i = bound[1], bound[2] do
      for _, m in ipairs(list[i].modules) do m:set_present(rank_of[part] == rank, "stage " .. rank_of[part]) end
    end
  end
end

-- stage_of[module] for all that sections list, and below.
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

--- Makes a model this rank's stage: opt = { stages, rank (coordinate along the pipeline), parts (the schedule's, of all
-- ranks), split (see bounds; default "parameters") } -> Stage. Raises why it cannot be cut. Pure but for the marks: no
-- communication, no allocation.
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

--- A model on one rank, not cut: one part, which is the model.
function M.whole(model)
  local list = sections.of(model)
  return attach { model = model, parts = { 1 }, n_parts = 1, bounds = { { 1, list and #list or 1 } }, rank = 0,
    stages = 1, names = list and names_of(list) or { model.name }, own = { model } }
end

-- ---------------------------------------------------------------- parts that a recipe made

-- Several chunks as one tree. Their names stay their own.
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

--- Makes a stage of what a recipe built for this rank: a module, or a list with one for each chunk. opt: stages, rank,
-- parts as for split; default: those of the live context, chunk after chunk along the ranks.
function M.own(chunks, opt)
  opt = opt or {}
  local list = module.is_module(chunks) and { chunks } or chunks
  if #list == 0 then error("a stage needs a module for each of its chunks; got none", 0) end
  local now = context.current()
  local stages, rank = opt.stages or now.plan.pipeline, opt.rank or now.coordinate.pipeline or 0
  local parts = opt.parts or geometry.looped(stages, #list)
  if #parts[rank + 1] ~= #list then
    error(("the schedule has %d chunks a stage; %d modules are given"):format(#parts[rank + 1], #list), 0)
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

--- Does this rank hold the part that reads the input?
function Stage:holds_first() return self:holds(1) end
--- And the one that gives the output?
function Stage:holds_last() return self:holds(self.n_parts) end

local function run_part(self, part, ...)
  local bound = self.bounds[part]
  return sections.run((self.model:section_list()), bound[1], bound[2], part < self.n_parts, ...)
end

--- Runs a chunk (from 1): what the part before returned (the first: the input) -> what the part behind gets, or the
-- model's output. As a call of the model: under its path, in a scope of its own.
function Stage:forward(chunk, ...)
  local part = self.parts[chunk]
  if not part then error(("this stage has %d chunks; there is no chunk %s"):format(self.chunks, tostring(chunk)), 2) end
  if self.own then return self.own[chunk](...) end
  return module.call_as(self.model, run_part, self, part, ...)
end

--- Results of a forward -> list of their tensors, and a text from which stage.unpack(list, text) makes them again. See
-- ganymede.pipeline.packing.
function Stage:pack(...) return packing.pack(...) end -- luacheck: ignore self

local function add_ties(stages, p, stage_of)
  for _, tie in ipairs(p.ties or {}) do
    if tie.entry.tied then
      stages[stage_of[tie.module]] = true
      add_ties(stages, tie.entry, stage_of)
    end
  end
end

-- Coordinates of the stages that hold a declared parameter, ascending.
local function holders(p, stage_of)
  local set, list = { [stage_of[p.module]] = true }, {}
  add_ties(set, p.entry, stage_of)
  for rank in pairs(set) do list[#list + 1] = rank end
  table.sort(list)
  return list
end

-- Trees that recipes made may declare in any order; wrappers are made in one.
local function in_order_of_wrappers(a, b)
  local p, q = a.at, b.at
  if p[1] ~= q[1] then return p[1] < q[1] end
  return p[2] < q[2]
end

--- Parameters here that other stages hold too: list of { name, tensor, stages (their coordinates, ascending),
-- broadcast }, in an order that is the same on all of these stages. broadcast: tied by hand
-- (PipelineSharedModuleWrapper), so to be made equal to the lowest stage's at the beginning.
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
