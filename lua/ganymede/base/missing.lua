--- Names that are not there: tensor methods, ops, layers, ... The error says what to write in their place.
--
--     missing.guard("optim", optim)          -- reading optim.Lion is an error that names the nearest
--     missing.refuse("tensor", "view", 2)    -- a tensor has no 'view': write t:reshape(...)
--
-- What people know from PyTorch and NumPy is listed in ganymede.base.other_names, next come names that another
-- holder has (t:layer_norm is gm.ops.layer_norm), then the nearest by edits.
-- @module ganymede.base.missing
local options = require "ganymede.base.options"
local other_types = require "ganymede.base.other_types"
local others = require "ganymede.base.other_names"

local missing = {}

-- holder -> what messages call it, how a name of it is written, whose other names serve it too, the kind of its types
local holders = {
  tensor = { said = "a tensor has no", written = "t:%s(...)", others = { "tensor" } },
  ops = { said = "gm.ops has no", written = "gm.ops.%s(...)", others = { "ops", "tensor" } },
  gm = { said = "gm has no", others = { "gm", "ops", "tensor" } },
  nn = { said = "nn has no layer", written = "gm.nn.%s", others = { "nn" } },
  optim = { said = "gm.optim has no", written = "gm.optim.%s", others = { "optim" } },
  lr_scheduler = { said = "gm.lr_scheduler has no", written = "gm.lr_scheduler.%s", others = { "lr_scheduler" } },
  metrics = { said = "gm.metrics has no", written = "gm.metrics.%s", others = { "metrics" } },
  comm = { said = "gm.comm has no", written = "gm.comm.%s(...)", others = { "comm" } },
  data = { said = "gm.data has no", others = { "data" } },
  models = { said = "gm.models has no", written = "gm.models.%s", others = {}, types = "models" },
  hooks = { said = "gm.hooks has no", written = "gm.hooks.%s", others = {}, types = "hooks" },
}
for _, name in ipairs { "checkpoint", "colossal", "config", "context", "core", "energy", "engine",
                        "gradient_handlers", "json", "log", "precision", "profile", "registry", "schedules", "trace",
                        "trainer" } do
  holders[name] = { said = ("gm.%s has no"):format(name), others = {} }
end
local elsewhere = { "ops", "tensor", "nn", "optim", "lr_scheduler", "metrics", "comm", "models", "hooks" } -- in turn

-- Names of a holder: a table that has them as keys, or a function that lists them.
local provided = {}

--- What a holder has, for hints.
function missing.provide(kind, names) provided[kind] = names end

local function names_of(kind)
  local given = provided[kind]
  if type(given) == "function" then return given() end
  return options.sorted_keys(given or {})
end

local function has(kind, name)
  local given = provided[kind]
  return type(given) == "table" and rawget(given, name) ~= nil
end

-- "write ..." from the list of other names or from another holder; nil.
local function instead(kind, name)
  for _, list in ipairs(holders[kind].others) do
    if others[list][name] then return others[list][name] end
  end
  local as_type = other_types.of(holders[kind].types, name)
  if as_type then return as_type end
  for _, other in ipairs(elsewhere) do
    if other ~= kind and has(other, name) then return "write " .. holders[other].written:format(name) end
  end
end

--- Raises what is said of a name that the holder does not have.
function missing.refuse(kind, name, level)
  local text = type(name) == "string" and instead(kind, name)
  local hint = text and ": " .. text or options.hint_or_list(name, names_of(kind), "; there are ")
  error(("%s '%s'%s"):format(holders[kind].said, tostring(name), hint), (level or 1) + 1)
end

--- Makes missing names of a table such errors; returns it. A metatable that it has stays. The trap: where a name may
-- be missing, read it by rawget.
function missing.guard(kind, holder)
  assert(holders[kind], kind)
  missing.provide(kind, holder)
  local meta = getmetatable(holder) or {}
  assert(meta.__index == nil, kind)
  meta.__index = function(_, name) missing.refuse(kind, name, 2) end
  return setmetatable(holder, meta)
end

return missing
