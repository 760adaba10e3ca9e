-- Annotations for lua-language-server: each file is Lua, every name that users call is defined once, and every
-- parameter that is described is one.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local luals = require "ganymede.reference.luals"
local reference = require "ganymede.reference"
local shell = require "spec.support.shell"

local files, all = {}, ""
for _, file in ipairs(luals.files()) do
  files[file[1]] = file[2]
  all = all .. file[2]
end

describe("annotations", function()
  it("are Lua that defines the names", function()
    for name, text in pairs(files) do
      local chunk, why = loadstring(text, "@" .. name)
      assert.is_truthy(chunk, why)
      assert.matches("^%-%-%-@meta", text)
      chunk()
    end
    local gm = loadstring(files["ganymede.lua"])()
    for _, name in ipairs { "zeros", "ops", "nn", "fit" } do assert.is_truthy(gm[name], name) end
    assert.equal("function", type(gm.ops.linear))
    assert.equal("function", type(gm.nn.Linear))
  end)

  it("have every name that is called, once", function()
    local wrong, times, fields = {}, {}, {}
    for name in all:gmatch "\nfunction ([%w_.:]+)%(" do times[name] = (times[name] or 0) + 1 end
    for name in all:gmatch "\n%-%-%-@field ([%w_]+)" do fields[name] = true end
    for _, entry in ipairs(reference.all()) do
      local written = entry.kind == "method" and "Tensor:" .. entry.short or entry.name
      local is_called = entry.name:find "^gm%." and entry.kind ~= "module" and entry.kind ~= "value"
        or entry.kind == "method" or entry.kind == "object"
      if is_called and times[written] ~= 1 then wrong[#wrong + 1] = entry.name .. " is not there once" end
      if entry.is_method and not times["Tensor:" .. entry.short] then
        wrong[#wrong + 1] = entry.short .. " is no method"
      end
      if entry.kind == "setting" and not fields[entry.short] then wrong[#wrong + 1] = entry.name .. " is no field" end
    end
    assert.equal("", table.concat(wrong, "\n"))
  end)

  it("describe parameters in their order, and options as fields", function()
    local described, wrong = {}, {}
    for line in all:gmatch "[^\n]+" do
      local name = line:match "^%-%-%-@param ([%w_.]+)"
      local head, list = line:match "^function ([%w_.:]+)%((.-)%)"
      if name then described[#described + 1] = name end
      if head then
        local said = table.concat(described, ", ")
        if said ~= list then wrong[#wrong + 1] = head .. ": " .. said end
        described = {}
      end
    end
    assert.equal("", table.concat(wrong, "\n"))
    assert.is_truthy(files["ganymede.lua"]:find('---@field activation? "relu"|"gelu"|"gelu_tanh"|"silu" ', 1, true))
    assert.is_truthy(all:find("\nfunction Tensor:sum(dim, keepdim) end\n", 1, true)) -- the tensor is before the colon
    assert.is_truthy(files["recipe.lua"]:find("---@class gm.Recipe.parallel.tensor\n", 1, true))
  end)

  it("are written by the verb", function()
    local folder = shell.temporary_folder()
    local result = shell.run(("%s docs --luals %s/meta"):format(shell.quote(shell.executable()), shell.quote(folder)))
    assert.equal(0, result.code)
    for name, text in pairs(files) do assert.equal(text, shell.read(folder .. "/meta/" .. name)) end
    shell.remove(folder)
  end)
end)
