--- Entries of ops, of the methods of tensors, and of the functions of gm that make and hold them.
-- @module ganymede.reference.tensors
local entry = require "ganymede.reference.entry"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local function op(name, fn)
  return entry.of_function(fn, { kind = "op", name = "gm.ops." .. name, names = { "ops." .. name } })
end

-- The names by which people ask for a method.
local function method_names(name) return { "tensor:" .. name, "x:" .. name, "t:" .. name, "tensor." .. name } end

-- The method is the op: one entry, called in two ways.
local function add_method(made, name)
  for _, other in ipairs(method_names(name)) do made.names[#made.names + 1] = other end
  made.calls[2], made.is_method = entry.call(made.signature, "x:" .. name), true
end

local function method(name, fn)
  local names = method_names(name)
  local made = entry.of_function(fn, { kind = "method", name = names[1], names = { unpack(names, 2) } })
  made.calls[1] = entry.call(signature.of(fn), "x:" .. name)
  return made
end

local function functions(tensor, add)
  for _, name in ipairs(options.sorted_keys(tensor)) do
    if type(tensor[name]) == "function" then
      add(entry.of_function(tensor[name], { kind = "function", group = "gm", of = "tensor", name = "gm." .. name }))
    end
  end
end

--- Calls add(entry) for each.
return function(add)
  local ops, tensor = require "ganymede.tensor.ops", require "ganymede.tensor"
  local by_function = {}
  for _, name in ipairs(options.sorted_keys(ops)) do
    local made = op(name, ops[name])
    by_function[ops[name]] = made
    add(made)
  end
  for _, name in ipairs(options.sorted_keys(tensor.methods)) do
    local fn = tensor.methods[name]
    if by_function[fn] then add_method(by_function[fn], name) else add(method(name, fn)) end
  end
  functions(tensor, add)
end
