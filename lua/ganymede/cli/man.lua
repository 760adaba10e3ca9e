--- Writes the man page ganymede(1) in roff, from the parsers of the verbs and the table of variables.
-- @module ganymede.cli.man
local cli = require "ganymede.cli"
local failure = require "ganymede.base.failure"
local verbs = require "ganymede.cli.describe"

-- Writes a text as roff: it escapes backslashes and hyphens, and a line that would begin a request.
local function text(given)
  return (given:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("\n%s*", " "):gsub("^([.'])", "\\&%1"))
end

local function add(lines, ...)
  for i = 1, select("#", ...) do lines[#lines + 1] = (select(i, ...)) end
end

local function option(lines, o)
  local shown = {}
  for i, name in ipairs(o.names) do shown[i] = "\\fB" .. text(name) .. "\\fR" end
  add(lines, ".TP", table.concat(shown, ", ") .. (o.argument and " \\fI" .. text(o.argument) .. "\\fR" or ""),
    text(o.text or "") .. (o.default and (" (default %s)"):format(text(o.default)) or ""))
end

local function synopsis(about)
  local out = { "\\fBganymede " .. about.name .. "\\fR [\\fIoptions\\fR]" }
  for _, argument in ipairs(about.arguments) do
    local name = "\\fI" .. text(argument.name) .. "\\fR" .. (argument.most > 1 and " ..." or "")
    out[#out + 1] = argument.least == 0 and "[" .. name .. "]" or name
  end
  return table.concat(out, " ")
end

local function verb(lines, name)
  local about = verbs.describe(name)
  add(lines, ".SS " .. text(name), synopsis(about), ".PP", text((about.summary:gsub("^%l", string.upper))) .. ".")
  for _, argument in ipairs(about.arguments) do
    add(lines, ".TP", "\\fI" .. text(argument.name) .. "\\fR", text(argument.text or ""))
  end
  for _, o in ipairs(about.options) do option(lines, o) end
end

local function examples(lines)
  add(lines, ".SH EXAMPLES")
  for _, name in ipairs(cli.verbs) do
    for _, line in ipairs(cli.verb(name).examples or {}) do
      if lines[#lines] ~= ".SH EXAMPLES" then add(lines, ".PP") end
      add(lines, ".nf", text(line), ".fi")
    end
  end
end

local function variables(lines)
  local options = require "ganymede.base.options"
  local known = require("ganymede.base.environment").variables
  add(lines, ".SH ENVIRONMENT")
  for _, name in ipairs(options.sorted_keys(known)) do
    if known[name].whose == "user" then add(lines, ".TP", "\\fB" .. name .. "\\fR", text(known[name].doc)) end
  end
end

-- Reads the table under "## Exit status" in docs/command_line.md -> a list of { status, meaning }.
local function statuses()
  local path = GANYMEDE_ROOT .. "/docs/command_line.md"
  local file = io.open(path, "r")
  local page = file and file:read "*a" or ""
  if file then file:close() end
  local section, rows = page:match "\n## Exit status\n(.-)\n## " or "", {}
  for status, meaning in section:gmatch "\n| (%d[^|]-) | ([^\n]-) |" do
    rows[#rows + 1] = { status, (meaning:gsub("[`*]", ""):gsub("%[(.-)%]%(.-%)", "%1")) }
  end
  if #rows == 0 then failure(1, "docs: %s has no table of exit statuses", path) end
  return rows
end

-- Breaks a text into lines of at most 80 characters, the usual width of man pages.
local function wrapped(lines)
  local out = {}
  for _, line in ipairs(lines) do
    while #line > 80 and not line:find "^%.%u" do
      local cut = line:sub(1, 80):match "^.*()%s" or line:find "%s" or #line + 1
      out[#out + 1], line = line:sub(1, cut - 1), line:sub(cut + 1):gsub("^([.'])", "\\&%1")
    end
    out[#out + 1] = line
  end
  return table.concat(out, "\n") .. "\n"
end

return function()
  local lines = { ('.TH GANYMEDE 1 "" "Ganymede %s" "User Commands"'):format(require "ganymede.base.version"),
    ".SH NAME", "ganymede \\- train neural networks from Lua, on any number of ranks", ".SH SYNOPSIS",
    "\\fBganymede\\fR \\fIverb\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]", ".SH DESCRIPTION",
    "Ganymede trains neural networks. It is one C program that embeds LuaJIT: a recipe, which is a file of Lua, holds",
    "the model and a table of settings; the program does the rest, on CPUs and GPUs, on one rank or many.", ".PP",
    "\\fBganymede help\\fR \\fIname\\fR explains a verb, a setting, a class or a function.", ".SH VERBS" }
  for _, name in ipairs(cli.verbs) do verb(lines, name) end
  add(lines, ".SH EXIT STATUS")
  for _, status in ipairs(statuses()) do add(lines, ".TP", "\\fB" .. text(status[1]) .. "\\fR", text(status[2])) end
  variables(lines)
  examples(lines)
  add(lines, ".SH SEE ALSO", "\\fBganymede docs\\fR writes the whole documentation as HTML pages.")
  return wrapped(lines)
end
