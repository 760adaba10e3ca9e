-- The HTML that `ganymede docs` writes: no broken link, every name in the search, well-formed pages, nothing from a
-- network; and the Markdown that guides are written in.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local html = require "ganymede.reference.html"
local json = require "ganymede.base.json"
local markdown = require "ganymede.reference.html.markdown"
local reference = require "ganymede.reference"
local shell = require "spec.support.shell"

local function none(wrong) assert.equal("", table.concat(wrong, "\n")) end

describe("ganymede docs", function()
  local files, pages = {}, {}

  setup(function()
    for _, file in ipairs(html.files(GANYMEDE_ROOT)) do
      files[file[1]] = file[2]
      if file[1]:find "%.html$" then pages[#pages + 1] = file[1] end
    end
  end)

  local known = {} -- name of a file -> id -> true
  local function ids_of(name)
    if not known[name] then
      known[name] = {}
      for id in files[name]:gmatch ' id="(.-)"' do known[name][id] = true end
    end
    return known[name]
  end

  it("writes guides, the reference and what they need", function()
    for _, name in ipairs { "index.html", "readme.html", "tutorial.html", "gpu.html", "changelog.html", "style.css",
      "search.js", "index.js", "reference_ops.html", "reference_settings.html", "pictures/trace_1f1b.svg" } do
      assert.is_truthy(files[name], name)
    end
    assert.is_true(#pages > 20)
  end)

  it("has no broken link, and none to itself twice", function()
    local wrong, count = {}, 0
    for _, name in ipairs(pages) do
      for target in files[name]:gmatch '[hs]r[ec]f?="(.-)"' do
        target = target:gsub("&quot;", '"'):gsub("&amp;", "&")
        local file, anchor = target:match "^([^#]*)#?(.*)$"
        local to = file == "" and name or file
        count = count + 1
        if not target:find "^https?://" then
          if not files[to] then wrong[#wrong + 1] = name .. " links to " .. target end
          if files[to] and anchor ~= "" and not ids_of(to)[anchor] then
            wrong[#wrong + 1] = name .. " links to " .. target .. ", where nothing has this id"
          end
        end
      end
    end
    none(wrong)
    assert.is_true(count > 2000)
  end)

  it("has every id once on a page, and closes what it opens", function()
    local wrong = {}
    for _, name in ipairs(pages) do
      local seen = {}
      for id in files[name]:gmatch ' id="(.-)"' do
        if seen[id] then wrong[#wrong + 1] = name .. " has the id twice: " .. id end
        seen[id] = true
      end
      local tags = "section table tr td th dl dt dd ul ol li pre code p div a span strong main nav h1 h2 h3"
      for tag in tags:gmatch "%w+" do
        local opened = select(2, files[name]:gsub("<" .. tag .. "[ >]", ""))
        local closed = select(2, files[name]:gsub("</" .. tag .. ">", ""))
        if opened ~= closed then
          wrong[#wrong + 1] = ("%s: %d <%s>, %d </%s>"):format(name, opened, tag, closed, tag)
        end
      end
      if select(2, files[name]:gsub("<h1", "")) ~= 1 then wrong[#wrong + 1] = name .. " has no single title" end
    end
    none(wrong)
  end)

  it("has every name of the reference in the search, with the place where it stands", function()
    local rows = json.decode(files["index.js"]:match "^var GANYMEDE_INDEX = (.*);\n$")
    local by_name, wrong = {}, {}
    for _, row in ipairs(rows) do by_name[row[1]] = row end
    for _, entry in ipairs(reference.all()) do
      local row = by_name[entry.name]
      local file, anchor = (row and row[3] or ""):match "^(.-)#(.*)$"
      if not row then
        wrong[#wrong + 1] = entry.name .. " is not in the search"
      elseif not ids_of(file)[anchor] then
        wrong[#wrong + 1] = entry.name .. " does not stand at " .. row[3]
      else
        for _, name in ipairs(entry.names) do
          if not row[5]:find(name, 1, true) then wrong[#wrong + 1] = name .. " is not searched" end
        end
      end
    end
    none(wrong)
    assert.equal("A tutorial", by_name["A tutorial"][4])
  end)

  it("shows the sentence, the options and the example of each", function()
    for _, entry in ipairs(reference.all()) do
      local text = files[entry.page]
      assert.is_truthy(text:find(markdown.escape(entry.summary), 1, true), entry.name)
      for _, option in ipairs(entry.options) do
        assert.is_truthy(text:find(markdown.escape(option.text), 1, true), entry.name .. ": " .. option.name)
      end
    end
  end)

  it("loads nothing from a network", function()
    for name, text in pairs(files) do
      if name:find "%.html$" then
        for tag in text:gmatch "<[sl][ci][rn][ik]p?t?[^>]*>" do assert.is_nil(tag:find("http", 1, true), tag) end
      end
    end
    assert.is_nil(files["style.css"]:find("url(", 1, true))
    assert.is_nil(files["search.js"]:find("fetch", 1, true))
  end)

  it("is written by the verb", function()
    local folder = shell.temporary_folder()
    local result = shell.run(("%s docs --out %s/site"):format(shell.quote(shell.executable()), shell.quote(folder)))
    assert.equal("", result.err)
    assert.matches("^%d+ files are in ", result.out)
    for name, text in pairs(files) do assert.equal(#text, #(shell.read(folder .. "/site/" .. name) or ""), name) end
    shell.remove(folder)
  end)
end)

describe("Markdown", function()
  local function link(target) return target ~= "nowhere" and "to-" .. target or nil end
  local function is(text, want) assert.equal(want, (markdown.convert(text, link))) end

  it("has headings, paragraphs and lines", function()
    is("# One `x`\n\ntext\nmore", '<h1 id="one-x">One <code>x</code></h1>\n<p>text\nmore</p>')
    is("a **b** `c*d*` [e](f) [g](nowhere) <https://h.i>", '<p>a <strong>b</strong> <code>c*d*</code> '
      .. '<a href="to-f">e</a> g <a href="https://h.i">https://h.i</a></p>')
    is("![p](q.svg)", '<p><img src="to-q.svg" alt="p"></p>')
    is('a < b & "c"', "<p>a &lt; b &amp; &quot;c&quot;</p>")
  end)

  it("has code, fenced and indented", function()
    is("```lua x=y\na < b\n\n```\nafter", '<div class="code"><pre><code>a &lt; b\n</code></pre></div>\n<p>after</p>')
    is("    a\n\n      b\n\nafter", '<div class="code"><pre><code>a\n\n  b</code></pre></div>\n<p>after</p>')
  end)

  it("has lists and quotations", function()
    is("- a\n  b\n- c", "<ul><li>a b</li>\n<li>c</li></ul>")
    is("1. a\n2. b", "<ol><li>a</li>\n<li>b</li></ol>")
    is("> a\n> b", "<blockquote><p>a b</p></blockquote>")
  end)

  it("has tables, with bars inside of code", function()
    is("| a | b |\n|---|---|\n| `x|y` | c\\|d |", '<div class="wide"><table><thead><tr><th>a</th><th>b</th></tr>'
      .. "</thead><tbody><tr><td><code>x|y</code></td><td>c|d</td></tr></tbody></table></div>")
  end)

  it("gives headings the ids that GitHub gives them", function()
    for title, id in pairs { ["On a GPU"] = "on-a-gpu", ["10. Try things out: the repl"] = "10-try-things-out-the-repl",
      ["What `check` says"] = "what-check-says" } do
      assert.equal(id, markdown.id(title))
    end
  end)
end)
