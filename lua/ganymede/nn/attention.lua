--- Multi-head attention (Vaswani et al. 2017) whose queries, keys and values come from one input.
-- One projection makes all three. Its rows are ordered by head, (heads, 3, head size), so that a cut between heads is a
-- cut between contiguous rows. With fewer key heads than query heads (Ainslie et al. 2023), the rows of a key head are
-- its queries, its key and its value: (kv_heads, heads / kv_heads + 2, head size).
-- The trap: PyTorch orders in_proj_weight as (3, heads, head size); permute it when you import it.
-- @module ganymede.nn.attention
local init = require "ganymede.nn.initializers"
local Dropout = require("ganymede.nn.dropout").Dropout
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local sequence_parallel = require "ganymede.nn.sequence_parallel"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local MultiHeadAttention = module.class "MultiHeadAttention"
MultiHeadAttention.recompute_kind = "attention" -- what the setting recompute calls it

MultiHeadAttention.positional = { "width", "heads", "dropout", "bias" }
MultiHeadAttention.options = {
  width    = { type = "integer", min = 1, doc = "the width of x and y" },
  heads    = { type = "integer", min = 1, doc = "the number of query heads, which must divide width" },
  kv_heads = { type = "integer", min = 1, optional = true,
    doc = "the number of key and value heads, which must divide heads; default: heads" },
  causal   = { type = "boolean", default = false,
    doc = "whether each position attends only to itself and to the positions before it" },
  bias     = { type = "boolean", default = true, doc = "whether both projections have biases" },
  dropout  = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  output_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result is dropped in training" },
  weight_initializer = init.option "the initializer of both weights; default: that of nn.Linear",
  output_initializer = init.option "the initializer of the output weight; default: weight_initializer",
  bias_initializer   = init.option "the initializer of both biases; default: that of nn.Linear",
}

local function divides(what, a, other, b)
  if b % a ~= 0 then error(("MultiHeadAttention: %s = %d must divide %s = %d"):format(what, a, other, b), 4) end
end

function MultiHeadAttention:build(opt)
  local kv_heads = opt.kv_heads or opt.heads
  divides("heads", opt.heads, "width", opt.width)
  divides("kv_heads", kv_heads, "heads", opt.heads)
  tensor_parallel.check_heads("MultiHeadAttention", opt.heads, kv_heads)
  sequence_parallel.check_heads("MultiHeadAttention", kv_heads, stream.parts())
  self.kv_heads, self.group, self.head_size = kv_heads, opt.heads / kv_heads, opt.width / opt.heads
  self.qkv = Linear {
    inputs = opt.width, outputs = (opt.heads + 2 * kv_heads) * self.head_size, bias = opt.bias, partition = "column",
    weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer,
  }
  self.qkv.row_parts = { opt.heads / kv_heads * self.head_size, self.head_size, self.head_size } -- queries, key, value
  local output_initializer = opt.output_initializer
  if output_initializer == nil then output_initializer = opt.weight_initializer end
  self.output = Linear {
    inputs = opt.width, outputs = opt.width, bias = opt.bias, partition = "row",
    weight_initializer = output_initializer, bias_initializer = opt.bias_initializer,
  }
  if opt.output_dropout > 0 then self.dropout = Dropout(opt.output_dropout) end
end

local function attend(self, x, options)
  local qkv = ops.reshape(self.qkv(x), { x:size(1), x:size(2), self.kv_heads, self.group + 2, self.head_size })
  return sequence_parallel.attention_packed(qkv, options)
end

--- x (b, s, width) -> (b, s, width). key_mask u8 (b, s): 0 hides a position from all queries. A query that sees no
-- position gives zeros. Backward: dx is set, the gradients of the projections are added to.
function MultiHeadAttention:forward(x, key_mask)
  local opt = self.opt
  if x:dim() ~= 3 or x:size(3) ~= opt.width then
    error(("x must be (batch, sequence, %d); got (%s)"):format(opt.width, table.concat(x:shape(), ", ")), 0)
  end
  local y = attend(self, x, {
    causal = opt.causal, key_mask = key_mask, dropout = self.training and opt.dropout > 0 and opt.dropout or nil,
  })
  y = self.output(ops.reshape(y, { x:size(1), x:size(2), opt.width }))
  return self.dropout and self.dropout(y) or y
end

return MultiHeadAttention
