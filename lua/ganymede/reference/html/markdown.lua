--- The Markdown of README.md and docs/*.md as HTML. It is a subset, written out here so that `ganymede docs` needs no
-- other program: headings, paragraphs, lists of one level, tables, fenced and indented code, quotations; in a line
-- code, bold, links and pictures.
--
--     markdown.convert(text, link) -> html, list of { level, title, id }
--
-- link(target) -> what a link becomes, or nil where there is nothing to link to: then its text stays. A heading's id
-- is what GitHub makes of it. The trap: a block that is none of these is a paragraph.
-- @module ganymede.reference.html.markdown
local markdown = {}

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

--- A text as it stands in HTML.
function markdown.escape(text) return (text:gsub('[&<>"]', entities)) end

local escape = markdown.escape

--- The id of a heading: "On a GPU" -> "on-a-gpu".
function markdown.id(title)
  return (title:lower():gsub("[`*]", ""):gsub("[^%w%s_-]", ""):gsub("%s", "-"))
end

-- ---------------------------------------------------------------- lines

-- Pieces of code are set aside while the rest of the line is looked at: "\1" N "\2".
local function set_code_aside(text, held)
  return (text:gsub("(`+)(.-)%1", function(_, code)
    held[#held + 1] = "<code>" .. escape(code:match "^%s?(.-)%s?$") .. "</code>"
    return "\1" .. #held .. "\2"
  end))
end

local function links(text, link)
  text = text:gsub("!%[(.-)%]%((.-)%)", function(title, target)
    local to = link(target)
    return to and ('<img src="%s" alt="%s">'):format(escape(to), title) or title
  end)
  return (text:gsub("%[(.-)%]%((.-)%)", function(title, target)
    local to = link(target)
    return to and ('<a href="%s">%s</a>'):format(to, title) or title
  end))
end

--- Code, bold, links and pictures of one line or paragraph.
function markdown.inline(text, link)
  local held = {}
  text = escape(set_code_aside(text, held))
  text = links(text, link):gsub("%*%*(.-)%*%*", "<strong>%1</strong>")
  text = text:gsub("&lt;(https?://[^%s]-)&gt;", '<a href="%1">%1</a>')
  return (text:gsub("\1(%d+)\2", function(n) return held[tonumber(n)] end))
end

-- ---------------------------------------------------------------- blocks

local Reader = {}
Reader.__index = Reader

function Reader:line() return self.lines[self.at] end
function Reader:add(html) self.out[#self.out + 1] = html end

-- Lines from here on for which test(line) holds.
function Reader:take(test)
  local taken = {}
  while self:line() and test(self:line()) do
    taken[#taken + 1] = self:line()
    self.at = self.at + 1
  end
  return taken
end

local function is_blank(line) return not line:find "%S" end
local function is_item(line) return line:find "^%s?%s?%s?[-*] " or line:find "^%s?%s?%s?%d+%. " end
local function is_indented(line) return line:find "^    " end

local function code_block(text)
  return '<div class="code"><pre><code>' .. escape(text) .. "</code></pre></div>"
end

function Reader:fence()
  self.at = self.at + 1
  local lines = self:take(function(line) return not line:find "^```" end)
  self.at = self.at + 1
  self:add(code_block(table.concat(lines, "\n")))
end

function Reader:indented()
  local lines = self:take(function(line) return is_indented(line) or is_blank(line) end)
  while #lines > 0 and is_blank(lines[#lines]) do lines[#lines] = nil end
  for i, line in ipairs(lines) do lines[i] = line:gsub("^    ", "") end
  self:add(code_block(table.concat(lines, "\n")))
end

function Reader:heading()
  local marks, title = self:line():match "^(#+)%s+(.-)%s*$"
  local id = markdown.id(title)
  self.headings[#self.headings + 1] = { level = #marks, title = title, id = id }
  self:add(('<h%d id="%s">%s</h%d>'):format(#marks, id, markdown.inline(title, self.link), #marks))
  self.at = self.at + 1
end

-- "| a | `b | c` |" -> cells; a bar inside of code, or behind a backslash, parts none.
local function cells_of(line)
  local held, cells = {}, {}
  line = line:match "^%s*|?(.-)|?%s*$":gsub("`[^`]*`", function(code)
    held[#held + 1] = code
    return "\3" .. #held .. "\4"
  end)
  line = line:gsub("\\|", "\5")
  for cell in (line .. "|"):gmatch "(.-)|" do
    cell = cell:gsub("\3(%d+)\4", function(n) return held[tonumber(n)] end):gsub("\5", "|")
    cells[#cells + 1] = cell:match "^%s*(.-)%s*$"
  end
  return cells
end

local function row(cells, tag, link)
  local out = {}
  for i, cell in ipairs(cells) do out[i] = ("<%s>%s</%s>"):format(tag, markdown.inline(cell, link), tag) end
  return "<tr>" .. table.concat(out) .. "</tr>"
end

function Reader:table()
  local lines = self:take(function(line) return line:find "^%s*|" end)
  local head, rows = cells_of(lines[1]), {}
  for i = 3, #lines do rows[#rows + 1] = row(cells_of(lines[i]), "td", self.link) end
  local heading = table.concat(head):find "%S" and "<thead>" .. row(head, "th", self.link) .. "</thead>" or ""
  self:add('<div class="wide"><table>' .. heading .. "<tbody>" .. table.concat(rows, "\n") .. "</tbody></table></div>")
end

function Reader:list()
  local tag = self:line():find "^%s*%d" and "ol" or "ul"
  local items = {}
  while self:line() and is_item(self:line()) do
    local lines = { (self:line():gsub("^%s*[-*] ", ""):gsub("^%s*%d+%. ", "")) }
    self.at = self.at + 1
    for _, line in ipairs(self:take(function(line) return not is_blank(line) and not is_item(line) end)) do
      lines[#lines + 1] = line:match "^%s*(.-)$"
    end
    items[#items + 1] = "<li>" .. markdown.inline(table.concat(lines, " "), self.link) .. "</li>"
  end
  self:add(("<%s>%s</%s>"):format(tag, table.concat(items, "\n"), tag))
end

function Reader:quotation()
  local lines = self:take(function(line) return line:find "^>" end)
  for i, line in ipairs(lines) do lines[i] = line:gsub("^>%s?", "") end
  self:add("<blockquote><p>" .. markdown.inline(table.concat(lines, " "), self.link) .. "</p></blockquote>")
end

local function starts_block(line)
  return is_blank(line) or line:find "^#+ " or line:find "^```" or line:find "^%s*|" or is_item(line) or line:find "^>"
end

function Reader:paragraph()
  local first = self:line()
  self.at = self.at + 1
  local lines = self:take(function(line) return not starts_block(line) end)
  table.insert(lines, 1, first)
  self:add("<p>" .. markdown.inline(table.concat(lines, "\n"), self.link) .. "</p>")
end

function Reader:block()
  local line = self:line()
  if is_blank(line) then
    self.at = self.at + 1
  elseif line:find "^```" then
    self:fence()
  elseif line:find "^#+ " then
    self:heading()
  elseif line:find "^%s*|" and (self.lines[self.at + 1] or ""):find "^%s*|[%s:|-]+$" then
    self:table()
  elseif is_item(line) then
    self:list()
  elseif is_indented(line) then
    self:indented()
  elseif line:find "^>" then
    self:quotation()
  else
    self:paragraph()
  end
end

--- The HTML of a text, and its headings.
function markdown.convert(text, link)
  local reader = setmetatable({ lines = {}, at = 1, out = {}, headings = {}, link = link }, Reader)
  for line in (text:gsub("\n*$", "\n")):gmatch "(.-)\n" do reader.lines[#reader.lines + 1] = line end
  while reader:line() do reader:block() end
  return table.concat(reader.out, "\n"), reader.headings
end

return markdown
