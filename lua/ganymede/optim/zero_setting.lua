--- The setting `zero`: its keys, other spellings of it, and what is wrong with one.
--
--     zero = 2                                           -- or { stage = 2 }
--     zero = { stage = 3, size = 8, whole_below = 0, keep = "512M", ahead = "128M" }
--
-- ganymede.optim.zero applies it. The trap: zero.size is a part of the mesh, and becomes parallel.data.shard.
-- @module ganymede.optim.zero_setting
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"

local zero = {}

local function bytes_option(doc) return { type = { "integer", "string" }, optional = true, min = 0, doc = doc } end

zero.fields = {
  stage = { type = "integer", min = 0, max = 3, default = 0,
    doc = "what is divided over the data ranks; 0: nothing, 1: optimizer states, 2: also gradients between the batches "
      .. "of a step, 3: also parameters" },
  size = { type = "integer", min = 1, max = 2 ^ 20, optional = true,
    doc = "the number of ranks that divide, an inner part of the data ranks, so that parts are gathered from "
      .. "neighbours "
      .. "only; the other ranks hold copies; default: all data ranks" },
  whole_below = { type = "integer", min = 0, max = 2 ^ 40, default = 2 ^ 16,
    doc = "stage 3: the number of elements below which a parameter stays whole on every rank, because gathering it "
      .. "costs more than it saves" },
  keep = bytes_option("stage 3: the bytes (a number, or \"64M\") of gathered parameters that a rank keeps for their "
    .. "next use; default: twice the largest parameter"),
  ahead = bytes_option("stage 3: the bytes of the next parameters that a rank gathers while it computes; default: the "
    .. "largest parameter"),
  type = { type = "string", optional = true, doc = "Colossal-AI's spelling of zero.stage" },
  level = { type = "integer", min = 0, max = 3, optional = true, doc = "another spelling of zero.stage" },
}

-- Colossal-AI's spellings of the stage: { level = 2 } and { type = "ZeroRedundancyOptimizer_Level_2" } -> { stage = 2 }
local function take(given)
  if type(given) ~= "table" or given.stage ~= nil then return given end
  local out = {}
  for key, value in pairs(given) do out[key] = value end
  local level = type(out.type) == "string" and tonumber(out.type:match "^ZeroRedundancyOptimizer_Level_(%d)$")
  if level and (out.level or level) == level then out.level, out.type = level, nil end
  if options.problem(zero.fields.level, out.level) then return given end -- it is refused under its own name
  out.stage, out.level = out.level, nil
  return out
end
zero.take = take

local function bytes_problem(name, value)
  if type(value) ~= "string" then return nil end
  local bytes, problem = machine.bytes_of(value)
  return not bytes and ("%s: %s"):format(name, problem) or nil
end

--- Copies zero.size of a config into parallel.data.shard, from which the mesh is made. Two different numbers are
-- refused later.
function zero.place(config)
  local given, ranks = config.zero, config.parallel
  local size = type(given) == "table" and given.size
  if not size or ranks ~= nil and type(ranks) ~= "table" then return end
  local data = ranks and ranks.data
  if type(data) ~= "table" then data = { size = data } end
  if data.shard ~= nil then return end
  local all, own = {}, { shard = size }
  for key, value in pairs(ranks or {}) do all[key] = value end
  for key, value in pairs(data) do own[key] = value end
  all.data = own
  config.parallel = all
end

local function size_problem(given, config)
  if not given.size then return nil end
  if (given.stage or 0) == 0 then return "has a size and no stage; give both, as in { stage = 1, size = 4 }" end
  local data = config and type(config.parallel) == "table" and config.parallel.data
  local shard = type(data) == "table" and data.shard or given.size
  if shard == given.size then return nil end
  return ("has size %d, and parallel.data.shard is %s; give one of them"):format(given.size, tostring(shard))
end

-- What is said of gathered parameters has a meaning in stage 3 alone. The stored settings of a run name the defaults,
-- so these are refused nowhere.
local function unused_problem(given)
  if given.stage == 3 then return nil end
  for _, name in ipairs { "whole_below", "keep", "ahead" } do
    if given[name] ~= nil and given[name] ~= zero.fields[name].default then
      return ("has %s, which is about parameters that stage 3 divides, and its stage is %s; give stage = 3, or leave "
        .. "%s out"):format(name, tostring(given.stage or 0), name)
    end
  end
end

--- Returns why a setting `zero` of a config is refused; nil: it is not.
function zero.problem(given, config)
  if type(given) ~= "table" then return nil end
  if given.type or given.level then
    return "has more than one key for the stage; write { stage = 1 } or { stage = 2 }"
  end
  return size_problem(given, config) or unused_problem(given) or bytes_problem("keep", given.keep)
    or bytes_problem("ahead", given.ahead)
end

local function bytes_of(value)
  if type(value) == "string" then return machine.bytes_of(value) end
  return value or -1
end

--- Returns { stage, size, whole_below, keep, ahead } for a setting `zero` or nil; keep and ahead in bytes, -1: the
-- default.
function zero.options(given)
  if given == nil or type(given) == "number" then given = { stage = given or 0 } end
  given = take(given)
  local problem = zero.problem(given)
  if problem then error("zero " .. problem, 0) end
  local opt = options.check("zero", zero.fields, given, 2)
  opt.keep, opt.ahead = bytes_of(opt.keep), bytes_of(opt.ahead)
  return opt
end

return zero
