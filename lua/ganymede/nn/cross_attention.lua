--- Multi-head attention whose queries come from one sequence, and keys and values from another (Vaswani et al. 2017).
-- One projection makes keys and values. Its rows are ordered by head, (heads, 2, head size), so that a cut between
-- heads is a cut between contiguous rows. In 1D tensor parallelism ranks share the heads.
-- The trap: other libraries keep keys and values as two matrices; interleave their heads when you import them.
-- @module ganymede.nn.cross_attention
local init = require "ganymede.nn.initializers"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local CrossAttention = module.class "CrossAttention"
CrossAttention.recompute_kind = "attention" -- what the setting recompute calls it

CrossAttention.positional = { "width", "heads", "context" }
CrossAttention.options = {
  width    = { type = "integer", min = 1, doc = "the width of x and y" },
  heads    = { type = "integer", min = 1,
    doc = "the number of heads, which must divide width unless head_size is given" },
  context  = { type = "integer", min = 1, optional = true, doc = "the width of what keys come from; default: width" },
  head_size = { type = "integer", min = 1, optional = true, doc = "the width of a head; default: width / heads" },
  prefix_mask = { type = "boolean", default = false,
    doc = "whether key masks hide the last positions of contexts alone, such as padding behind texts; another "
      .. "key mask is then an error" },
  bias     = { type = "boolean", default = true, doc = "whether the projections have biases" },
  input_bias = { type = "boolean", optional = true,
    doc = "whether the projections to queries, keys and values have biases; default: bias" },
  dropout  = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  weight_initializer = init.option "the initializer of all weights; default: that of nn.Linear",
  bias_initializer   = init.option "the initializer of all biases; default: that of nn.Linear",
}

function CrossAttention:build(opt)
  if not opt.head_size and opt.width % opt.heads ~= 0 then
    error(("CrossAttention: heads = %d must divide width = %d"):format(opt.heads, opt.width), 3)
  end
  tensor_parallel.check_heads("CrossAttention", opt.heads, opt.heads)
  self.head_size = opt.head_size or opt.width / opt.heads
  local all, input_bias = opt.heads * self.head_size, opt.input_bias
  if input_bias == nil then input_bias = opt.bias end
  local function linear(inputs, outputs, bias, partition)
    return Linear { inputs = inputs, outputs = outputs, bias = bias, partition = partition,
      weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer }
  end
  self.query = linear(opt.width, all, input_bias, "column")
  self.key_value = linear(opt.context or opt.width, 2 * all, input_bias, "column")
  self.key_value.row_parts = { self.head_size, self.head_size }
  self.key_value.part_names = { "key", "value" }
  self.output = linear(all, opt.width, opt.bias, "row")
end

local function check(name, x, width)
  if x:dim() == 3 and x:size(3) == width then return end
  error(("%s must be (batch, sequence, %d); got (%s)"):format(name, width, table.concat(x:shape(), ", ")), 0)
end

--- x (b, s, width), context (b, t, context width) -> (b, s, width). key_mask u8 (b, t): 0 hides a position of the
-- context. A query that sees no position gives the bias. Backward: gradients of both inputs are set, those of the
-- projections are added to.
function CrossAttention:forward(x, context, key_mask)
  local opt, b, s, d = self.opt, x:size(1), x:size(2), self.head_size
  check("x", x, opt.width)
  check("context", context, opt.context or opt.width)
  if context:size(1) ~= b then
    error(("x has %d samples, and the context %d"):format(b, context:size(1)), 0)
  end
  local q = ops.reshape(self.query(x), { b, s, opt.heads, d })
  local kv = ops.reshape(self.key_value(context), { b, context:size(2), opt.heads, 2, d })
  local y = ops.attention(q, ops.select(kv, 4, 1), ops.select(kv, 4, 2), {
    prefix_mask = key_mask and opt.prefix_mask or nil,
    key_mask = key_mask, dropout = self.training and opt.dropout > 0 and opt.dropout or nil })
  return self.output(ops.reshape(y, { b, s, opt.heads * d }))
end

return CrossAttention
