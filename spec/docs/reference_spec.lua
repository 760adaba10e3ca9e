-- The reference is whole: every public name has an entry with a sentence, every argument and option is described, and
-- every example runs. spec/docs/reference_ops_spec.lua tries what is said of ops.
local gm = require "ganymede"
local example = require "spec.support.example"
local reference = require "ganymede.reference"
local signature = require "ganymede.base.signature"
local texts = require "ganymede.reference.texts"

local entries = reference.all()
local of_name = {}
for _, entry in ipairs(entries) do
  for _, name in ipairs(entry.names) do of_name[name] = entry end
end

local function none(wrong) assert.equal("", table.concat(wrong, "\n")) end

-- A list of complaints about entries: complain(entry) -> a string, or nothing.
local function over_entries(complain)
  local wrong = {}
  for _, entry in ipairs(entries) do
    local said = complain(entry)
    if said then wrong[#wrong + 1] = entry.name .. ": " .. said end
  end
  none(wrong)
end

local function missing(names)
  local wrong = {}
  for _, name in ipairs(names) do
    if not of_name[name] then wrong[#wrong + 1] = name .. " has no entry" end
  end
  none(wrong)
end

describe("the reference", function()
  it("has what gm serves", function()
    local names = {}
    for name, value in pairs(require "ganymede.tensor") do
      if type(value) == "function" then names[#names + 1] = "gm." .. name end
    end
    for name in pairs(require("ganymede.base.public").from) do
      local is_class = type(gm[name]) == "table" and rawget(gm[name], "options") and rawget(gm[name], "name")
      names[#names + 1] = is_class and name or "gm." .. name
      if is_class then of_name[name] = of_name[name] or reference.find(name)[1] end
    end
    assert.is_true(#names > 50)
    for name in pairs(require("ganymede.base.public").modules) do names[#names + 1] = "gm." .. name end
    missing(names)
  end)

  it("has every class that is registered", function()
    local names = {}
    for kind, shelf in pairs(gm.registry) do
      if type(shelf) == "table" and kind:find "^%l" then
        for _, name in ipairs(shelf:names()) do
          local found
          for _, entry in ipairs(reference.find(name)) do found = found or entry end
          if not found then names[#names + 1] = kind .. "." .. name end
        end
      end
    end
    none(names)
  end)

  it("has every setting, verb and variable", function()
    local names = {}
    local function walk(fields, prefix)
      for key, field in pairs(fields) do
        names[#names + 1] = prefix .. key
        if field.fields then walk(field.fields, prefix .. key .. ".") end
      end
    end
    walk(require("ganymede.config.schema").fields, "")
    for _, verb in ipairs(require("ganymede.cli").verbs) do names[#names + 1] = "ganymede " .. verb end
    for name, variable in pairs(require("ganymede.base.environment").variables) do
      if variable.whose == "user" then names[#names + 1] = name end
    end
    assert.is_true(#names > 80)
    missing(names)
  end)

  it("has every function of the modules that users call, but for those listed as internal", function()
    local names = {}
    for _, module in ipairs { "comm", "data", "optim", "lr_scheduler", "hooks" } do
      for key, value in pairs(gm[module]) do
        if type(value) == "function" and signature.of(value) then
          names[#names + 1] = ("gm.%s.%s"):format(module, key)
        end
      end
    end
    assert.is_true(#names > 25)
    missing(names)
  end)

  it("says in a sentence what each is", function()
    over_entries(function(entry)
      if not entry.summary or #entry.summary < 12 then return "it has no sentence" end
      if not entry.summary:find "[%.:%?]$" then return "no sentence: " .. entry.summary end
      for _, stub in ipairs { "TO" .. "DO", "placeholder" } do
        if entry.summary:find(stub) then return "a stub: " .. entry.summary end
      end
    end)
  end)

  it("describes every argument and every option", function()
    over_entries(function(entry)
      for _, list in ipairs { entry.arguments, entry.options } do
        for _, item in ipairs(list) do
          if not item.text or #item.text < 3 then return item.name .. " is not described" end
          local is_any = item.types and item.types[1] == "any" and not item.typed
          if is_any and entry.signature.fn then return item.name .. " has no type" end
        end
      end
    end)
  end)

  it("describes no argument that there is not", function()
    over_entries(function(entry)
      for name in pairs(entry.doc.params) do
        local found = entry.kind ~= "function" and entry.kind ~= "object" and entry.kind ~= "op"
          and entry.kind ~= "method"
        for _, argument in ipairs(entry.signature and entry.signature.arguments or {}) do
          found = found or argument.name == name
        end
        if not found then return "there is no argument " .. name end
      end
    end)
  end)

  it("says what functions return", function()
    over_entries(function(entry)
      local calls = entry.kind == "op" or entry.kind == "method" or entry.kind == "function" or entry.kind == "object"
      if calls and not entry.doc.tags["return"] then return "what it returns is not said" end
    end)
  end)

  it("names entries under `see also`", function()
    over_entries(function(entry)
      for _, name in ipairs(entry.see) do
        if #reference.find(name) ~= 1 then return ("%d entries for %s"):format(#reference.find(name), name) end
      end
    end)
  end)

  it("uses every text of lua/ganymede/reference/texts", function() none(texts.unused()) end)
end)

describe("an example", function()
  local in_lua = { op = 1, method = 1 } -- which have a spec of their own
  for _, entry in ipairs(entries) do
    local has_own = in_lua[entry.kind] or entry.group == "gm" and of_name["gm." .. entry.short] == nil
    local is_command = entry.kind == "setting" or entry.kind == "verb" or entry.kind == "variable"
    if not has_own and not is_command and entry.kind ~= "module" then
      it("of " .. entry.name .. " gives what it says", function()
        assert.is_truthy(entry.example, "there is none")
        example.run(entry)
      end)
    end
  end

  it("that is wrong is noticed", function()
    for _, lines in ipairs { { "1 + 1 --> 3" }, { "gm.tensor { 1 } --> { 2 }" }, { "nope() --> 1" }, { "x = = 1" } } do
      assert.is_false((pcall(example.run, { name = "x", example = lines })))
    end
    example.run { name = "x", example = { "x = 1 / 3", "x, 'a' --> 0.3333, \"a\"", "{ 1, 2 } --> { 1, ..." } }
  end)
end)
