--- What the specs of training share: small data in memory, small models, runs that can be repeated.
local gm = require "ganymede"
local core = require "ganymede.core"

local support = {}

local Loader = {}
Loader.__index = Loader

--- A loader over fixed batches: opt.batches of opt.size samples of opt.width features, opt.classes classes.
-- Sample i of an epoch is the same numbers for every batch size, so runs of 4 x 2 and 1 x 8 see the same.
function support.loader(opt)
  local self = setmetatable({ at = 0, epoch = 0, opt = opt }, Loader)
  local n = opt.batches * opt.size
  self.x = gm.uniform({ n, opt.width }, { low = -1, high = 1, seed = opt.seed or 11 }):keep()
  local labels = {}
  for i = 1, n do labels[i] = (opt.ignored and i % 3 == 0) and -100 or (i * 7) % opt.classes end
  self.y = gm.tensor(labels, { dtype = "i64" }):keep()
  return self
end

function Loader:length() return self.opt.batches end
function Loader:set_epoch(epoch) self.epoch, self.at = epoch, 0 end
function Loader:seek(batch) self.at = batch end

function Loader:next()
  if self.at >= self.opt.batches then return nil end
  local size = self.opt.size
  local first = (self.at + self.epoch) % self.opt.batches * size + 1 -- another order every epoch
  self.at = self.at + 1
  return self.x:narrow(1, first, size), self.y:narrow(1, first, size)
end

--- A small classifier with dropout, its weights from the seed.
function support.model(opt)
  core.set_seed(opt.seed or 3)
  local nn = gm.nn
  return nn.Sequential {
    nn.Linear(opt.width, opt.hidden or 12), nn.GELU(), nn.Dropout(opt.dropout or 0),
    nn.Linear(opt.hidden or 12, opt.classes),
  }
end

--- All parameters as one flat Lua list.
function support.numbers(model)
  local out = {}
  for _, t in ipairs(model:parameters()) do
    for _, v in ipairs(gm.scope(function() return t:detach():reshape(t:numel()):totable() end)) do out[#out + 1] = v end
  end
  return out
end

--- Runs fn with tensors of this dtype by default.
function support.with_dtype(dtype, fn, ...)
  local before = gm.default_dtype()
  gm.set_default_dtype(dtype)
  local function finish(ok, ...)
    gm.set_default_dtype(before)
    if not ok then error((...), 0) end
    return ...
  end
  return finish(pcall(fn, ...))
end

--- Largest difference of two lists over the largest size in the first; asserts that there is something.
function support.difference(a, b)
  assert(#a == #b and #a > 0)
  local worst, largest = 0, 0
  for i = 1, #a do
    worst, largest = math.max(worst, math.abs(a[i] - b[i])), math.max(largest, math.abs(a[i]))
  end
  assert(largest > 1e-3)
  return worst / largest
end

return support
