--- The texts of the reference: comments above definitions, and what C functions carry (bindings/docs/docs.h).
--
--     text.parse "Adds up.\n@param x what\n@example\n  1 + 1 --> 2" -> a document
--
-- A text begins with a sentence that says what the thing does; more may follow, in paragraphs, or indented by four
-- blanks as code. Then come tags, each at the start of a line, which hold until the next one:
--
--     @param NAME text     @return text     @shape text     @dtype text     @formula text     @gradient text
--     @layout text         @unit text       @error text     @see NAME, NAME
--     @example             lines of Lua; `EXPRESSION --> what it gives` is tried by a spec
--
-- A document: { summary, more = list of { text } or { code }, params = { [name] = text }, tags = { [tag] = list of
-- texts }, example = list of lines or nil, see = list of names }. Other tags (@module) say nothing here.
-- @module ganymede.reference.text
local text = {}

--- Tags that entries show, in this order, and how they call them.
text.shown = {
  { "return", "returns" }, { "shape", "shapes" }, { "dtype", "dtypes" }, { "formula", "formula" },
  { "gradient", "gradients" }, { "layout", "on ranks" }, { "unit", "units" }, { "error", "errors" },
}

local function lines_of(given)
  local lines = {}
  for line in (given .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  return lines
end

local function joined(lines)
  local out = {}
  for i, line in ipairs(lines) do out[i] = line:match "^%s*(.-)%s*$" end
  return (table.concat(out, " "):gsub("^%s+", ""):gsub("%s+$", ""))
end

-- The lines before the first tag as paragraphs and blocks of code.
local function blocks_of(lines)
  local blocks, open = {}, nil
  for _, line in ipairs(lines) do
    local kind = line:match "^    %s*%S" and "code" or line:match "%S" and "text" or nil
    if kind == "text" and open and open.code then open = nil end
    if not kind then
      open = nil
    elseif open and open[kind] then
      table.insert(open[kind], line)
    elseif kind == "code" and open then -- goes on in an indented line
      table.insert(open.text, line)
    else
      open = { [kind] = { line } }
      blocks[#blocks + 1] = open
    end
  end
  for _, block in ipairs(blocks) do
    if block.text then block.text = joined(block.text) end
    if block.code then block.code = table.concat(block.code, "\n"):gsub("^    ", ""):gsub("\n    ", "\n") end
  end
  return blocks
end

-- "Adds up. The rest" -> "Adds up.", "The rest". Dots of `...` end no sentence.
local function first_sentence(paragraph)
  local at = 1
  while true do
    local from = paragraph:find("[^%.][%.%?]%s+%S", at)
    if not from then return paragraph, nil end
    local before = paragraph:sub(1, from)
    local opened, closed = select(2, before:gsub("[{(]", "")), select(2, before:gsub("[})]", ""))
    if opened <= closed then return paragraph:sub(1, from + 1), paragraph:sub(from + 2):match "^%s*(.*)$" end
    at = from + 1
  end
end

local function take_param(doc, value)
  local name, said = value:match "^(%S+)%s*(.*)$"
  if name then doc.params[name] = said end
end

local function take_see(doc, value)
  for name in value:gmatch "[^,%s]+" do doc.see[#doc.see + 1] = name end
end

local function take_example(doc, lines)
  doc.example = doc.example or {}
  for _, line in ipairs(lines) do
    if line:match "%S" then table.insert(doc.example, (line:gsub("^  ", ""))) end
  end
end

local function take_tag(doc, name, lines)
  if name == "example" then return take_example(doc, lines) end
  local value = joined(lines)
  if name == "param" then return take_param(doc, value) end
  if name == "see" then return take_see(doc, value) end
  doc.tags[name] = doc.tags[name] or {}
  table.insert(doc.tags[name], value)
end

--- A text as a document; "" and nil give one whose summary is nil.
function text.parse(given)
  local doc, before, tag, held = { params = {}, tags = {}, see = {} }, {}, nil, nil
  for _, line in ipairs(lines_of(given or "")) do
    local name, rest = line:match "^@(%w+)%s*(.*)$"
    if name then
      if tag then take_tag(doc, tag, held) end
      tag, held = name, { name ~= "example" and rest or nil }
    else
      table.insert(tag and held or before, line)
    end
  end
  if tag then take_tag(doc, tag, held) end
  doc.more = blocks_of(before)
  if doc.more[1] and doc.more[1].text then
    doc.summary, doc.more[1].text = first_sentence(doc.more[1].text)
    if not doc.more[1].text then table.remove(doc.more, 1) end
  end
  return doc
end

local files = {} -- path -> list of lines, or false

--- The lines of a file, read once; nil where it cannot be read.
function text.lines(path)
  if files[path] == nil then
    local file = io.open(path, "r")
    files[path] = file and lines_of(file:read "*a") or false
    if file then file:close() end
  end
  return files[path] or nil
end

--- The comment right above line number `line` of a file, without its dashes; nil where there is none.
function text.above(path, line)
  local lines, first = text.lines(path) or {}, line
  while lines[first - 1] and lines[first - 1]:match "^%s*%-%-" do first = first - 1 end
  local out = {}
  for i = first, line - 1 do out[#out + 1] = lines[i]:match "^%s*%-%-%-?%s?(.*)$" end
  return #out > 0 and table.concat(out, "\n") or nil
end

return text
