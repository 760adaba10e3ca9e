--- An entry as text for a terminal: what `ganymede help NAME` and `?name` print.
-- @module ganymede.reference.plain
local plain = {}

local WIDTH, LABEL = 100, 23

-- Words on lines of at most WIDTH characters, each after `margin` blanks; the first line has its margin already.
local function wrapped(said, margin)
  local lines, line = {}, nil
  for word in said:gmatch "%S+" do
    if line and margin + #line + 1 + #word > WIDTH then lines[#lines + 1], line = line, nil end
    line = line and line .. " " .. word or word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. (" "):rep(margin))
end

-- Two lines an argument or option, as options.help writes them.
local function add_list(lines, title, list)
  if #list == 0 then return end
  lines[#lines + 1] = ""
  lines[#lines + 1] = title
  for _, item in ipairs(list) do
    local default = item.default and (" (%s)"):format(item.default) or ""
    lines[#lines + 1] = ("  %-20s %s%s"):format(item.name, item.allowed, default)
    if item.text then lines[#lines + 1] = (" "):rep(LABEL) .. wrapped(item.text, LABEL) end
  end
end

local function add_more(lines, more)
  for _, block in ipairs(more or {}) do
    lines[#lines + 1] = ""
    lines[#lines + 1] = block.text and wrapped(block.text, 0) or "    " .. block.code:gsub("\n", "\n    ")
  end
end

local function add_parts(lines, parts)
  if #parts > 0 then lines[#lines + 1] = "" end
  for _, part in ipairs(parts) do
    lines[#lines + 1] = ("%-10s %s"):format(part.label, wrapped(part.text, 11))
  end
end

local function add_example(lines, example)
  if not example then return end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "example"
  for _, line in ipairs(example) do lines[#lines + 1] = "  " .. line end
end

local function add_end(lines, entry)
  if #entry.see > 0 or entry.place then lines[#lines + 1] = "" end
  if #entry.see > 0 then lines[#lines + 1] = "see also   " .. wrapped(table.concat(entry.see, ", "), 11) end
  if entry.place then lines[#lines + 1] = "in         " .. entry.place end
end

--- "gm.ops.sum: an op" and all that is known of it.
function plain.entry(entry)
  local lines = { ("%s: %s"):format(entry.name, entry.what) }
  if not entry.verbatim then
    for _, call in ipairs(entry.calls) do lines[#lines + 1] = "  " .. call end
  end
  if entry.verbatim then
    lines[#lines + 1] = ""
    lines[#lines + 1] = entry.verbatim
  else
    if entry.summary then lines[#lines + 1] = "\n" .. wrapped(entry.summary, 0) end
  end
  add_more(lines, entry.more)
  if not entry.verbatim then
    add_list(lines, "arguments", entry.arguments)
    add_list(lines, "options", entry.options)
  end
  add_parts(lines, entry.parts)
  add_example(lines, entry.example)
  add_end(lines, entry)
  return table.concat(lines, "\n")
end

--- What an option means, by the classes that have it. kind: the registry of a setting that names them; nil: one class.
-- groups: list of { option, classes = names }.
function plain.option(path, kind, groups)
  local lines = { ("%s: an option of %s"):format(path, kind or groups[1].classes[1]) }
  for _, group in ipairs(groups) do
    lines[#lines + 1] = ""
    if kind then lines[#lines + 1] = wrapped(table.concat(group.classes, ", "), 0) end
    lines[#lines + 1] = ("  %s (%s)"):format(group.option.allowed, group.option.default)
    if group.option.text then lines[#lines + 1] = "  " .. wrapped(group.option.text, 2) end
  end
  lines[#lines + 1] = ("\n`ganymede help %s` has the other options"):format(groups[1].classes[1])
  return table.concat(lines, "\n")
end

--- Several entries of one short name: a line each, and how to choose.
function plain.choices(name, entries)
  local lines = { ("there are %d entries for '%s'; ask for one of them by its whole name"):format(#entries, name) }
  for _, entry in ipairs(entries) do
    lines[#lines + 1] = ("  %-34s %s"):format(entry.name, entry.what)
    lines[#lines + 1] = "      " .. wrapped(entry.summary or "", 6)
  end
  return table.concat(lines, "\n")
end

return plain
