--- The documentation as static HTML: the guides (README.md, docs/*.md), the reference, a search that needs no server.
--
--     html.write "/tmp/docs" -> number of files
--
-- Every link inside goes to a file that is written, or is not written as a link: sources of the tree are names only.
-- @module ganymede.reference.html
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local entries = require "ganymede.reference.html.entries"
local machine = require "ganymede.base.machine"
local markdown = require "ganymede.reference.html.markdown"
local page = require "ganymede.reference.html.page"
local reference = require "ganymede.reference"
local subjects = require "ganymede.reference.html.subjects"

local html = {}

-- Guides in the order of the navigation; those that come to docs/ later follow.
local order = { "README.md", "docs/tutorial.md", "docs/command_line.md", "docs/watching.md", "docs/faults.md",
  "docs/models.md", "docs/models_generation.md", "docs/models_text.md", "docs/models_tuning.md", "docs/data.md",
  "docs/images.md", "docs/diffusion.md", "docs/recommendation.md", "docs/metrics.md", "docs/optimizers.md",
  "docs/ranks.md", "docs/ranks_machines.md", "docs/ranks_restarts.md", "docs/tensor_parallelism.md",
  "docs/pipelines.md", "docs/experts.md", "docs/memory.md", "docs/memory_offload.md", "docs/memory_figures.md",
  "docs/planning.md", "docs/planning_machines.md", "docs/planning_model.md", "docs/planning_figures.md",
  "docs/planning_published.md", "docs/scale.md", "docs/scheduler.md", "docs/gpu.md", "docs/graphs.md",
  "docs/products.md", "docs/float8.md", "docs/gpu_measured.md", "docs/gpu_tests.md", "docs/gpu_kernels.md",
  "docs/performance.md", "docs/performance_kernels.md", "docs/performance_generation.md", "docs/performance_amx.md",
  "docs/performance_zen5.md", "docs/performance_ranks.md", "docs/design.md", "docs/design_jobs.md",
  "docs/design_models.md", "docs/testing.md", "docs/findings.md", "CONTRIBUTING.md", "CHANGELOG.md" }

local function guide_paths(root)
  local known, list = {}, {}
  for _, path in ipairs(order) do
    known[path] = true
    if core.is_file(root .. "/" .. path) then list[#list + 1] = path end
  end
  local others = core.list_folder(root .. "/docs")
  table.sort(others)
  for _, name in ipairs(others) do
    if name:find "%.md$" and not known["docs/" .. name] then list[#list + 1] = "docs/" .. name end
  end
  return list
end

-- "docs/ranks.md" -> "ranks.html"
local function file_of(path) return path:match("([^/]+)%.md$"):lower() .. ".html" end

-- "docs", "../recipes" -> "recipes"
local function joined(folder, target)
  local path = folder == "" and target or folder .. "/" .. target
  while path:find "[^/]+/%.%./" do path = path:gsub("[^/]+/%.%./", "", 1) end
  return path
end

-- Where a link of a guide goes; nil: to nothing that is written. copied: files beside the guides, by path.
local function linker(path, site)
  local folder = path:match "^(.*)/" or ""
  return function(target)
    if target:find "^%a+:" or target:find "^#" then return target end
    local file, anchor = target:match "^([^#]*)(.*)$"
    local full = joined(folder, file)
    if site.guide[full] then return site.guide[full] .. anchor end
    if full:find "^docs/" and full:find "%.%a+$" and core.is_file(site.root .. "/" .. full) then
      local to = full:gsub("^docs/", "")
      site.copied[to] = full
      return to
    end
  end
end

local function make_guide(path, site)
  local text = machine.read(site.root .. "/" .. path)
  local body, headings = markdown.convert(text, linker(path, site))
  local title = path == "README.md" and "Overview" or headings[1] and headings[1].title:gsub("[`*]", "") or path
  return { file = file_of(path), title = title, body = body, headings = headings, path = path }
end

local function guides(site)
  local paths = guide_paths(site.root)
  for _, path in ipairs(paths) do site.guide[path] = file_of(path) end
  for i, path in ipairs(paths) do site.guides[i] = make_guide(path, site) end
end

local function card(other, text)
  return ('<li><a href="%s"><strong>%s</strong>%s</a></li>'):format(other.file, markdown.escape(other.title),
    text and "<br>" .. markdown.escape(text) or "")
end

local function start_page(site, count)
  local out = { "<h1>Ganymede</h1>",
    '<p class="lead">Ganymede trains neural networks. It is one C program that embeds LuaJIT: you write the model '
      .. "and a table of settings in Lua, the program does the rest, on as many ranks as you say.</p>",
    ("<p>Type a name into the box above: %d names have an entry. <kbd>/</kbd> goes there from everywhere.</p>"):format(
      count), "<h2>Guides</h2>", '<ul class="cards">' }
  for _, guide in ipairs(site.guides) do out[#out + 1] = card(guide) end
  out[#out + 1] = '</ul>\n<h2>Reference</h2>\n<ul class="cards">'
  for _, subject in ipairs(site.subjects) do out[#out + 1] = card(subject, subject.sentence) end
  out[#out + 1] = "</ul>"
  return { file = "index.html", title = "Documentation", body = table.concat(out, "\n") }
end

-- What the search looks through: [name, kind, address, sentence, other names].
local function index(site)
  local rows = {}
  for _, entry in ipairs(reference.all()) do
    rows[#rows + 1] = json.array { entry.name, entry.what, entries.address(entry), entry.summary or "",
      table.concat(entry.names, " ") }
  end
  for _, guide in ipairs(site.guides) do
    for _, heading in ipairs(guide.headings) do
      local title = heading.title:gsub("[`*]", "")
      rows[#rows + 1] = json.array { title, "guide", guide.file .. "#" .. heading.id, guide.title, "" }
    end
  end
  return "var GANYMEDE_INDEX = " .. json.encode(json.array(rows)) .. ";\n"
end

local function write(folder, name, text)
  local inner = name:match "^(.*)/"
  if inner then core.make_folders(folder .. "/" .. inner) end
  core.write_whole(folder .. "/" .. name, text)
end

--- All files: list of { name, text }. root: the folder that holds docs/.
function html.files(root)
  local site = { root = root, guide = {}, guides = {}, copied = {}, subjects = subjects.pages(reference.all()) }
  guides(site)
  local files = {}
  local function add(name, text) files[#files + 1] = { name, text } end
  for _, subject in ipairs(site.subjects) do entries.fill(subject, reference.find) end
  for _, list in ipairs { { start_page(site, #reference.all()) }, site.guides, site.subjects } do
    for _, one in ipairs(list) do add(one.file, page.render(one, site)) end
  end
  for to, from in pairs(site.copied) do add(to, machine.read(root .. "/" .. from)) end
  local own = GANYMEDE_ROOT .. "/lua/ganymede/reference/html/"
  for _, name in ipairs { "style.css", "search.js" } do add(name, machine.read(own .. name)) end
  add("index.js", index(site))
  return files
end

--- Writes all files into a folder -> their number.
function html.write(folder)
  core.make_folders(folder)
  local files = html.files(GANYMEDE_ROOT)
  for _, file in ipairs(files) do
    if not file[2] then failure(1, "docs: %s cannot be read", file[1]) end
    write(folder, file[1], file[2])
  end
  return #files
end

return html
