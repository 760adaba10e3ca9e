--- Command lines of `ganymede run` as lists of words, which the supervisor of a job changes for the next ranks.
--
--     local words = command_line.changed(args.base, 8, { "parallel.tensor.size=2" })
--
-- No function changes the list that it is given. The trap: the setting that comes last wins, so a new one goes to the
-- end.
-- @module ganymede.job.command_line
local command_line = {}

local once = { ["--replan"] = 0, ["--trace"] = 1, ["--profile"] = 1, ["--step-file"] = 1 } -- and their values

--- Returns the words of a command line without those whose work is done when training has begun.
function command_line.without_beginnings(words)
  local out, skip = {}, 0
  for _, word in ipairs(words) do
    local flag = word:match "^(%-%-[%w-]+)=" or word
    if skip > 0 then
      skip = skip - 1
    elseif once[flag] then
      skip = flag == word and once[flag] or 0
    else
      out[#out + 1] = word
    end
  end
  return out
end

--- Returns a copy of a list of words with more of them.
function command_line.with(words, ...)
  local out = { unpack(words) }
  for _, word in ipairs { ... } do out[#out + 1] = word end
  return out
end

local function key_of(text) return text:match "^[^=]*" end

local function keys_of(sets)
  local keys = {}
  for _, text in ipairs(sets) do keys[key_of(text)] = true end
  return keys
end

--- Returns settings (list of "key=value") followed by later ones, which replace those of the same keys.
function command_line.settings(before, later)
  local keys, out = keys_of(later), {}
  for _, text in ipairs(before) do
    if not keys[key_of(text)] then out[#out + 1] = text end
  end
  return command_line.with(out, unpack(later))
end

--- Returns a command line for another number of ranks and these settings (list of "key=value"). They replace what it
-- says of the same keys: it does not grow, however often a job changes.
function command_line.changed(words, ranks, sets)
  local out, keys, i = {}, keys_of(sets), 1
  while i <= #words do
    local word, value = words[i], words[i + 1] or ""
    if word == "-n" and value:find "^%d+$" or word == "--set" and keys[key_of(value)] then
      i = i + 2
    else
      out[#out + 1], i = word, i + 1
    end
  end
  out = command_line.with(out, "-n", tostring(ranks))
  for _, text in ipairs(sets) do out = command_line.with(out, "--set", text) end
  return out
end

return command_line
