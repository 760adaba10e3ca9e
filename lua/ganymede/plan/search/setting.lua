--- A setting of a search: one way to share a step over ranks, as a plain table, and what a recipe must say for it.
--
--   data, expert                the sizes of these axes (expert: an inner part of data)
--   tensor                      { size, mode, depth, sequence }, size 1: none
--   sequence                    { size, mode }
--   pipeline                    { size, schedule, chunks, split }; size 1: none
--   micro                       micro-batches of a batch
--   zero                        the stage
--   recompute                   "none", "attention", "block"
--   accumulation                batches of a step
--   order                       the axes from the outermost to the innermost; nil: as usual
-- zero and recompute may be "own": what the recipe says, which the search does not touch. The trap: the samples of a
-- step are those of the recipe; accumulation divides them into batches, and data.batch_size follows.
-- @module ganymede.plan.search.setting
local options = require "ganymede.base.options"

local setting = {}

local in_one_line = options.literal

--- Returns the table `parallel` of a setting. more: what else it has (transport and the like), by path.
function setting.parallel(s, more)
  local out = { data = s.data }
  if s.pipeline.size > 1 then
    out.pipeline = { size = s.pipeline.size, chunks = s.pipeline.chunks > 1 and s.pipeline.chunks or nil,
      split = s.pipeline.split ~= "parameters" and s.pipeline.split or nil }
  end
  if s.sequence.size > 1 then out.sequence = { size = s.sequence.size, mode = s.sequence.mode } end
  if s.expert > 1 then out.expert = s.expert end
  if s.tensor.size > 1 then
    out.tensor = { size = s.tensor.size, mode = s.tensor.mode, depth = s.tensor.depth,
      sequence = s.tensor.sequence or nil }
  end
  out.order = s.order
  for path, value in pairs(more or {}) do
    local axis, key = path:match "^([^.]+)%.(.+)$"
    if not axis then
      out[path] = value
    elseif out[axis] then
      if type(out[axis]) ~= "table" then out[axis] = { size = out[axis] } end
      out[axis][key] = value
    end
  end
  return out
end

-- The setting `zero` of a stage. stored: what is kept about the parameters that stage 3 divides.
local function zero_of(stage, stored)
  if stage ~= 3 or not next(stored or {}) then return stage > 0 and stage or nil end
  local out = { stage = stage }
  for key, value in pairs(stored) do out[key] = value end
  return out
end

-- The rows of keys_of that say the schedule. own: the rest of what the recipe says of it stays.
local function schedule_rows(s, own)
  local order = s.pipeline.size > 1 and s.pipeline.schedule or nil
  local kind = order and "PipelineSchedule" or "NonPipelineSchedule"
  if own then return { "schedule.type", kind }, { "schedule.order", order } end
  return { "schedule", order and { type = kind, order = order } or nil }
end

