--- Layers in 3D tensor parallelism (Bian et al. arXiv:2105.14450, after Agarwal et al. 1995).
--
-- Ranks are a cube of output x input x weight. The axes weight and input cut the batch of an activation, and output
-- cuts its width. A Linear gathers the activation over input and its weight over weight, multiplies them, and scatters
-- the sum over output; in its result, input and output are exchanged. A second Linear (partition = "row") exchanges
-- them back, so that a pair, and so a residual branch, ends in the layout in which it began. Values carry their
-- layouts: a norm between the two takes either form, and a layer moves its input (an all_to_all) if it needs the other
-- form. Adding activations of different forms is an error that prints both.
-- @module ganymede.nn.tensor_parallel.three_d
local Classifier = require "ganymede.nn.classifier"
local Dropout = require("ganymede.nn.dropout").Dropout
local embedding = require "ganymede.nn.embedding"
local LayerNorm = require "ganymede.nn.layer_norm"
local Linear = require "ganymede.nn.linear"
local PatchEmbedding = require "ganymede.nn.patch_embedding"
local RMSNorm = require "ganymede.nn.rms_norm"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local function add(base, placement, fields, kind)
  fields = fields or {}
  fields.placement = placement
  return tensor_parallel.subclass("3d", base, fields, kind)
end

local OUTER, INNER = 1, 2 -- forms of the stream: between pairs, and inside of one

local function is_second(self) return self.opt.partition == "row" end

local first = { weight = { store = { "input", "output.weight" } }, bias = { store = { "input" } } }
local second = { weight = { store = { "output", "input.weight" } }, bias = { store = { "output" } } }

add(Linear, function(self) return is_second(self) and second or first end, {
  product = function(self, x, f, bare)
    return Linear.product(self, stream.to(x, is_second(self) and INNER or OUTER), f, bare)
  end,
})

local function last_of(n)
  local store = {}
  for d = 1, n do store[d] = d == n and "output" end
  return { store = store }
end

for _, norm in ipairs { LayerNorm, RMSNorm } do
  add(norm, { weight = last_of(1), bias = last_of(1) }, { forward = stream.forward(norm) })
end
add(Dropout)
add(embedding.Embedding, { weight = last_of(2) })
add(embedding.PositionEmbedding, { weight = last_of(2) })
add(PatchEmbedding, {
  weight = { store = { "output" } }, bias = last_of(1), class_token = last_of(3), positions = last_of(3),
})
add(Classifier, { weight = last_of(2) }, { forward = stream.forward(Classifier, OUTER) })

-- Input and inside of it weight cut the rows of a table; for use it is gathered over weight.
local TABLE = { "input.weight", "output" }

add(embedding.Embedding, { weight = { store = TABLE, use = { "input", "output" } } }, {
  vocabulary_parallel = true,
  enter = function(_, index) return stream.enter(index, "weight") end,
}, "VocabParallel")
add(Classifier, { weight = { store = TABLE }, bias = { store = { "input" } } }, {
  vocabulary_parallel = true, forward = stream.forward(Classifier, OUTER),
}, "VocabParallel")
