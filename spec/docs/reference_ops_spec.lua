-- What the reference says of ops and of the methods of tensors is so: examples, dtypes, and which arguments have a
-- gradient, tried by calling them.
local gm = require "ganymede"
local example = require "spec.support.example"
local reference = require "ganymede.reference"

local of_tensors = {}
for _, entry in ipairs(reference.all()) do
  if entry.kind == "op" or entry.kind == "method" or entry.group == "gm" then of_tensors[#of_tensors + 1] = entry end
end

local function tag(entry, name) return table.concat(entry.doc.tags[name] or {}, " ") end

local function words(text)
  local set = {}
  for word in text:gmatch "%S+" do set[word] = true end
  return set
end

-- gm.ops with one op replaced, as examples of that op see it; methods of tensors are the op, too.
local function with_op(name, fn, run)
  local methods, real = require("ganymede.tensor").methods, gm.ops[name]
  local is_method = methods[name] == real
  local globals = example.globals()
  globals.ops = setmetatable({ [name] = fn }, { __index = gm.ops })
  if is_method then methods[name] = fn end
  local ok, why = pcall(run, globals)
  if is_method then methods[name] = real end
  if not ok then error(why, 0) end
end

local float = { f32 = true, f64 = true, bf16 = true, f16 = true }

-- Which arguments of a call have a gradient -> set of names; `seen`: those that are tensors of numbers.
local function try_gradients(entry, n, arguments, out, seen)
  for i, argument in ipairs(entry.signature.arguments) do
    local value = arguments[i]
    local tensor = gm.is_tensor(value) and value or type(value) == "table" and gm.is_tensor(value[1]) and value[1]
    if tensor and float[tensor:dtype()] then
      local leaf = gm.tensor(tensor:totable(), { dtype = tensor:dtype() }):requires_grad(true)
      local given = { unpack(arguments, 1, n) }
      given[i] = tensor == value and leaf or { leaf, unpack(value, 2) }
      local y = gm.ops[entry.short](unpack(given, 1, n))
      seen[argument.name] = true
      out[argument.name] = out[argument.name] or y:requires_grad() or not float[y:dtype()] and "whole" or nil
    end
  end
end

describe("the reference of ops and tensors", function()
  it("has all of them", function()
    assert.is_true(#of_tensors > 100)
    local has = {}
    for _, entry in ipairs(of_tensors) do
      for _, name in ipairs(entry.names) do has[name] = true end
    end
    for name in pairs(gm.ops) do assert.is_true(has["gm.ops." .. name], name) end
    for name in pairs(require("ganymede.tensor").methods) do assert.is_true(has["x:" .. name], name) end
  end)

  for _, entry in ipairs(of_tensors) do
    it(entry.name .. " has an example that is right", function()
      assert.is_truthy(entry.example, "there is none")
      example.run(entry)
    end)
  end
end)

describe("the reference of ops", function()
  for _, entry in ipairs(of_tensors) do
    if entry.kind == "op" then
      it(entry.short .. " names the arguments that have a gradient", function()
        local said, got, seen = words(tag(entry, "gradient")), {}, {}
        local real = gm.ops[entry.short]
        with_op(entry.short, function(...)
          try_gradients(entry, select("#", ...), { ... }, got, seen)
          return real(...)
        end, function(globals) example.run(entry, globals) end)
        for name in pairs(seen) do
          if got[name] ~= "whole" or said.none then -- a cast to whole numbers has none
            assert.equal(said[name] or false, got[name] == true, name .. " of " .. entry.name)
          end
        end
        if said.none then said.none = nil end
        for name in pairs(said) do assert.is_truthy(entry.doc.params[name], name .. " is no argument") end
      end)

      it(entry.short .. " takes the floating-point dtypes that it names", function()
        local said, real = words(tag(entry, "dtype")), gm.ops[entry.short]
        local count = 0
        with_op(entry.short, function(...)
          for name in pairs(float) do
            local given, any = { ... }, false
            for i = 1, select("#", ...) do
              local value = given[i]
              local is_float = gm.is_tensor(value) and float[value:dtype()] ~= nil
              if is_float then given[i], any = value:to(name), true end
            end
            for i = 1, any and 0 or select("#", ...) do -- of whole numbers only: floating-point ones in their place
              if gm.is_tensor(given[i]) and not said[name] then given[i] = given[i]:to(name) end
            end
            assert.equal(said[name] or false, (pcall(real, unpack(given, 1, select("#", ...)))), name)
            count = count + 1
          end
          return real(...)
        end, function(globals) example.run(entry, globals) end)
        assert.is_true(count > 0, "its example does not call it")
      end)

      it(entry.short .. " takes whole numbers where it says so, and only there", function()
        local said = words(tag(entry, "dtype"))
        local x = gm.ones({ 2, 2 }, { dtype = "i64" })
        local first = entry.signature.arguments[1].types[1]
        local fill = { tensor = x, integer = 1, number = 1, string = "f32", table = { x, x } }
        if entry.short == "patchify" then fill.tensor = gm.ones({ 1, 1, 2, 2 }, { dtype = "i64" }) end
        if entry.short == "where" then fill.tensor = gm.ones({ 2, 2 }, { dtype = "u8" }) end
        if entry.short == "one_hot" then fill.integer = 2 end
        local given = {}
        for i, argument in ipairs(entry.signature.arguments) do
          given[i] = not argument.optional and fill[argument.types[1]] or nil
        end
        local views = { reshape = { x, 4 }, expand = { x, 2, 2 }, permute = { x, 2, 1 } }
        given = views[entry.short] or given
        local ok, why = pcall(gm.ops[entry.short], unpack(given, 1, #given))
        assert.equal(said.i64 or false, ok, first .. ": " .. tostring(why))
      end)
    end
  end
end)
