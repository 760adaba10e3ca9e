--- What families of models of images share: torchvision's and timm's, which have no config.json that says more than a
-- name.
--
-- The model_type in config.json is the library and the name of its model: "torchvision.resnet18", "timm.convnext_tiny".
-- A folder of timm's own (architecture = "resnet18", and no model_type) is understood, too. Beside num_classes and
-- in_chans the config may have options of ours, under our names, where a model differs from the one that is named. What
-- timm calls model_args is read, too.
-- @module ganymede.hub.families.pictures
local families = require "ganymede.hub.families"
local options = require "ganymede.base.options"

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
    if not same(own, value) then return false end
  end
  return true
end

-- The option of a model of that size, if nothing else is said.
local function usual(given, size, name)
  local value = size[2][name]
  if value == nil then value = given.defaults[name] end
  return value
end

-- The size that has the model's name. given.first: the first, where none fits; its config then says what differs.
local function size_of(given, opt)
  for _, size in ipairs(given.sizes) do
    if fits(opt, size[2], given.defaults) then return size end
  end
  if given.first then return given.sizes[1] end
  local name = next(given.sizes[1][2])
  return families.refuse(given.library .. "." .. given.sizes[1][1], name, opt[name])
end

-- Refuses options that have only one value there.
local function check_only(given, opt)
  for name, value in pairs(given.only or {}) do
    if opt[name] ~= nil and opt[name] ~= value then
      families.refuse(given.library .. "." .. given.sizes[1][1], name, opt[name])
    end
  end
end

-- Reads timm's model_args, which say what differs from the model that is named.
local function read_args(given, config, opt)
  local args = config:object "model_args"
  opt.classes, opt.channels = args:get("num_classes", opt.classes), args:get("in_chans", opt.channels)
  for there, ours in pairs(given.args or {}) do
    local value = args:get(there)
    if there == "img_size" and type(value) == "table" and value[1] == value[2] then value = value[1] end
    if value ~= nil then opt[ours] = value end
  end
  local pools = given.pools or { "avg" }
  local pool = args:get("global_pool", config:get("global_pool", pools[1]))
  config:expect("global_pool", config:get "global_pool" and pool)
  if pool ~= pools[1] and pool ~= pools[2] then
    config:refuse("global_pool is %s; this program has %s", options.brief(pool), table.concat(pools, " and "))
  end
  if given.read then given.read(args, opt, pool) end
end

--- A family. given: library; model, the class of ours; sizes, a list of { name there, options that it means }; keys,
-- the options of ours that a config may have; defaults, those of these options; entries, constants, ignored: as of a
-- family. Of timm also args, the options of ours by their names in model_args; pools, what global_pool may be (first:
-- usual); read(args, opt, pool) and write(opt, config, args): more than this; only, options with the
-- one value that they have there; first, whether a model that has no size's name is written with the first.
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
    for name, value in pairs(given.only or {}) do opt[name] = value end
    for _, key in ipairs(idle) do config:get(key) end
    for key, value in pairs(by_type[config:need "model_type"]) do opt[key] = value end
    for _, key in ipairs(given.keys) do
      local value = config:get(key)
      if value ~= nil then opt[key] = value end
    end
    if given.library == "timm" then read_args(given, config, opt) else config:expect("global_pool", "avg") end
    return opt
  end

  function family.config(opt)
    check_only(given, opt)
    local size, args = size_of(given, opt), {}
    local config = { model_type = given.library .. "." .. size[1], architecture = size[1],
      num_classes = opt.classes, in_chans = opt.channels }
    for _, key in ipairs(given.keys) do
      if opt[key] ~= nil and not same(opt[key], usual(given, size, key)) then config[key] = opt[key] end
    end
    for there, ours in pairs(given.args or {}) do
      if opt[ours] ~= nil and not same(opt[ours], usual(given, size, ours)) then args[there] = opt[ours] end
    end
    if given.args and opt.channels ~= 3 then args.in_chans = opt.channels end
    if given.write then given.write(opt, config, args) end
    if next(args) then config.model_args = args end
    return config
  end

  -- Where timm finds this object, it leaves keys beside it that it does not know alone.
  function family.complete(config)
    if given.library == "timm" then
      config.pretrained_cfg = config.pretrained_cfg or { num_classes = config.num_classes }
    end
  end

  return family
end

--- The ratio of which timm makes so many hidden numbers: it multiplies by the width, and cuts off what is no whole.
function M.ratio(hidden, width)
  local ratio = hidden / width
  return math.floor(ratio * width) == hidden and ratio or (hidden + 0.5) / width
end

--- Refuses to write a model whose images have other than two dimensions, or whose patches are no squares.
function M.check_sides(model_type, opt)
  if (opt.space or 2) ~= 2 then families.refuse(model_type, "space", opt.space) end
  if type(opt.patch_size) == "table" then families.refuse(model_type, "patch_size", opt.patch_size) end
  if type(opt.image_size) == "table" and #opt.image_size ~= 2 then
    families.refuse(model_type, "image_size", opt.image_size)
  end
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
