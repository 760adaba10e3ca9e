--- The settings that a sweep tries: parsed from --set, put together as a grid or drawn at random.
--
--     local space = space.parse { "optimizer.lr=1e-3,3e-4", "model.hidden={32},{64,64}", "epochs=2" }
--     space.fixed                      -- { "epochs=2" }: one value, that of every run
--     space.axes                       -- { { key = "optimizer.lr", values = { "1e-3", "3e-4" } }, ... }
--     space.grid(axes)                 -- list of settings; a setting is a list of texts, one of each axis
--     space.random(axes, 20, seed)     -- 20 draws
--
-- Commas divide values where no bracket or quote is open, so a value is what --set of `run` takes. LOW..HIGH is a range
-- of numbers, from which draws are uniform; log:LOW..HIGH draws uniformly in the logarithm. A range whose ends are
-- written as integers gives integers. A draw depends on the seed, its number and the key alone: more draws keep the
-- earlier ones. The trap: a drawn number is rounded to 4 digits, and the rounded one is what a run gets.
-- @module ganymede.cli.sweep.space
local failure = require "ganymede.base.failure"
local sha256 = require "ganymede.base.sha256"

local space = {}

local MOST = 10000 -- settings of a grid

local closing = { ["{"] = "}", ["["] = "]", ["("] = ")" }

-- Returns the parts of a text between commas that stand outside of brackets and quotes.
local function split(text)
  local parts, open, quote, from, at = {}, {}, nil, 1, 1
  while at <= #text do
    local c = text:sub(at, at)
    if quote then
      if c == "\\" then at = at + 1 elseif c == quote then quote = nil end
    elseif c == "'" or c == '"' then
      quote = c
    elseif closing[c] then
      open[#open + 1] = closing[c]
    elseif c == open[#open] then
      open[#open] = nil
    elseif c == "," and #open == 0 then
      parts[#parts + 1], from = text:sub(from, at - 1), at + 1
    end
    at = at + 1
  end
  parts[#parts + 1] = text:sub(from)
  return parts
end

-- "log:1e-5..1e-2" -> { low, high, log, whole }; nil if the text is no range.
local function range_of(text, set)
  local log = text:sub(1, 4) == "log:"
  local low, high = text:sub(log and 5 or 1):match "^(%-?[%d.eE+-]-)%.%.(%-?[%d.eE+-]+)$"
  local a, b = tonumber(low or ""), tonumber(high or "")
  if not a or not b then return nil end
  if a >= b or b == math.huge or a == -math.huge then
    failure(2, "--set %s: the range %s does not go from a smaller number to a larger one", set, text)
  end
  if log and a <= 0 then failure(2, "--set %s: a range of log: begins above 0", set) end
  return { low = a, high = b, log = log, whole = low:match "^%-?%d+$" and high:match "^%-?%d+$" and true or false }
end

local function axis_of(set, key, text)
  local range = range_of(text, set)
  if range then
    range.key = key
    return range
  end
  local values, seen = split(text), {}
  if #values == 1 then return nil end
  for i, value in ipairs(values) do
    values[i] = value:match "^%s*(.-)%s*$"
    if values[i] == "" then failure(2, "--set %s: value %d between the commas is empty", set, i) end
    if seen[values[i]] then failure(2, "--set %s: %s is there twice", set, values[i]) end
    seen[values[i]] = true
  end
  return { key = key, values = values }
end

--- Parses what --set was given -> { fixed = list of "key=value", axes = list }. It raises failures of status 2.
function space.parse(sets)
  local out, seen = { fixed = {}, axes = {} }, {}
  for _, set in ipairs(sets or {}) do
    local key, text = set:match "^(%+?[^=]*)=(.*)$"
    if not key then failure(2, "--set %s: expected key=value or key=value,value", set) end
    local axis, name = axis_of(set, key, text), key:gsub("^%+", "")
    if seen[name] then failure(2, "--set %s: %s is set twice", set, name) end
    seen[name] = true
    if axis then out.axes[#out.axes + 1] = axis else out.fixed[#out.fixed + 1] = set end
  end
  return out
end

--- Whether an axis is a range of numbers, which has no grid.
function space.has_range(axes)
  for _, axis in ipairs(axes) do
    if axis.low then return axis.key end
  end
end

--- The number of settings of a grid; nil if an axis is a range.
function space.size(axes)
  local n = 1
  for _, axis in ipairs(axes) do
    if axis.low then return nil end
    n = n * #axis.values
  end
  return n
end

--- Returns all settings, the last axis fastest.
function space.grid(axes)
  local range = space.has_range(axes)
  if range then failure(2, "--set %s: a range has no grid; give --random N, or values between commas", range) end
  local n = space.size(axes)
  if n > MOST then failure(2, "%d settings are more than %d; give --random N", n, MOST) end
  local out = {}
  for i = 0, n - 1 do
    local setting, rest = {}, i
    for a = #axes, 1, -1 do
      local values = axes[a].values
      setting[a], rest = values[rest % #values + 1], math.floor(rest / #values)
    end
    out[i + 1] = setting
  end
  return out
end

-- A number from 0 to below 1 that depends on the text alone.
local function uniform(text) return tonumber(sha256(text):sub(1, 13), 16) / 2 ^ 52 end

local function drawn(axis, u)
  if axis.values then return axis.values[math.floor(u * #axis.values) + 1] end
  local low, high = axis.low, axis.high
  if axis.whole and not axis.log then return ("%d"):format(low + math.floor(u * (high - low + 1))) end
  local x = axis.log and math.exp(math.log(low) + u * (math.log(high) - math.log(low))) or low + u * (high - low)
  return axis.whole and ("%d"):format(math.floor(x + 0.5)) or ("%.4g"):format(x)
end

--- Returns n different settings, drawn at random. More than there are is a failure of status 2.
function space.random(axes, n, seed)
  local most = space.size(axes)
  if most and n >= most then
    failure(2, "--random %d: there are %d settings in all; leave --random out to try each", n, most)
  end
  local out, seen, draw = {}, {}, 0
  while #out < n do
    draw = draw + 1
    if draw > 1000 * n then failure(2, "--random %d: there are only %d different settings", n, #out) end
    local setting = {}
    for a, axis in ipairs(axes) do setting[a] = drawn(axis, uniform(("%d %d %s"):format(seed, draw, axis.key))) end
    local name = table.concat(setting, "\0")
    if not seen[name] then out[#out + 1], seen[name] = setting, true end
  end
  return out
end

--- Returns the "key=value" of a setting, what is fixed first.
function space.sets(parsed, setting)
  local out = { unpack(parsed.fixed) }
  for a, axis in ipairs(parsed.axes) do out[#out + 1] = axis.key .. "=" .. setting[a] end
  return out
end

--- Returns the steps of the rounds of successive halving: with n settings the better half goes on after each round,
-- for twice as many steps, and the last one makes all of them. The list is { steps =, keep = number that goes on }.
function space.rounds(n, steps)
  local kept = { n }
  while kept[#kept] > 1 do kept[#kept + 1] = math.ceil(kept[#kept] / 2) end
  local out, before = {}, 0
  for i = 1, #kept do
    local at = math.ceil(steps / 2 ^ (#kept - i))
    if at <= before then
      failure(2, "--halving: %d steps are too few for %d settings, which need %d rounds", steps, n, #kept)
    end
    before = at
    out[i] = { steps = at, keep = kept[i + 1] or 1 }
  end
  return out
end

return space
