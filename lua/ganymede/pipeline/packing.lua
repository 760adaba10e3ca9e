--- Packs the results that cross from one part of a model to the next into a list of tensors and a short text, and
-- unpacks them.
--
--     packing.pack(x)                                -- { x }, "T"
--     packing.pack({ x, mask = m }, nil, 3)          -- { x, m }, "{#1;T$4:maskT}-#3;"
--
-- Results may be tensors, numbers, strings, booleans, nil, and tables of these without metatables. Keys are numbers and
-- strings, in the same order on every rank. Functions, objects, userdata other than tensors, and cycles are refused. A
-- table or tensor that occurs twice arrives as two.
-- The trap: both sides of a border agree on the text once, so numbers that change from one micro-batch to the next need
-- variable_shapes, or must be in a tensor.
-- @module ganymede.pipeline.packing
local core = require "ganymede.core"
local options = require "ganymede.base.options"

local packing = {}

local plain = {
  ["nil"] = function() return "-" end,
  boolean = function(value) return value and "t" or "f" end,
  number = function(value) return ("#%.17g;"):format(value) end,
  string = function(value) return ("$%d:%s"):format(#value, value) end,
}

local write

local function write_table(value, state, place)
  if getmetatable(value) ~= nil then
    error(("%s is an object; only tensors, plain values and plain tables can cross to another stage"):format(place), 0)
  end
  if state.open[value] then error(("%s is part of itself; it cannot cross to another stage"):format(place), 0) end
  state.open[value] = true
  local out = state.text
  out[#out + 1] = "{"
  for _, key in ipairs(options.sorted_keys(value)) do
    if type(key) ~= "number" and type(key) ~= "string" then
      error(("%s has a key that is a %s; numbers and strings can cross to another stage"):format(place, type(key)), 0)
    end
    out[#out + 1] = plain[type(key)](key)
    write(value[key], state, ("%s[%s]"):format(place, options.literal(key)))
  end
  out[#out + 1] = "}"
  state.open[value] = nil
end

function write(value, state, place)
  if core.is_tensor(value) then
    state.list[#state.list + 1] = value
    state.text[#state.text + 1] = "T"
  elseif plain[type(value)] then
    state.text[#state.text + 1] = plain[type(value)](value)
  elseif type(value) == "table" then
    write_table(value, state, place)
  else
    error(("%s is a %s, which cannot cross to another stage; tensors, plain values and plain tables can"):format(place,
      type(value)), 0)
  end
end

--- Returns the list of the tensors in any results, in order, and the text.
function packing.pack(...)
  local state = { list = {}, text = {}, open = {} }
  for i = 1, select("#", ...) do write((select(i, ...)), state, "result " .. i) end
  return state.list, table.concat(state.text)
end

-- ---------------------------------------------------------------- back

local read

local function damaged(state)
  error(("the text of a border is damaged at byte %d of %d: %q"):format(state.at, #state.text, state.text), 0)
end

-- Returns the number that the pattern captures here. The pattern ends with a position capture.
local function take(state, pattern)
  local said, behind = state.text:match(pattern, state.at)
  local number = tonumber(said)
  if not number then damaged(state) end
  state.at = behind
  return number
end

local function read_number(state) return take(state, "^([^;]+);()") end

local function read_string(state)
  local length = take(state, "^(%d+):()")
  local from = state.at
  if from + length > #state.text + 1 then damaged(state) end
  state.at = from + length
  return state.text:sub(from, state.at - 1)
end

local function read_table(state)
  local out = {}
  while state.text:sub(state.at, state.at) ~= "}" do
    local key = read(state)
    if type(key) ~= "number" and type(key) ~= "string" then damaged(state) end
    out[key] = read(state)
  end
  state.at = state.at + 1
  return out
end

local function read_tensor(state)
  state.taken = state.taken + 1
  return state.list[state.taken]
end

local readers = {
  T = read_tensor, ["{"] = read_table, ["#"] = read_number, ["$"] = read_string,
  ["-"] = function() return nil end, t = function() return true end, f = function() return false end,
}

function read(state)
  local reader = readers[state.text:sub(state.at, state.at)]
  if not reader then damaged(state) end
  state.at = state.at + 1
  return reader(state)
end

--- Returns the results that were packed into this list and text.
function packing.unpack(list, text)
  local state, values, n = { list = list, text = text, at = 1, taken = 0 }, {}, 0
  while state.at <= #text do
    n = n + 1
    values[n] = read(state)
  end
  if state.taken ~= #list then
    error(("the text of a border describes %d tensors, and %d arrived: %q"):format(state.taken, #list, text), 0)
  end
  return unpack(values, 1, n)
end

return packing
