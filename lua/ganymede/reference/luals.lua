--- Annotations for lua-language-server, of all that users call: `---@meta` files with classes, parameters, fields.
--
--     luals.write "annotations"     -> number of files; then "workspace.library": ["annotations"] in .luarc.json
--
-- Each file is Lua that defines empty functions, so that any editor can read it.
-- @module ganymede.reference.luals
local core = require "ganymede.core"
local reference = require "ganymede.reference"

local luals = {}

local types = { tensor = "gm.Tensor", object = "userdata", module = "gm.Module", ["function"] = "function",
  any = "any", integer = "integer", number = "number", string = "string", boolean = "boolean", table = "table",
  list = "table" }

local function add(lines, text) lines[#lines + 1] = text end

local function one_line(text) return (text or ""):gsub("%s+", " ") end

-- "(a string)" and lists of types of ganymede.base.options, as annotations write them.
local function typed(words)
  local seen, out = {}, {}
  for _, word in ipairs(words) do
    local name = types[word] or "any"
    if not seen[name] then seen[name], out[#out + 1] = true, name end
  end
  return table.concat(out, "|")
end

local function words_of(text)
  local words = {}
  for word in text:gmatch "%a+" do
    if types[word] then words[#words + 1] = word end
  end
  return #words > 0 and words or { "any" }
end

local function option_type(o)
  if o.one_of then
    local out = {}
    for i, choice in ipairs(o.one_of) do
      out[i] = type(choice) == "string" and ("%q"):format(choice) or tostring(choice)
    end
    return table.concat(out, "|")
  end
  return typed(type(o.type) == "table" and o.type or { o.type or "any" })
end

-- What a text after @return says, as a type; nil: nothing is returned.
local function return_type(text)
  if text:find "^nothing" then return nil end
  for _, guess in ipairs { { "^true", "boolean" }, { "^a whole number", "integer" }, { "^a number", "number" },
    { "^a string", "string" }, { '^"', "string" }, { "^a list", "table" }, { "^a table", "table" }, { "^{", "table" },
    { "tensor", "gm.Tensor" }, { "^views? of", "gm.Tensor" }, { "^t$", "gm.Tensor" }, { "^t[; ]", "gm.Tensor" },
    { "^x ", "gm.Tensor" }, { "^losses", "gm.Tensor" } } do
    if text:find(guess[1]) then return guess[2] end
  end
  return "any"
end

local function describe(lines, entry)
  add(lines, "---" .. one_line(entry.summary))
  if entry.example then
    add(lines, "---```lua")
    for _, line in ipairs(entry.example) do add(lines, "---" .. line) end
    add(lines, "---```")
  end
end

local reserved = { ["end"] = true, ["function"] = true, ["repeat"] = true, ["local"] = true }

local function safe(name) return reserved[name] and name .. "_" or name end

-- Fields of a class of options: "---@field inputs integer width of x".
local function option_class(lines, name, list)
  add(lines, "---@class " .. name)
  for _, item in ipairs(list) do
    local may = item.default ~= "required" and "?" or ""
    add(lines, ("---@field %s%s %s %s"):format(item.name, may, option_type(item.entry), one_line(item.text)))
  end
  add(lines, "")
end

-- A function under a name that Lua can define: "gm.ops.sum", "Tensor:sum".
local function fn(lines, entry, name, first)
  local names, class = {}, entry.name:gsub(":", ".") .. ".options"
  if #entry.options > 0 and not first then option_class(lines, class, entry.options) end
  describe(lines, entry)
  for i = first or 1, #entry.arguments do
    local a = entry.arguments[i]
    local is_options = #entry.options > 0 and i == #entry.arguments
    local kind = is_options and class or a.typed and typed(words_of(a.typed)) or typed(a.types)
    if a.rest then
      add(lines, ("---@param ... %s %s"):format(kind, one_line(a.text)))
      names[#names + 1] = "..."
    else
      add(lines, ("---@param %s%s %s %s"):format(safe(a.name), a.optional and "?" or "", kind, one_line(a.text)))
      names[#names + 1] = safe(a.name)
    end
  end
  local gives = (entry.doc.tags["return"] or {})[1]
  local kind = gives and return_type(gives)
  if kind then add(lines, ("---@return %s # %s"):format(kind, one_line(gives))) end
  add(lines, ("function %s(%s) end\n"):format(name, table.concat(names, ", ")))
end

local function head(title) return { "---@meta", "-- " .. title .. "; `ganymede docs --luals` has written it.", "" } end

-- ---------------------------------------------------------------- files

local function tensors()
  local lines = head "Tensors"
  add(lines, "---A tensor: numbers in a shape, with gradients if they are asked for.\n---@class gm.Tensor")
  for _, operator in ipairs { "add", "sub", "mul", "div", "pow" } do
    add(lines, ("---@operator %s(gm.Tensor|number): gm.Tensor"):format(operator))
  end
  add(lines, "---@operator unm: gm.Tensor")
  add(lines, "local Tensor = {}\n")
  for _, entry in ipairs(reference.all()) do
    if entry.kind == "method" then fn(lines, entry, "Tensor:" .. entry.short) end
    if entry.is_method then fn(lines, entry, "Tensor:" .. entry.short, 2) end
  end
  return lines
end

local function class_of(lines, entry)
  option_class(lines, entry.name .. ".options", entry.options)
  describe(lines, entry)
  local positional = entry.value ~= nil and type(entry.value) == "table" and entry.value.positional or {}
  local names = { #positional > 0 and safe(positional[1]) or "options" }
  add(lines, ("---@param %s? %s.options|any"):format(names[1], entry.name))
  for i = 2, #positional do
    names[i] = safe(positional[i])
    add(lines, ("---@param %s? any"):format(names[i]))
  end
  local result = (entry.kind == "layer" or entry.kind == "model" or entry.kind == "loss") and "gm.Module" or "table"
  add(lines, "---@return " .. result)
  add(lines, ("function %s(%s) end\n"):format(entry.name, table.concat(names, ", ")))
end

local class_kinds = { layer = true, model = true, loss = true, optimizer = true, lr_scheduler = true, hook = true,
  metric = true, dataset = true, sampler = true, transform = true, schedule = true, initializer = true }

local function modules(lines)
  add(lines, "local gm = {}")
  for _, name in ipairs { "ops", "nn", "nn.init", "models", "data", "optim", "lr_scheduler", "hooks", "schedules" } do
    add(lines, ("gm.%s = {}"):format(name))
  end
  for _, entry in ipairs(reference.all()) do
    local own = entry.kind == "module" and entry.short
    if own and not table.concat(lines, "\n"):find("gm." .. own .. " = {}", 1, true) then
      add(lines, "---" .. one_line(entry.summary))
      add(lines, ("gm.%s = {}"):format(own))
    end
  end
  add(lines, "")
end

local function program()
  local lines = head "The table gm"
  lines[1] = "---@meta ganymede"
  modules(lines)
  for _, entry in ipairs(reference.all()) do
    if entry.name:find "^gm%." then
      if entry.kind == "op" or entry.kind == "function" then fn(lines, entry, entry.name) end
      if entry.kind == "value" then
        describe(lines, entry)
        add(lines, entry.name .. " = {}\n")
      end
      if class_kinds[entry.kind] then class_of(lines, entry) end
    end
  end
  add(lines, "return gm")
  return lines
end

local holders = { module = "gm.Module", list = "gm.ModuleList", engine = "gm.EngineObject",
  trainer = "gm.TrainerObject", loader = "gm.Loader", dataset = "gm.Dataset", optimizer = "gm.Optimizer",
  scheduler = "gm.Scheduler", registry = "gm.Registry", gpc = "gm.Context" }

local function objects()
  local lines, opened = head "Objects that users hold", {}
  for _, entry in ipairs(reference.all()) do
    if entry.kind == "object" then
      local holder = entry.group
      if not opened[holder] then
        opened[holder] = true
        add(lines, ("---@class %s\nlocal %s = {}\n"):format(holders[holder], holder))
      end
      fn(lines, entry, ("%s:%s"):format(holder, entry.short))
    end
  end
  return lines
end

-- The keys of recipes: a class for each level.
local function recipes()
  local lines, levels, order = head "Recipes", { [""] = "gm.Recipe" }, { "" }
  local fields = { [""] = {} }
  for _, entry in ipairs(reference.all()) do
    if entry.kind == "setting" then
      local path, key = entry.name:match "^(.-)%.?([^.]+)$"
      if not fields[path] then
        fields[path], levels[path], order[#order + 1] = {}, "gm.Recipe." .. path, path
      end
      table.insert(fields[path], { key = key, entry = entry })
    end
  end
  for _, path in ipairs(order) do
    add(lines, "---@class " .. levels[path])
    for _, field in ipairs(fields[path]) do
      local o, name = field.entry.declared, field.entry.name
      local may = (o.optional or o.default ~= nil) and "?" or ""
      local kind = option_type(o) .. (fields[name] and "|" .. levels[name] or "")
      add(lines, ("---@field %s%s %s %s"):format(field.key, may, kind, one_line(o.doc)))
    end
    add(lines, "")
  end
  return lines
end

--- The files: list of { name, text }.
function luals.files()
  local files = {}
  for _, file in ipairs { { "ganymede.lua", program }, { "tensor.lua", tensors }, { "objects.lua", objects },
    { "recipe.lua", recipes } } do
    files[#files + 1] = { file[1], table.concat(file[2](), "\n") .. "\n" }
  end
  return files
end

--- Writes them into a folder that is there -> their number.
function luals.write(folder)
  local files = luals.files()
  for _, file in ipairs(files) do core.write_whole(folder .. "/" .. file[1], file[2]) end
  return #files
end

return luals
