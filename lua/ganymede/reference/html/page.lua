--- The frame of every HTML page: navigation, search, footer. All pages lie in one folder and need nothing else than
-- style.css, search.js and index.js beside them, so they work from file:// too.
-- @module ganymede.reference.html.page
local escape = require("ganymede.reference.html.markdown").escape

local page = {}

local function list(pages, current)
  local out = {}
  for _, other in ipairs(pages) do
    local here = other.file == current.file and ' aria-current="page"' or ""
    out[#out + 1] = ('<li><a href="%s"%s>%s</a></li>'):format(other.file, here, escape(other.title))
  end
  return table.concat(out, "\n")
end

-- The headings of this page, for long ones.
local function contents(current)
  local out = {}
  for _, heading in ipairs(current.headings or {}) do
    if heading.level == 2 then
      out[#out + 1] = ('<li><a href="#%s">%s</a></li>'):format(heading.id, escape(heading.title:gsub("[`*]", "")))
    end
  end
  if #out < 3 then return "" end
  return '<nav class="contents" aria-label="On this page"><p>On this page</p><ul>' .. table.concat(out, "\n")
    .. "</ul></nav>"
end

local frame = [[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>@title@ - Ganymede</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<header>
<a class="home" href="index.html">Ganymede <span>@version@</span></a>
<div class="search" role="search">
<input id="search" type="search" placeholder="Search: linear, AdamW, x:sum ..." autocomplete="off" spellcheck="false"
 aria-label="Search the reference and the guides">
<ol id="found" hidden></ol>
</div>
</header>
<div class="columns">
<details class="menu" id="menu" open><summary>Pages</summary>
<nav aria-label="Pages">
<p>Guides</p>
<ul>
@guides@
</ul>
<p>Reference</p>
<ul>
@subjects@
</ul>
</nav></details>
<main>
@body@
<footer>Written by <code>ganymede docs</code>, version @version@.</footer>
</main>
</div>
<script src="index.js"></script>
<script src="search.js"></script>
</body>
</html>
]]

--- The text of a page { file, title, body, headings }. site: { guides, subjects } are lists of pages.
function page.render(current, site)
  local body = current.body:gsub("</h1>", function(tag) return tag .. contents(current) end, 1)
  local parts = { title = escape(current.title), version = require "ganymede.base.version",
    guides = list(site.guides, current), subjects = list(site.subjects, current), body = body }
  return (frame:gsub("@(%a+)@", parts))
end

return page
