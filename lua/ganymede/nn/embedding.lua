--- Tables of vectors: Embedding looks up rows; PositionEmbedding adds row i to position i.
-- @module ganymede.nn.embedding
local caches = require "ganymede.nn.cache"
local core = require "ganymede.core"
local few_bits = require "ganymede.nn.few_bits"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local Embedding = module.class "Embedding"

Embedding.matrices = {} -- tables: no matrix of a hidden layer (ganymede.optim.muon)
Embedding.reads_few_bits, Embedding.table_of_rows = true, true
Embedding.positional = { "count", "width", "padding_index" }
Embedding.aliases = { num_embeddings = "count", embedding_dim = "width", padding_idx = "padding_index" }
Embedding.options = {
  count = { type = "integer", min = 1, doc = "the number of rows; indices are 0 to count - 1" },
  width = { type = "integer", min = 1, doc = "the width of a row" },
  padding_index = { type = "integer", min = 0, optional = true,
                    doc = "the index, from 0, of a row that starts as zeros and receives no gradient" },
  vocab_parallel_limit = { type = "integer", min = 1, default = 2048, hidden = true,
                           doc = "the number of rows above which a mesh that cuts layers also cuts the rows" },
  sparse = { type = "boolean", default = false,
             doc = "whether the gradient is the rows that lookups touched, for SGD, Adagrad and SparseAdam" },
  weight_initializer = init.option "the initializer of the table; default: normal with standard deviation 1",
}

function Embedding:build(opt)
  local initializer = init.resolve(opt.weight_initializer, init.normal(), opt.width, opt.count)
  if opt.padding_index then
    if opt.padding_index >= opt.count then
      error(("Embedding: padding_index %d is not a row of a table of %d rows (they count from 0)"):format(
        opt.padding_index, opt.count), 3)
    end
    function initializer.finish(weight) core.zero_row(weight, opt.padding_index + 1) end
  end
  self:param("weight", { opt.count, opt.width }, initializer)
  self._module.parameters.weight.sparse = opt.sparse
end

--- Returns the indices in the layout that the lookup needs: on a mesh, batch and sequence are cut as in activations.
function Embedding:enter(index) return stream.enter(index) end -- luacheck: ignore self

--- index (batch), (batch, sequence) or (...) i64 or i32 -> (..., width); backward: dW is added to, row by row.
function Embedding:forward(index)
  return stream.join(few_bits.rows(self, self:enter(index), self.opt.padding_index))
end

local PositionEmbedding = module.class "PositionEmbedding"

PositionEmbedding.matrices = {}
PositionEmbedding.positional = { "length", "width" }
PositionEmbedding.options = {
  length = { type = "integer", min = 1, doc = "the length of the longest sequence, in positions" },
  width  = { type = "integer", min = 1, doc = "the width of x" },
  weight_initializer = init.option "the initializer of the table; default: normal with standard deviation 0.02",
}

function PositionEmbedding:build(opt)
  self:param("weight", { opt.length, opt.width },
    init.resolve(opt.weight_initializer, init.normal { std = 0.02 }, opt.width, opt.length))
end

--- x (b, s, width), s <= length -> x + weight[1..s], the same shape; backward: dx is set, dW is added to. positions
-- i64 (b, s), from 0: x + weight[positions + 1]. With a cache (ganymede.nn.cache) positions count on from those that it
-- keeps.
function PositionEmbedding:forward(x, positions)
  local kept = caches.current()
  local place = kept and kept:place() or { offset = 0 }
  local length, first = x:size(2), kept and kept.length or 0
  if not place.positions and first + length > self.opt.length then
    error(("a sequence of %d is longer than the %d positions of this layer"):format(first + length, self.opt.length), 0)
  end
  local weight = self:use "weight"
  if positions then return ops.add(x, ops.embedding(weight, stream.enter(positions))) end
  if place.positions then return ops.add(x, ops.embedding(weight, place.positions)) end
  if first > 0 then return ops.add(x, ops.narrow(weight, 1, first + 1, length)) end
  return ops.add(x, length == self.opt.length and weight or ops.narrow(weight, 1, 1, length))
end

return { Embedding = Embedding, PositionEmbedding = PositionEmbedding }
