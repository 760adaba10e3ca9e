--- Layers in 2D (Xu et al. arXiv:2104.05343) and 2.5D (Wang et al., Tesseract, arXiv:2105.14500) tensor parallelism.
--
-- Ranks are a grid of row x col. Row cuts the batch of activations and col their width; both cut weights. Products are
-- SUMMA (host/parallel/sharded/sharded.h). 2.5D adds the axis depth: it cuts the batch outside of row, and parameters
-- are copied over it, so that their gradients are sums over it, as the layouts say. With depth 1 the two are the same.
-- The sizes decide which operand of a product stays in place: with outputs >= inputs, x and w travel; otherwise w and y
-- do. Vectors (biases, norms) and tables are stored cut over all ranks and gathered for use. A table of many rows is
-- cut over its rows by row and over its width by col. A classifier that shares it transposes the cuts if that sends
-- much less.
-- @module ganymede.nn.tensor_parallel.two_d
local nn = {
  Linear = require "ganymede.nn.linear", LayerNorm = require "ganymede.nn.layer_norm",
  RMSNorm = require "ganymede.nn.rms_norm", Embedding = require("ganymede.nn.embedding").Embedding,
  PositionEmbedding = require("ganymede.nn.embedding").PositionEmbedding,
  PatchEmbedding = require "ganymede.nn.patch_embedding", Classifier = require "ganymede.nn.classifier",
  Dropout = require("ganymede.nn.dropout").Dropout,
}
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local ALL = "col.row" -- a vector cut over all ranks of a grid; gathered over row, it is cut like the width

local function vector() return { store = { ALL }, use = { "col" } } end

local function last_of(n)
  local store, use = {}, {}
  for d = 1, n - 1 do store[d], use[d] = false, false end
  store[n], use[n] = ALL, "col"
  return { store = store, use = use }
end

-- C-stationary (x and w travel) or A-stationary (w and y travel), whichever sends less.
local function product(inputs, outputs)
  return { weight = { store = outputs >= inputs and { "col", "row" } or { "row", "col" } }, bias = vector() }
end

-- A table that a classifier shares lies (row, col), so that w and y travel, and y is as wide as the vocabulary. In the
-- layout (col, row) x and w travel; the change sends 2 K N forward and 2 K N backward, and holds a second copy of w. It
-- is made only if the traffic becomes less than half.
local function shared_weight(self, x)
  local w, K, N = self:use "weight", self.opt.inputs, self.opt.classes
  local M = x:local_tensor():numel() * stream.parts() ^ 2 / K -- of the ranks of one grid
  local as_it_lies, turned = 3 * (K * N + M * N), 3 * (M * K + K * N) + 4 * K * N
  return as_it_lies < 2 * turned and w or w:redistribute { cuts = { "col", "row" } }
end

local function classify(self, x)
  x = stream.to(x)
  return ops.linear(x, self.opt.weight and shared_weight(self, x) or self:use "weight", self:use "bias")
end

local function define(mode)
  local function add(base, placement, more, kind)
    local fields = more or {}
    fields.placement = placement
    return tensor_parallel.subclass(mode, base, fields, kind)
  end
  add(nn.Linear, function(self) return product(self.opt.inputs, self.opt.outputs) end, {
    product = function(self, x, f, bare) return nn.Linear.product(self, stream.to(x), f, bare) end,
  })
  for _, norm in ipairs { nn.LayerNorm, nn.RMSNorm } do
    add(norm, { weight = vector(), bias = vector() }, { forward = stream.forward(norm) })
  end
  add(nn.Dropout)
  add(nn.Embedding, { weight = last_of(2) })
  add(nn.PositionEmbedding, { weight = last_of(2) })
  add(nn.PatchEmbedding, {
    weight = { store = { ALL }, use = { "col" } }, bias = vector(), class_token = last_of(3), positions = last_of(3),
  })
  add(nn.Classifier, { weight = last_of(2) }, { forward = stream.forward(nn.Classifier) })
  add(nn.Embedding, { weight = { store = { "row", "col" } } }, {
    vocabulary_parallel = true,
    -- each row of ranks looks its part of the vocabulary up for the samples of all rows
    enter = function(_, index) return stream.enter(index, mode == "2.5d" and "depth" or "") end,
  }, "VocabParallel")
  add(nn.Classifier, function(self) return product(self.opt.inputs, self.opt.classes) end, {
    vocabulary_parallel = true, forward = classify,
  }, "VocabParallel")
end

define "2d"
define "2.5d"

return { vector = vector } -- for two_d_images
