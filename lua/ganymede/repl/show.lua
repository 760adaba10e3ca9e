--- How the REPL prints a value: tensors by shape, dtype, statistics and a few values; tables one level deep.
local core = require "ganymede.core"
local literal = require "ganymede.base.literal"

local show = {}

local MAX_VALUES, MAX_ENTRIES, FIRST = 64, 24, 6

-- The least or largest number of x, which ranks may share: what each of them has whole is reduced before it is sent.
local function extreme(op, x)
  for d, axes in ipairs(x:layout().cuts) do
    if #axes == 0 then x = (op(x, d, true)) end
  end
  return (op(x:gather():reshape { -1 }, 1)):item()
end

local function statistics(t)
  local gm = require "ganymede"
  return gm.scope(gm.no_grad, function()
    local ops = gm.ops
    local x = ops.cast(t:detach():settle(), "f64")
    local bad = ops.sum(ops.cast(ops.ne(ops.mul(x, 0), 0), "f64")):item() -- 0 * x is NaN for NaN and infinities
    if bad > 0 then return ("%d of %d values are NaN or infinite"):format(bad, t:numel()) end
    return ("min %.5g  max %.5g  mean %.5g"):format(extreme(ops.min, x), extreme(ops.max, x), ops.mean(x):item())
  end)
end

local function first_values(t)
  local gm = require "ganymede"
  return gm.scope(gm.no_grad, function()
    local x = t:detach()
    while x:dim() > 1 and x:numel() / x:size(1) >= FIRST do x = x:select(1, 1) end
    local list = x:gather():contiguous():reshape({ x:numel() }):narrow(1, 1, FIRST):totable()
    for i, v in ipairs(list) do list[i] = ("%.4g"):format(v) end
    return table.concat(list, ", ")
  end)
end

local function tensor(t)
  if not core.is_known(t) or t:numel() == 0 or #t:shape() == 0 then return tostring(t) end
  local grad = t:requires_grad() and "  requires grad" or ""
  if t:numel() <= MAX_VALUES then
    local text = tostring(t)
    return (text:gsub("\n", grad .. "  " .. statistics(t) .. "\n", 1))
  end
  return ("tensor %s (%s)%s  %s\n %s, ..."):format(t:dtype(), table.concat(t:shape(), ", "), grad, statistics(t),
    first_values(t))
end

local function short(v)
  if core.is_tensor(v) then return ("tensor %s (%s)"):format(v:dtype(), table.concat(v:shape(), ", ")) end
  if type(v) == "string" then return literal.show(#v > 60 and v:sub(1, 57) .. "..." or v) end
  local text = tostring(v)
  return #text > 60 and text:match "^[^\n]*":sub(1, 57) .. "..." or text
end

local function entries(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
    return type(a) < type(b)
  end)
  return keys
end

local function plain_table(t)
  local keys = entries(t)
  if #keys == 0 then return "{}" end
  local lines = {}
  for i = 1, math.min(#keys, MAX_ENTRIES) do
    local key = type(keys[i]) == "string" and keys[i] or "[" .. short(keys[i]) .. "]"
    lines[i] = ("  %s = %s"):format(key, short(t[keys[i]]))
  end
  if #keys > MAX_ENTRIES then lines[#lines + 1] = ("  and %d more"):format(#keys - MAX_ENTRIES) end
  return "{\n" .. table.concat(lines, ",\n") .. "\n}"
end

--- Returns the text of one value.
function show.value(v)
  if core.is_tensor(v) then return tensor(v) end
  if type(v) == "string" then return literal.show(v) end
  if type(v) == "table" and not getmetatable(v) then
    if next(v) ~= nil and #v <= 8 and #literal.show(v) <= 80 and not literal.show(v):find "[%[\n]" then
      return literal.show(v)
    end
    return plain_table(v)
  end
  return tostring(v)
end

return show
