--- DLRM (Naumov et al. 2019, arXiv:1906.00091): will a user click? Numbers and categories of an event -> one logit.
--
--     gm.models.DLRM { dense = 13, counts = { 1000, 1000, 50 }, width = 16, bottom = { 64 }, top = { 64, 32 } }
--
-- x (b, dense + tables), i64: counts of things, then an index for each table (ganymede.data.clicks makes such samples).
-- The counts c become log(1 + max(c, 0)) and pass the bottom MLP, whose result has the width of the tables. It and the
-- rows of the tables are multiplied with each other, pair by pair; the products and the result of the bottom pass the
-- top MLP. The output (b) is the logit of a click, as nn.BCEWithLogitsLoss and the metric AUC take it.
--
-- With data ranks the tables are shared by rows, or as `cut` says (nn.EmbeddingBag), and the MLPs are on every rank. So
-- only activations travel for the tables, and each rank updates its rows alone.
-- @module ganymede.models.dlrm
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local DLRM = module.class("DLRM", nil, "models")

DLRM.options = {
  dense  = { type = "integer", min = 1, default = 13, doc = "the number of counts of a sample" },
  counts = { type = "list", doc = "the list of the numbers of rows of the tables" },
  width  = { type = "integer", min = 1, default = 16, doc = "the width of a row of a table" },
  bottom = { type = "list", default = { 512, 256, 64 },
    doc = "the list of the widths of the layers of the bottom MLP; one of the width of the tables follows" },
  top    = { type = "list", default = { 512, 256 },
    doc = "the list of the widths of the layers of the top MLP; one of width 1 follows" },
  cut    = { type = "string", one_of = { "none", "rows", "columns" }, default = "rows",
    doc = "how the ranks that share the batch share the tables" },
  sparse = { type = "boolean", default = false,
    doc = "whether gradients of the tables are the rows that a batch touched (nn.EmbeddingBag)" },
}

local function layers(name, widths, inputs)
  local list = nn.ModuleList()
  for i, width in ipairs(widths) do
    if type(width) ~= "number" or width < 1 or width % 1 ~= 0 then
      error(("DLRM: %s[%d] must be a whole number from 1; got %s"):format(name, i, tostring(width)), 4)
    end
    list:append(nn.Linear { inputs = inputs, outputs = width, activation = "relu", partition = "whole",
      weight_initializer = init.normal { std = math.sqrt(2 / (inputs + width)) },
      bias_initializer = init.normal { std = math.sqrt(1 / width) } })
    inputs = width
  end
  return list, inputs
end

local function with(list, last)
  local out = { unpack(list) }
  out[#out + 1] = last
  return out
end

function DLRM:build(opt)
  local n = #opt.counts + 1
  self.bottom = layers("bottom", with(opt.bottom, opt.width), opt.dense)
  local rows = 0
  for _, count in ipairs(opt.counts) do rows = rows + (tonumber(count) or 0) end
  local range = math.sqrt(#opt.counts / math.max(rows, 1))
  self.tables = nn.EmbeddingBag { counts = opt.counts, width = opt.width, cut = opt.cut, sparse = opt.sparse,
    weight_initializer = init.uniform { low = -range, high = range } }
  local inputs
  self.top, inputs = layers("top", opt.top, opt.width + n * (n - 1) / 2)
  self.head = nn.Linear { inputs = inputs, outputs = 1, partition = "whole",
    weight_initializer = init.normal { std = math.sqrt(2 / (inputs + 1)) } }
end

local function check(self, x)
  local columns = self.opt.dense + #self.opt.counts
  if x:dim() == 2 and x:size(2) == columns then return end
  error(("DLRM: x is (%s), should be (b, %d): %d counts and an index for each of %d tables"):format(
    table.concat(x:shape(), ", "), columns, self.opt.dense, #self.opt.counts), 0)
end

-- x (b, dense + tables) -> (b, 1 + tables, width): the result of the bottom MLP, and a row of each table.
local function features(self, x)
  check(self, x)
  local opt = self.opt
  local rows = self.tables(ops.narrow(x, 2, opt.dense + 1, #opt.counts))
  local dense = ops.cast(ops.narrow(x, 2, 1, opt.dense), "f64")
  local y = ops.cast(ops.log(ops.add(ops.maximum(dense, 0), 1)), rows:dtype())
  for _, layer in self.bottom:each() do y = layer(y) end
  return ops.cat({ ops.reshape(y, { y:size(1), 1, opt.width }), rows }, 2)
end

-- features (b, n, width) -> (b, width + n (n - 1) / 2): the first feature, and the products of all pairs, that of 2 and
-- 1, then those of 3 and 1, 3 and 2, and so on. Ranks that share the width bring it together first.
local function interactions(z)
  z = stream.whole(z, 3)
  local n = z:size(2)
  local products, parts = ops.matmul(z, z, { transpose_b = true }), { ops.select(z, 2, 1) }
  for i = 2, n do parts[i] = ops.narrow(ops.select(products, 2, i), 2, 1, i - 1) end
  return ops.cat(parts, 2)
end

--- The forward pass: x (b, dense + tables) i64 -> logits (b). Sections: the bottom MLP with the tables, each layer of
-- the top MLP (the first with the products before it), the head.
function DLRM:sections()
  local list = { { modules = { self.bottom, self.tables }, forward = function(x) return features(self, x) end } }
  for i, layer in self.top:each() do
    list[i + 1] = { modules = { layer }, forward = function(x) return layer(i == 1 and interactions(x) or x) end }
  end
  list[#list + 1] = { modules = { self.head }, forward = function(x)
    x = stream.whole(self.head(#list == 2 and interactions(x) or x), 2)
    return ops.reshape(x, { x:size(1) })
  end }
  return list
end

--- Returns the floating point operations of one sample, forward and backward: 6 for each weight of the MLPs, and the
-- products of pairs.
function DLRM:flops_per_sample()
  local n = #self.opt.counts + 1
  local total = 6 * n * n * self.opt.width
  for _, p in ipairs(self:declared()) do
    if #p.shape == 2 and not p.name:find "^tables" then total = total + 6 * p.shape[1] * p.shape[2] end
  end
  return total
end

return DLRM