-- The keys of a recipe in the order in which they are said, with their values; nil: the recipe must not have the key.
local function keys_of(s, facts)
  local rows = { { "parallel", setting.parallel(s, facts.more) } }
  rows[2] = { "num_microbatches", (s.pipeline.size > 1 or s.micro > 1) and s.micro or nil }
  rows[3], rows[4] = schedule_rows(s, facts.own and facts.own.schedule)
  if s.zero ~= "own" then rows[#rows + 1] = { "zero", zero_of(s.zero, facts.stored) } end
  if s.recompute ~= "own" then rows[#rows + 1] = { "recompute", s.recompute ~= "none" and s.recompute or nil } end
  rows[#rows + 1] = { "gradient_accumulation", s.accumulation }
  rows[#rows + 1] = { "data.batch_size", facts.samples / s.accumulation }
  return rows
end

--- Returns the list of "key=value" that makes a recipe this setting.
function setting.sets(s, facts)
  local out = {}
  for i, row in ipairs(keys_of(s, facts)) do
    local value = row[2]
    out[i] = row[1] .. "=" .. (type(value) == "table" and in_one_line(value) or tostring(value))
  end
  return out
end

--- Returns the setting as lines of Lua for a recipe.
function setting.lua(s, facts)
  local lines = {}
  for _, row in ipairs(keys_of(s, facts)) do
    local key, value = row[1], row[2]
    local usual = key == "gradient_accumulation" and value == facts.accumulation
      or key == "data.batch_size" and s.accumulation == facts.accumulation
    if key == "data.batch_size" and not usual then
      lines[#lines + 1] = ("data = { batch_size = %d, ... },"):format(value)
    elseif key == "schedule.type" then
      local order = s.pipeline.size > 1 and (" order = %q,"):format(s.pipeline.schedule) or ""
      lines[#lines + 1] = ("schedule = { type = %q,%s ... },"):format(value, order)
    elseif value ~= nil and not usual and key ~= "schedule.order" then
      lines[#lines + 1] = ("%s = %s,"):format(key, type(value) == "string" and ("%q"):format(value)
        or type(value) == "table" and in_one_line(value) or tostring(value))
    end
  end
  return lines
end

local function add(words, on, fmt, ...)
  if on then words[#words + 1] = fmt:format(...) end
end

--- Returns the setting in words: "data 2, tensor 2 (2d), zero 1".
function setting.words(s, facts)
  local w, t, p = {}, s.tensor, s.pipeline
  add(w, s.data > 1, "data %d", s.data)
  add(w, s.expert > 1, "expert %d", s.expert)
  add(w, t.size > 1, "tensor %d (%s%s%s)", t.size, t.mode or "", t.depth and (", depth %d"):format(t.depth) or "",
    t.sequence and ", sequence" or "")
  add(w, s.sequence.size > 1, "sequence %d (%s)", s.sequence.size, s.sequence.mode or "")
  add(w, p.size > 1, "pipeline %d (%s%s%s)", p.size, tostring(p.schedule),
    p.chunks > 1 and ", chunks " .. p.chunks or "",
    p.split ~= "parameters" and ", split " .. in_one_line(p.split) or "")
  add(w, s.micro > 1, "%d micro-batches", s.micro)
  add(w, s.zero ~= "own" and s.zero > 0, "zero %s", tostring(s.zero))
  add(w, s.recompute ~= "own" and s.recompute ~= "none", "recompute %s", s.recompute)
  add(w, s.accumulation ~= facts.accumulation, "accumulation %d", s.accumulation)
  add(w, s.order, "order %s", table.concat(s.order or {}, "."))
  return #w > 0 and table.concat(w, ", ") or "one rank"
end

--- Returns how many things a setting has that the plainest one lacks: of two that take equal time, the simpler one
-- wins.
function setting.complexity(s)
  local n = 0
  for _, has in ipairs { s.expert > 1, s.tensor.size > 1, s.tensor.sequence or false, s.sequence.size > 1,
    s.pipeline.size > 1, s.pipeline.size > 1, s.pipeline.chunks > 1, s.pipeline.split ~= "parameters",
    s.recompute ~= "none" and s.recompute ~= "own", s.order ~= nil, s.data < 1 } do
    n = n + (has and 1 or 0)
  end
  if s.pipeline.size > 1 and s.pipeline.schedule ~= "1f1b" then n = n + 1 end
  return n + (s.zero ~= "own" and s.zero or 0) + math.log(s.accumulation) / 64
end

--- Whether a comes before b, of settings that take equal time: the simpler one, or else the one that space lists
-- first. a, b: with `complexity` and `number` (ganymede.plan.search.space).
function setting.before(a, b)
  if a.complexity ~= b.complexity then return a.complexity < b.complexity end
  return a.number < b.number
end

--- Returns the ranks over which the samples of a piece of a batch are shared.
function setting.batch_ways(s)
  local t = s.tensor
  if t.size == 1 or t.mode == "1d" then return s.data end
  if t.mode == "2d" then return s.data * math.floor(math.sqrt(t.size) + 0.5) end
  if t.mode == "2.5d" then return s.data * t.depth * math.floor(math.sqrt(t.size / t.depth) + 0.5) end
  return s.data * math.floor(t.size ^ (1 / 3) + 0.5) ^ 2
end

--- Returns over how many ranks a tensor mode cuts weights, and over how many the width of an activation (and heads).
function setting.weight_ways(s)
  local t = s.tensor
  if t.size == 1 then return 1, 1 end
  if t.mode == "1d" then return t.size, t.size end
  if t.mode == "3d" then return t.size, math.floor(t.size ^ (1 / 3) + 0.5) end
  local grid = t.size / (t.depth or 1)
  return grid, math.floor(math.sqrt(grid) + 0.5)
end

return setting
