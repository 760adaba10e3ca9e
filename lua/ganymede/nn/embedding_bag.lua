--- EmbeddingBag: rows of tables, added up or averaged for each bag of indices.
--
--     nn.EmbeddingBag { count = 1000, width = 16 }                  index (b, n)              -> (b, width)
--     nn.EmbeddingBag { counts = { 1000, 50, 7 }, width = 16 }      index (b, 3) or (b, 3, n) -> (b, 3, width)
--
-- Several tables are one parameter, one below the other, so that all lookups are one op and ranks get even shares.
-- Bags have the same number of places; -1 is no index, and a bag without any gives zeros. bags_of(index, offsets) makes
-- such bags from PyTorch's form, one list of indices and the place where each bag begins.
--
-- cut says how the ranks that share the batch share the tables, so that no gradient of a table travels:
--   none      each rank has them whole; gradients are summed over the ranks like those of other parameters
--   rows      each rank has some rows. It gets all indices, looks up those that it has, and the sums are scattered
--   columns   each rank has some columns of all rows. It gets all indices, and the results change ranks (all-to-all)
-- The numbers are those of one rank, up to the order of additions: a row is on one rank, so with one index in a bag the
-- bits are the same. In backward the gradients of the results travel back the same ways.
--
-- With `sparse` the gradient has the rows that were touched, and no more: see docs/recommendation.md.
--
-- The trap: indices count within their table. One that is outside of it is refused, though the parameter may have such
-- a row.
-- @module ganymede.nn.embedding_bag
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"
local tensors = require "ganymede.tensor"

local EmbeddingBag = module.class "EmbeddingBag"

EmbeddingBag.matrices = {} -- tables: no matrix of a hidden layer (ganymede.optim.muon)
EmbeddingBag.aliases = { num_embeddings = "count", embedding_dim = "width" }
EmbeddingBag.options = {
  count = { type = "integer", min = 1, optional = true, doc = "the number of rows of the only table" },
  counts = { type = "list", optional = true, doc = "the list of the numbers of rows of several tables" },
  width = { type = "integer", min = 1, doc = "the width of a row" },
  mode = { type = "string", one_of = { "sum", "mean" }, default = "sum", doc = "what becomes of the rows of a bag" },
  cut = { type = "string", one_of = { "none", "rows", "columns" }, default = "none",
    doc = "how the ranks that share the batch share the tables" },
  sparse = { type = "boolean", default = false,
    doc = "whether the gradient is the rows that bags touched, for SGD, Adagrad and SparseAdam" },
  weight_initializer = init.option "the initializer of the tables; default: normal with standard deviation 1",
}

-- Axes that share the batch, as far as the mesh has them.
local batch_axes = { data = true, shard = true, expert = true }

