--- What argparse leaves to us: options that take negative numbers, and refusals that name their option.
--
-- argparse takes every word that begins with '-' for options. words.joined writes a negative number behind an option
-- that takes an argument as one word with it, so that the option's own check judges it. words.named makes the
-- converters of a parser name the option or argument whose value they refuse.
-- @module ganymede.cli.words
local words = {}

local function is_negative(word)
  local lower = word:lower()
  return word:find "^%-%.?%d" ~= nil or lower == "-inf" or lower == "-nan"
end

-- The options that take an argument: { ["--steps"] = true }.
local function takers(parser)
  local found = {}
  for _, option in ipairs(parser._options) do
    for _, name in ipairs(option._aliases) do found[name] = option._maxargs > 0 or nil end
  end
  return found
end

--- Returns the words, in which "--steps", "-3" are "--steps=-3", and "-n", "-3" are "-n-3". Words behind "--" stay.
function words.joined(parser, list)
  local takes, out = takers(parser), {}
  local open = true -- no "--" has come
  for i, word in ipairs(list) do
    local before = open and list[i - 1]
    if before and takes[before] and is_negative(word) then
      out[#out] = before .. (before:sub(1, 2) == "--" and "=" or "") .. word
    else
      out[#out + 1] = word
    end
    open = open and word ~= "--"
  end
  return out
end

local function longest(element)
  local name = element._name
  for _, alias in ipairs(element._aliases or {}) do name = #alias > #name and alias or name end
  return name
end

local function naming(name, convert)
  return function(text)
    local value, why = convert(text)
    if value ~= nil then return value end
    return nil, name .. ": " .. (why or ("'%s' is malformed"):format(text))
  end
end

--- Makes the refusals of the parser's converters begin with the option, as in "--steps: '0' is no integer ...".
function words.named(parser)
  for _, list in ipairs { parser._options, parser._arguments } do
    for _, element in ipairs(list) do
      local convert = element._convert
      if type(convert) == "function" then element._convert = naming(longest(element), convert) end
    end
  end
end

return words
