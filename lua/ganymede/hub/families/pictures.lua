--- What families of models of images share: torchvision's and timm's, which have no config.json that says more than a
-- name.
--
-- The model_type in config.json is the library and the name of its model: "torchvision.resnet18", "timm.convnext_tiny".
-- A folder of timm's own (architecture = "resnet18", and no model_type) is understood, too. Beside num_classes and
-- in_chans the config may have options of ours, under our names, where a model differs from the one that is named.
-- @module ganymede.hub.families.pictures
local families = require "ganymede.hub.families"

local M = {}

-- What timm says besides, and what changes no number.
local idle = { "architecture", "num_features", "pretrained_cfg", "pretrained", "license", "tags", "library_name" }

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function fits(opt, fixed, defaults)
  for name, value in pairs(fixed) do
    local own = opt[name]
    if own == nil then own = defaults[name] end
    if own ~= value then return false end
  end
  return true
end

--- A family. given: library; model, the class of ours; sizes, a list of { name there, options that it means }; keys,
-- the options of ours that a config may have; defaults, those of these options; entries, constants, ignored: as of a
-- family.
function M.family(given)
  local family = { model = given.model, types = {}, entries = given.entries, constants = given.constants,
    ignored = given.ignored }
  local by_type = {}
  for _, size in ipairs(given.sizes) do
    local name = given.library .. "." .. size[1]
    family.types[name], by_type[name] = true, size[2]
  end

  function family.options(config)
    local opt = { classes = config:get("num_classes", 1000), channels = config:get("in_chans", 3) }
    config:expect("global_pool", "avg")
    for _, key in ipairs(idle) do config:get(key) end
    for key, value in pairs(by_type[config:need "model_type"]) do opt[key] = value end
    for _, key in ipairs(given.keys) do
      local value = config:get(key)
      if value ~= nil then opt[key] = value end
    end
    return opt
  end

  function family.config(opt)
    for _, size in ipairs(given.sizes) do
      if fits(opt, size[2], given.defaults) then
        local config = { model_type = given.library .. "." .. size[1], architecture = size[1],
          num_classes = opt.classes, in_chans = opt.channels }
        for _, key in ipairs(given.keys) do
          if opt[key] ~= nil and not same(opt[key], given.defaults[key]) then config[key] = opt[key] end
        end
        return config
      end
    end
    local name = next(given.sizes[1][2])
    return families.refuse(given.library .. "." .. given.sizes[1][1], name, opt[name])
  end

  return family
end

local List = getmetatable(families.list()).__index

--- Weight, bias and running numbers of a batch norm of so many channels.
function List:batch_norm(ours, theirs, channels)
  self:both(ours, theirs)
  for _, name in ipairs { ".running_mean", ".running_var" } do
    self[#self + 1] = { parameter = ours .. name, buffer = { channels }, pieces = { { name = theirs .. name } } }
  end
  local counter = theirs .. ".num_batches_tracked" -- there a number, here a tensor of one
  self[#self + 1] = { parameter = ours .. ".num_batches_tracked", buffer = { 1 }, wide = true, dtype = "i64",
    shapes = { [counter] = {} }, pieces = { { name = counter, shape = { 1 } } } }
end

--- A parameter that has another shape there.
function List:shaped(ours, theirs, here, there)
  self[#self + 1] = { parameter = ours, shapes = { [theirs] = there }, pieces = { { name = theirs, shape = here } } }
end

--- Queries, keys and values of one layer, whose rows are (3, heads, size) there.
function List:joint_qkv(ours, theirs, heads, width, has_bias)
  local size = width / heads
  local function rows(what)
    return function(part, head) return theirs .. what, (part - 1) * width + head * size + 1 end
  end
  self[#self + 1] = { parameter = ours .. ".weight",
    pieces = families.qkv(heads, 1, size, width, rows ".weight") }
  if has_bias then
    self[#self + 1] = { parameter = ours .. ".bias", pieces = families.qkv(heads, 1, size, nil, rows ".bias") }
  end
end

return M
