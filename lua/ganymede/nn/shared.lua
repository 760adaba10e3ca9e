--- Shares modules or parameters between the stages of a pipeline that a recipe builds by itself.
--
--     local tie = nn.PipelineSharedModuleWrapper { 0, -1 }           -- coordinates along the pipeline; -1 is the last
--     if first then tie:register_module(self.tokens) end             -- on stage 0
--     if last then tie:register_module(self.head, "tokens") end      -- on the last: known as "tokens" in checkpoints
--
-- At gm.initialize the tensors on all stages become those of the lowest stage. Before each update gradients are summed
-- over the stages. Norms count them once. If a stage registers two modules with one wrapper, they are tied there.
-- A wrapper stands for one module or one parameter: each of its stages registers the same number of parameters, of the
-- same shapes. The last argument gives a parameter the name, and so the initial numbers, that it has on the first of
-- the stages; without it the parameter has its own name.
-- The trap: all stages must make the same wrappers in the same order, also stages that register nothing.
-- @module ganymede.nn.shared
local context = require "ganymede.job.context"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"

local Wrapper = {}
Wrapper.__index = Wrapper

-- Returns the coordinates in ascending order, each once; negative ones count from the end.
local function coordinates(list, size)
  local set, out = {}, {}
  for i, rank in ipairs(list) do
    if type(rank) ~= "number" or rank % 1 ~= 0 or rank >= size or rank < -size then
      error(("PipelineSharedModuleWrapper: entry %d must be a stage, 0 to %d, or -1 to %d from the end; got %s"):format(
        i, size - 1, -size, options.literal(rank)), 3)
    end
    set[rank % size] = true
  end
  for rank in pairs(set) do out[#out + 1] = rank end
  table.sort(out)
  return out
end

local made = 0 -- the number of wrappers so far; stages make theirs in the same order, so equal numbers belong together

local function new(_, list)
  if type(list) ~= "table" or #list == 0 then
    error("PipelineSharedModuleWrapper takes a list of stages, such as { 0, -1 }", 2)
  end
  local now = context.current()
  local self = setmetatable({ stages = coordinates(list, now.plan.pipeline), entries = {} }, Wrapper)
  made = made + 1
  self.number = made
  self.rank = now.coordinate.pipeline or 0
  for _, stage in ipairs(self.stages) do self.is_member = self.is_member or stage == self.rank end
  return self
end

local function check(self, m)
  if not module.is_module(m) then error("PipelineSharedModuleWrapper takes a module; got " .. tostring(m), 3) end
  if not self.is_member then
    error(("PipelineSharedModuleWrapper: stage %d is not one of its stages { %s }"):format(self.rank,
      table.concat(self.stages, ", ")), 3)
  end
end

local function same_shape(a, b) return table.concat(a, ",") == table.concat(b, ",") end

-- Registers a declared parameter as number `place` of this wrapper.
local function register(self, place, declared, first_name)
  local earlier = self.entries[place]
  if not earlier then
    self.entries[place] = declared
    declared.entry.alias = first_name
    declared.entry.shared_by, declared.entry.shared_at = self.stages, { self.number, place }
    return
  end
  if not same_shape(earlier.shape, declared.shape) then
    error(("PipelineSharedModuleWrapper: '%s' (%s) cannot be tied to '%s' (%s)"):format(declared.name,
      table.concat(declared.shape, ", "), earlier.name, table.concat(earlier.shape, ", ")), 3)
  end
  declared.module:tie(declared.entry.name, earlier.module, earlier.entry.name)
end

-- Checks that a further registration on this stage has as many parameters as the first.
local function places(self, n)
  if self.count and self.count ~= n then
    error(("PipelineSharedModuleWrapper: the number of parameters must be that of the first module, %d; got %d"):format(
      self.count, n), 3)
  end
  self.count = n
end

--- Registers all parameters of a module. first_path: its path on the lowest of the stages, if that differs.
function Wrapper:register_module(m, first_path)
  check(self, m)
  local list = m:declared()
  places(self, #list)
  for i, p in ipairs(list) do register(self, i, p, first_path and first_path .. "." .. p.name) end
  return m
end

--- Registers one parameter of a module. first_name: its name on the lowest of the stages ("tokens.weight").
function Wrapper:register_parameter(m, name, first_name)
  check(self, m)
  for _, p in ipairs(m:declared()) do
    if p.name == name then
      places(self, 1)
      return register(self, 1, p, first_name)
    end
  end
  error(("PipelineSharedModuleWrapper: %s has no parameter '%s'"):format(m:describe(), tostring(name)), 2)
end

return setmetatable(Wrapper, { __call = new })
