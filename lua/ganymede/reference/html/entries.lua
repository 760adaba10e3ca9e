--- Entries of the reference as HTML.
-- @module ganymede.reference.html.entries
local markdown = require "ganymede.reference.html.markdown"

local entries = {}

local escape = markdown.escape

--- Where an entry stands on its page.
function entries.id(entry) return (entry.name:gsub("[^%w_.:%-]", "-")) end

--- "reference_ops.html#gm.ops.sum"
function entries.address(entry) return entry.page .. "#" .. entries.id(entry) end

local function paragraph(text) return "<p>" .. escape(text) .. "</p>" end

local function code(text) return '<div class="code"><pre><code>' .. escape(text) .. "</code></pre></div>" end

local function definitions(title, list)
  if #list == 0 then return "" end
  local out = {}
  for i, item in ipairs(list) do
    local default = item.default and (' <span class="default">%s</span>'):format(escape(item.default)) or ""
    out[i] = ("<dt><code>%s</code> <span>%s</span>%s</dt>\n<dd>%s</dd>"):format(escape(item.name),
      escape(item.allowed), default, escape(item.text or ""))
  end
  return ("<h4>%s</h4>\n<dl>%s</dl>"):format(title, table.concat(out, "\n"))
end

local function parts(list)
  if #list == 0 then return "" end
  local out = {}
  for i, part in ipairs(list) do
    out[i] = ("<tr><th>%s</th><td>%s</td></tr>"):format(escape(part.label), escape(part.text))
  end
  return '<table class="parts"><tbody>' .. table.concat(out, "\n") .. "</tbody></table>"
end

local function example(lines)
  if not lines then return "" end
  local out = {}
  for i, line in ipairs(lines) do
    local before, gives = line:match "^(.-)%s*(%-%->.*)$"
    out[i] = before and escape(before) .. ' <span class="gives">' .. escape(gives) .. "</span>" or escape(line)
  end
  return '<h4>Example</h4>\n<div class="code"><pre><code>' .. table.concat(out, "\n") .. "</code></pre></div>"
end

local function see_also(names, find)
  local out = {}
  for i, name in ipairs(names) do
    local found = find(name)[1]
    out[i] = ('<a href="%s"><code>%s</code></a>'):format(escape(entries.address(found)), escape(name))
  end
  return #out > 0 and '<p class="see">See also ' .. table.concat(out, ", ") .. "</p>" or ""
end

local function more(blocks)
  local out = {}
  for i, block in ipairs(blocks or {}) do out[i] = block.text and paragraph(block.text) or code(block.code) end
  return table.concat(out, "\n")
end

local function calls(list)
  local out = {}
  for i, call in ipairs(list) do out[i] = escape(call) end
  return #out > 0 and '<div class="code call"><pre><code>' .. table.concat(out, "\n") .. "</code></pre></div>" or ""
end

--- One entry. find(name) -> list of entries, for links.
function entries.render(entry, find)
  local id = entries.id(entry)
  return table.concat({
    ('<section class="entry" id="%s">'):format(escape(id)),
    ('<h3><a href="#%s">%s</a> <span class="kind">%s</span></h3>'):format(escape(id), escape(entry.name),
      escape(entry.what)),
    calls(entry.calls), paragraph(entry.summary or ""), more(entry.more), definitions("Arguments", entry.arguments),
    definitions("Options", entry.options), parts(entry.parts), example(entry.example), see_also(entry.see, find),
    entry.place and ('<p class="place">%s</p>'):format(escape(entry.place)) or "", "</section>" }, "\n")
end

local function overview(section)
  local out = {}
  for i, entry in ipairs(section.entries) do
    out[i] = ('<tr><td><a href="#%s"><code>%s</code></a></td><td>%s</td></tr>'):format(escape(entries.id(entry)),
      escape(entry.name), escape(entry.summary or ""))
  end
  return '<div class="wide"><table class="overview"><tbody>' .. table.concat(out, "\n") .. "</tbody></table></div>"
end

--- A page of the reference: body and headings are added to it.
function entries.fill(page, find)
  local out, headings = { ("<h1>%s</h1>"):format(escape(page.title)), paragraph(page.sentence) }, {}
  for _, section in ipairs(page.sections) do
    local id = "section-" .. markdown.id(section.title)
    headings[#headings + 1] = { level = 2, title = section.title, id = id }
    local hidden = #page.sections == 1 and ' class="alone"' or "" -- the title of the page says it
    out[#out + 1] = ('<h2 id="%s"%s>%s</h2>'):format(id, hidden, escape(section.title))
    out[#out + 1] = overview(section)
    for _, entry in ipairs(section.entries) do out[#out + 1] = entries.render(entry, find) end
  end
  page.body, page.headings = table.concat(out, "\n"), headings
end

return entries
