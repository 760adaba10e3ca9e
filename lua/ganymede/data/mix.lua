--- The dataset Mix: samples of several datasets by weights. It is read in C (host/data/mix_dataset.c).
-- @module ganymede.data.mix
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local native = require "ganymede.data.native"
local options = require "ganymede.base.options"
local refuse_unlike = require "ganymede.data.class_names"
local registry = require "ganymede.base.registry"

local mix = {}

-- The datasets, built, and their handles.
local function parts_of(list)
  local parts, handles = {}, {}
  if #list == 0 then error("Mix: datasets is an empty list", 0) end
  for k, given in ipairs(list) do
    local part = failure.about(("Mix: dataset %d"):format(k), registry.datasets.build, registry.datasets, given)
    if not part.handle then
      error(("Mix: dataset %d is written in Lua; those of Ganymede, which C reads, can be mixed"):format(k), 0)
    end
    parts[k], handles[k] = part, part.handle
    if k > 1 then refuse_unlike("Mix: dataset 1", parts[1], ("dataset %d"):format(k), part) end
  end
  return parts, handles
end

local function check_weights(weights, n)
  if #weights ~= n then error(("Mix: %d weights for %d datasets"):format(#weights, n), 0) end
  for k, w in ipairs(weights) do
    if type(w) ~= "number" or not (w > 0 and w < math.huge) then
      error(("Mix: weight %d is a number above 0; got %s"):format(k, options.literal(w)), 0)
    end
  end
end

-- The normalization that all parts agree on.
local function normalization_of(parts)
  local first = parts[1].normalization
  for k, part in ipairs(parts) do
    if options.literal(part.normalization) ~= options.literal(first) then
      error(("Mix: datasets 1 and %d are normalized by other numbers; set normalize = false and use Normalize"):format(
        k), 0)
    end
  end
  return first
end

mix.Mix = native.define("Mix", {
  datasets = { type = "list", doc = "the list of datasets, each { type = NAME, and its options }" },
  weights = { type = "list", doc = "as many numbers above 0: the shares of the datasets in an epoch" },
  length = { type = "integer", min = 1, max = 2 ^ 40, optional = true,
    doc = "the number of samples in an epoch; default: as many as all datasets have together" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, optional = true,
    doc = "the seed of the orders in which datasets are walked through; default: the seed of the run" },
}, function(opt)
  local parts, handles = parts_of(opt.datasets)
  check_weights(opt.weights, #parts)
  local length, skips = opt.length or 0, false
  for _, part in ipairs(parts) do
    if not opt.length then length = length + part:length() end
    skips = skips or part.skips or false
  end
  local handle, counts = checked(nil, core.dataset_mix(handles, opt.weights, length, opt.seed or core.seed()))
  return handle, { parts = parts, counts = counts, skips = skips, normalization = normalization_of(parts) }
end)

return mix