local function axes_here()
  local list = {}
  for _, axis in ipairs(context.current().plan.axes) do
    if batch_axes[axis[1]] and axis[2] > 1 then list[#list + 1] = axis[1] end
  end
  return list
end

function EmbeddingBag:placement()
  local cut, axes = self.opt.cut, table.concat(axes_here(), ".")
  if cut == "none" or axes == "" then return nil end
  return { weight = { store = cut == "rows" and { axes } or { false, axes } } }
end

local function checked(opt)
  if (opt.count == nil) == (opt.counts == nil) then error("EmbeddingBag: give either count or counts", 4) end
  local counts = opt.counts or { opt.count }
  for i, n in ipairs(counts) do
    if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
      error(("EmbeddingBag: counts[%d] must be a whole number from 1; got %s"):format(i, tostring(n)), 4)
    end
  end
  if #counts == 0 then error("EmbeddingBag: counts is an empty list", 4) end
  return counts
end

function EmbeddingBag:build(opt)
  self.counts, self.firsts, self.rows = checked(opt), {}, 0
  for i, n in ipairs(self.counts) do self.firsts[i], self.rows = self.rows, self.rows + n end
  self:param("weight", { self.rows, opt.width }, init.resolve(opt.weight_initializer, init.normal(), opt.width,
    self.rows))
  self._module.parameters.weight.sparse = opt.sparse
end

-- Where each table begins in the parameter, and the end of the last.
local function bounds_of(self)
  local list = { unpack(self.firsts) }
  list[#list + 1] = self.rows
  return core.tensor(list, "i64", { #list })
end

-- How many indices each bag has, at least 1: (b, t, 1) in the dtype of y.
local function filled(bags, y)
  local there = ops.cast(ops.ne(ops.cast(bags, "f64"), -1), y:dtype())
  return ops.maximum(ops.sum(there, 3, true), 1)
end

local function shape_text(t) return "(" .. table.concat(t:shape(), ", ") .. ")" end

local function refuse(self, index, wanted)
  error(("EmbeddingBag: index is %s; %d table%s need %s"):format(shape_text(index), #self.counts,
    #self.counts > 1 and "s" or "", wanted), 0)
end

-- index as (b, t, n)
local function in_bags(self, index)
  local t = #self.counts
  if self.opt.count then
    if index:dim() ~= 2 then refuse(self, index, "(b, n)") end
    return ops.reshape(index, { index:size(1), 1, index:size(2) })
  end
  if index:dim() < 2 or index:dim() > 3 or index:size(2) ~= t then refuse(self, index, ("(b, %d) or (b, %d, n)"):format(
    t, t)) end
  return index:dim() == 3 and index or ops.reshape(index, { index:size(1), t, 1 })
end

local function check_weights(self, index, weights)
  if not weights then return end
  if self.opt.mode ~= "sum" then error("EmbeddingBag: weights of indices go with mode = \"sum\" only", 0) end
  if shape_text(weights) ~= shape_text(index) then
    error(("EmbeddingBag: weights %s and index %s differ in shape"):format(shape_text(weights), shape_text(index)), 0)
  end
end

-- A tensor with whole samples on every rank.
local function with_all(t)
  local layout = core.layout(t)
  layout.cuts[1] = {}
  return core.redistribute(t, layout)
end

--- index i64 or i32, and weights of its shape or nil -> (b, width), with counts (b, tables, width). Backward: dW is
-- added to, row by row; the gradient of weights is set.
function EmbeddingBag:forward(index, weights)
  check_weights(self, index, weights)
  local axes = core.layout(index).cuts[1] or {}
  local bags = in_bags(self, index)
  weights = weights and ops.reshape(weights, bags:shape())
  local shared = self.opt.cut ~= "none" and #axes > 0
  if shared then bags, weights = with_all(bags), weights and with_all(weights) end
  local y = ops.embedding_bag(self:use "weight", bags, bounds_of(self), weights)
  if self.opt.mode == "mean" then y = ops.div(y, filled(bags, y)) end
  if shared then y = core.redistribute(y, { cuts = { axes, {}, {} } }) end
  return self.opt.count and ops.reshape(y, { y:size(1), self.opt.width }) or y
end

-- What bags_of takes: lists of whole numbers, and weights of which each belongs to an index.
local function check_lists(index, offsets, weights)
  for i, t in ipairs { index or false, offsets or false } do
    local is = core.is_tensor(t)
    if not is or t:dim() ~= 1 or t:dtype() ~= "i64" and t:dtype() ~= "i32" then
      error(("EmbeddingBag.bags_of: %s is %s, should be a tensor (n) of i64 or i32"):format(
        i == 1 and "index" or "offsets", is and shape_text(t) .. " of " .. t:dtype() or options.brief(t or nil)), 3)
    end
  end
  if weights and shape_text(weights) ~= shape_text(index) then
    error(("EmbeddingBag.bags_of: weights %s and index %s differ in shape"):format(shape_text(weights),
      shape_text(index)), 3)
  end
  if offsets:numel() == 0 and index:numel() > 0 then
    error(("EmbeddingBag.bags_of: no bag begins, and there are %d indices; offsets begin with 0"):format(
      index:numel()), 3)
  end
end

--- Makes bags with the same number of places from index (m), i64, and offsets, the place in it at which each bag
-- begins, from 0 -> (bags, n), filled up with -1. weights (m) or nil: laid out likewise, zeros where there is no index.
-- It reads numbers on the host.
function EmbeddingBag.bags_of(index, offsets, weights)
  check_lists(index, offsets, weights)
  local list, firsts, n = index:totable(), offsets:totable(), 1
  for i, first in ipairs(firsts) do
    local last = firsts[i + 1] or #list
    if first < 0 or last < first or last > #list or i == 1 and first ~= 0 then
      error(("EmbeddingBag.bags_of: offset %d of bag %d; offsets begin with 0, do not fall, and end by %d"):format(
        first, i, #list), 2)
    end
    n = math.max(n, last - first)
  end
  local bags, at = {}, {}
  for i, first in ipairs(firsts) do
    for k = 1, n do
      local has = first + k <= (firsts[i + 1] or #list)
      bags[#bags + 1], at[#at + 1] = has and list[first + k] or -1, has and first + k - 1 or #list
    end
  end
  local as_bags = { dtype = "i64", shape = { #firsts, n } }
  local made = tensors.tensor(bags, as_bags)
  if not weights then return made end
  local none = tensors.zeros({ 1, 1 }, { dtype = weights:dtype() })
  local padded = ops.cat({ ops.reshape(weights, { #list, 1 }), none }, 1)
  return made, ops.reshape(ops.embedding(padded, tensors.tensor(at, as_bags)), { #firsts, n })
end

return EmbeddingBag
