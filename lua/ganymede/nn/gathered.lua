--- gm.gathered: parameters that rest in parts (ZeRO stage 3), held whole while a function runs.
-- @module ganymede.nn.gathered
local core = require "ganymede.core"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local function let_go(list, ok, ...)
  for _, t in ipairs(list) do core.parameter_hold(t, false) end
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...) while parameters are whole on every rank, and stay where they are. For code that works on parameters by
-- other means than ops, such as their address (p:data()). What it writes is kept; all ranks must write the same.
-- Collective. Where parameters are whole anyway, it only runs fn.
-- @param parameters a tensor, a list of them, or a module
-- @param fn the function
-- @param arguments what it is called with
-- @return what fn returns
-- @error what fn raises
-- @example
--   layer = gm.nn.Linear(2, 2)
--   gm.gathered(layer, function() return layer.weight:data() ~= nil end) --> true
local function gathered(parameters, fn, ...)
  local list = module.is_module(parameters) and parameters:parameters() or parameters
  if core.is_tensor(list) then list = { list } end
  if type(list) ~= "table" then
    error("gm.gathered takes a parameter, a list of parameters or a module; got " .. options.brief(parameters), 2)
  end
  for i, t in ipairs(list) do
    if not core.is_tensor(t) then error(("gm.gathered: parameter %d is %s"):format(i, options.brief(t)), 2) end
  end
  for _, t in ipairs(list) do core.parameter_hold(t, true) end
  return let_go(list, pcall(fn, ...))
end

local takes = "parameters any, fn function, arguments any?, ..."
return { gathered = signature.declare("gm.gathered", takes, nil, gathered) }
