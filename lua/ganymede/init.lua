--- Ganymede: train neural networks from Lua.
--
-- `local gm = require "ganymede"` gives the tensor functions (gm.tensor, gm.zeros, gm.scope, ...), the ops (gm.ops),
-- what recipes call, and the public modules: gm.nn, gm.data, gm.optim, ... ganymede.base.public lists both. Each is
-- loaded when it is first touched.
-- @module ganymede
local missing = require "ganymede.base.missing"
local public = require "ganymede.base.public"

missing.guard("core", require "ganymede.core")

local gm = { ops = require "ganymede.tensor.ops" }
for name, fn in pairs(require "ganymede.tensor") do gm[name] = fn end

local function load_named(name)
  local entry = public.from[name]
  if entry then return require(entry[1])[entry[2]] end
  return public.modules[name] and require(public.modules[name])
end

missing.provide("gm", function()
  local names = {}
  for _, list in ipairs { gm, public.from, public.modules } do
    for name in pairs(list) do names[#names + 1] = name end
  end
  return names
end)

return setmetatable(gm, {
  __index = function(self, name)
    local value = type(name) == "string" and load_named(name)
    if value == nil or value == false then
      missing.refuse("gm", name, 2)
    end
    rawset(self, name, value)
    return value
  end,
})
