--- Layers in 1D tensor parallelism (Shoeybi et al., Megatron-LM, arXiv:1909.08053): one axis, `tensor`.
--
-- In a pair of Linears the first (partition = "column") is cut over its outputs and returns an activation that is cut
-- over its width. The second ("row") is cut over its inputs, and its results are summed over the ranks. A single Linear
-- is cut over its outputs, which are then gathered, or is whole on every rank ("whole"). Norms, and activations between
-- layers, are whole on every rank.
-- With parallel.tensor.sequence (Korthikanti et al. arXiv:2205.05198), activations between layers are cut along the
-- sequence: the first of a pair gathers them, and the second scatters its sum. Linear1D_Col and Linear1D_Row are the
-- two halves of a pair.
-- @module ganymede.nn.tensor_parallel.one_d
local Classifier = require "ganymede.nn.classifier"
local Dropout = require("ganymede.nn.dropout").Dropout
local embedding = require "ganymede.nn.embedding"
local few_bits = require "ganymede.nn.few_bits"
local LayerNorm = require "ganymede.nn.layer_norm"
local Linear = require "ganymede.nn.linear"
local ops = require "ganymede.tensor.ops"
local PatchEmbedding = require "ganymede.nn.patch_embedding"
local RMSNorm = require "ganymede.nn.rms_norm"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local WHOLE, CUT = 1, 2 -- forms of the stream: between pairs, and inside of one

local function add(base, placement, fields, kind)
  fields = fields or {}
  fields.placement = placement
  return tensor_parallel.subclass("1d", base, fields, kind)
end

-- ---------------------------------------------------------------- Linear

local column = { weight = { store = { "tensor" } }, bias = { store = { "tensor" } } }
local row = { weight = { store = { false, "tensor" } } }

local function is(self, partition) return self.opt.partition == partition end

local function placement(self) return is(self, "row") and row or not is(self, "whole") and column or nil end

-- The terms of all ranks are summed before the activation function is applied.
local function product_of_row(self, x, f, bare)
  local b = self:use "bias"
  local skip = bare or self.opt.skip_bias_add
  local y = stream.join(few_bits.linear(self, stream.to(x, CUT), not skip and b or nil))
  if skip then return y, b end
  return f and ops[f](y) or y
end

local function product(self, x, f, bare)
  if is(self, "row") then return product_of_row(self, x, f, bare) end
  local y, b = Linear.product(self, stream.to(x, WHOLE), f, bare)
  if not self.opt.partition then y = stream.join(y) end
  return y, b
end

-- The layer between the two of an adapter is narrow. It is whole on every rank where the other one is cut.
local function adapter_partitions(self)
  if is(self, "row") then return "row", "whole" end
  return "whole", self.opt.partition
end

add(Linear, placement, { product = product, adapter_partitions = adapter_partitions })

-- ---------------------------------------------------------------- what is whole on every rank

add(LayerNorm, nil, { forward = stream.forward(LayerNorm) })
add(RMSNorm, nil, { forward = stream.forward(RMSNorm) })
add(PatchEmbedding)
add(Dropout)
add(embedding.PositionEmbedding)

-- ---------------------------------------------------------------- tables

-- The axis `tensor` does not cut ids along the sequence, because it cuts the table.
local function enter(_, index) return stream.enter(index, nil, "sequence") end

add(embedding.Embedding, { weight = { store = { false, "tensor" } } }, { enter = enter })
add(embedding.Embedding, { weight = { store = { "tensor" } } }, { enter = enter, vocabulary_parallel = true },
  "VocabParallel")

add(Classifier, { weight = { store = { false, "tensor" } } }, { forward = stream.forward(Classifier, CUT) })
add(Classifier, column, { vocabulary_parallel = true, forward = stream.forward(Classifier, WHOLE) }, "VocabParallel")
