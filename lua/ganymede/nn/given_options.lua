--- How the options of a module may be given: Linear(3, 2), Linear { inputs = 3, outputs = 2 }, or in other spellings.
-- Positions are the names of class.positional, other spellings those of class.aliases (ganymede.nn.module). Whether an
-- option exists, and what it may be, is judged later.
--
--     local given = given_options(class, is_module, ...)          -- in the function that the user called
--
-- The trap: errors name the line of that function's caller, so it must call this one itself, and not as its last act.
-- @module ganymede.nn.given_options
local options = require "ganymede.base.options"

-- "Linear takes inputs, outputs, bias by position, or a table: Linear { inputs = 2, ... }"
local function refuse_position(class, args, i)
  local names, shown = class.positional or {}, {}
  for k = 1, math.min(#names, i - 1) do shown[k] = ("%s = %s"):format(names[k], options.brief(args[k])) end
  shown[#shown + 1] = "..."
  local list = #names > 0 and table.concat(names, ", ") .. " by position" or "nothing by position"
  error(("%s takes %s; for argument %d, %s, write its name: %s { %s }"):format(class.name, list, i,
    options.brief(args[i]), class.name, table.concat(shown, ", ")), 4)
end

-- Options given by position: they have the names of class.positional, in order. More of them are an error.
local function by_position(class, ...)
  local names, out, args = class.positional or {}, {}, { ... }
  for i = 1, select("#", ...) do
    if not names[i] and args[i] ~= nil then refuse_position(class, args, i) end
    if names[i] then out[names[i]] = args[i] end
  end
  return out
end

--- Returns the options that a call class(...) gives, by their own names. is_module(x): a module is no table of options.
return function(class, is_module, first, ...)
  if first ~= nil and type(first) ~= "table" or is_module(first) or first == nil and select("#", ...) > 0 then
    return by_position(class, first, ...)
  end
  for i = 1, select("#", ...) do
    if select(i, ...) ~= nil then
      error(("%s takes a table of options and nothing after it; got %s"):format(class.name,
        options.brief((select(i, ...)))), 3)
    end
  end
  local out = {}
  for k, v in pairs(first or {}) do
    local alias = class.aliases and class.aliases[k]
    if alias and first[alias] ~= nil then
      error(("%s: '%s' and '%s' are the same option; give one"):format(class.name, k, alias), 3)
    end
    out[alias or k] = v
  end
  return out
end
