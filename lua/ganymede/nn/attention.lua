--- Multi-head attention (Vaswani et al. 2017) whose queries, keys and values come from one input.
-- One projection makes all three. Its rows are ordered by head, (heads, 3, head size), so that a cut between heads is a
-- cut between contiguous rows. With fewer key heads than query heads (Ainslie et al. 2023), the rows of a key head are
-- its queries, its key and its value: (kv_heads, heads / kv_heads + 2, head size).
-- The trap: PyTorch orders in_proj_weight as (3, heads, head size); permute it when you import it.
-- @module ganymede.nn.attention
local caches = require "ganymede.nn.cache"
local init = require "ganymede.nn.initializers"
local Dropout = require("ganymede.nn.dropout").Dropout
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local rotary = require "ganymede.nn.rotary"
local sequence_parallel = require "ganymede.nn.sequence_parallel"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local MultiHeadAttention = module.class "MultiHeadAttention"
MultiHeadAttention.recompute_kind = "attention" -- what the setting recompute calls it

MultiHeadAttention.positional = { "width", "heads", "dropout", "bias" }
MultiHeadAttention.options = {
  width    = { type = "integer", min = 1, doc = "the width of x and y" },
  heads    = { type = "integer", min = 1,
    doc = "the number of query heads, which must divide width unless head_size is given" },
  head_size = { type = "integer", min = 1, optional = true, doc = "the width of a head; default: width / heads" },
  kv_heads = { type = "integer", min = 1, optional = true,
    doc = "the number of key and value heads, which must divide heads; default: heads" },
  causal   = { type = "boolean", default = false,
    doc = "whether each position attends only to itself and to the positions before it" },
  window   = { type = "integer", min = 1, optional = true,
    doc = "the number of positions that a position attends to, itself included, the last ones; needs causal" },
  softcap  = { type = "number", above = 0, optional = true,
    doc = "scores s become softcap tanh(s / softcap), as in Gemma 2" },
  scale    = { type = "number", above = 0, optional = true,
    doc = "what products of queries and keys are multiplied by; default: 1 / sqrt(head_size)" },
  prefix_mask = { type = "boolean", default = false,
    doc = "whether key masks hide the last positions of rows alone, such as padding behind texts; another key mask "
      .. "is then an error" },
  bias     = { type = "boolean", default = true, doc = "whether both projections have biases" },
  qkv_bias = { type = "boolean", optional = true,
    doc = "whether the projection to queries, keys and values has a bias; default: bias" },
  rotary   = { type = { "boolean", "table" }, optional = true,
    doc = "turn queries and keys by their positions: true, or a table with base, fraction, interleaved, scaling" },
  qk_norm  = { type = { "boolean", "number" }, default = false, above = 0,
    doc = "whether each query and key is normalised by its root mean square; a number: the eps of it, not 1e-6" },
  qk_norm_joint = { type = "boolean", default = false,
    doc = "whether qk_norm takes the queries of all heads together, and the keys, as in OLMo 2; needs qk_norm" },
  dropout  = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training, rounded to a multiple of 1/65,536" },
  output_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result is dropped in training" },
  weight_initializer = init.option "the initializer of both weights; default: that of nn.Linear",
  output_initializer = init.option "the initializer of the output weight; default: weight_initializer",
  bias_initializer   = init.option "the initializer of both biases; default: that of nn.Linear",
}

local function divides(what, a, other, b)
  if b % a ~= 0 then error(("MultiHeadAttention: %s = %d must divide %s = %d"):format(what, a, other, b), 5) end
end

-- The width of a head, of checked heads.
local function head_size(opt, kv_heads)
  if not opt.head_size then divides("heads", opt.heads, "width", opt.width) end
  divides("kv_heads", kv_heads, "heads", opt.heads)
  if opt.window and not opt.causal then
    error(("MultiHeadAttention: window = %d needs causal = true: a window ends at the position itself"):format(
      opt.window), 4)
  end
  if opt.qk_norm_joint and not opt.qk_norm then
    error("MultiHeadAttention: qk_norm_joint says over what qk_norm goes; set qk_norm too", 4)
  end
  tensor_parallel.check_heads("MultiHeadAttention", opt.heads, kv_heads)
  sequence_parallel.check_heads("MultiHeadAttention", kv_heads, stream.parts())
  return opt.head_size or opt.width / opt.heads
end

local function build_projections(self, opt)
  local all, qkv_bias, output_initializer = opt.heads * self.head_size, opt.qkv_bias, opt.output_initializer
  if qkv_bias == nil then qkv_bias = opt.bias end
  if output_initializer == nil then output_initializer = opt.weight_initializer end
  self.qkv = Linear {
    inputs = opt.width, outputs = all + 2 * self.kv_heads * self.head_size, bias = qkv_bias, partition = "column",
    weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer,
  }
  self.qkv.row_parts = { self.group * self.head_size, self.head_size, self.head_size }
  self.qkv.part_names = { "query", "key", "value" }
  self.output = Linear {
    inputs = all, outputs = opt.width, bias = opt.bias, partition = "row",
    weight_initializer = output_initializer, bias_initializer = opt.bias_initializer,
  }
end

local function add_norm(self, name, heads)
  local size = self.head_size * (self.opt.qk_norm_joint and heads or 1)
  self:param(name, { size }, init.ones()(size))
end

function MultiHeadAttention:build(opt)
  self.kv_heads = opt.kv_heads or opt.heads
  self.group, self.head_size = opt.heads / self.kv_heads, head_size(opt, self.kv_heads)
  build_projections(self, opt)
  if opt.rotary then self.rotary = rotary.new("MultiHeadAttention", opt.rotary, self.head_size) end
  if opt.qk_norm then
    add_norm(self, "query_norm", opt.heads)
    add_norm(self, "key_norm", self.kv_heads)
  end
  if opt.output_dropout > 0 then self.dropout = Dropout(opt.output_dropout) end
end

-- x (b, s, h, d), with each of its vectors d normalised, or with qk_norm_joint the h d numbers of each position.
local function normalised(self, x, name)
  local eps, shape = self.opt.qk_norm == true and 1e-6 or self.opt.qk_norm, x:shape()
  if not self.opt.qk_norm_joint then return ops.rms_norm(x, self:use(name), eps) end
  local joint = ops.reshape(x, { shape[1], shape[2], shape[3] * shape[4] })
  return ops.reshape(ops.rms_norm(joint, self:use(name), eps), shape)
end

-- qkv (b, s, key heads, group + 2, d) -> queries (b, s, heads, d), keys and values (b, s, key heads, d), normalised and
-- turned. place: that of x, as Rotary:turn takes it; nil: the beginning.
local function parts(self, qkv, place)
  local q, k, v = sequence_parallel.split(qkv)
  if self.opt.qk_norm then q, k = normalised(self, q, "query_norm"), normalised(self, k, "key_norm") end
  if self.rotary then q, k = self.rotary:turn(q, nil, place), self.rotary:turn(k, nil, place) end
  return q, k, v
end

-- Of keys, values and mask (b, t, ...), what queries at the last `count` places see through the window.
local function in_window(window, count, k, v, mask)
  local first = k:size(2) - (window + count - 1) + 1
  if first <= 1 then return k, v, mask end
  local n = k:size(2) - first + 1
  return ops.narrow(k, 2, first, n), ops.narrow(v, 2, first, n), mask and ops.narrow(mask, 2, first, n)
end

-- Attention to the keys kept and to those of x.
local function attend_to_kept(self, kept, qkv, options)
  if options.limits then
    error("a cache keeps one text in a row, and this row has several documents; give each of them a row", 0)
  end
  if not self.opt.causal then error("a cache needs causal attention: what is kept must not depend on what comes", 0) end
  local q, k, v = parts(self, qkv, kept:place())
  if kept.attend then return kept:attend(self, q, k, v, options) end -- ganymede.nn.pages
  k, v = kept:extend(self, k, v)
  options.key_mask, options.prefix_mask = kept.mask, nil
  if self.opt.window then k, v, options.key_mask = in_window(self.opt.window, q:size(2), k, v, kept.mask) end
  return sequence_parallel.attention(q, k, v, options)
end

-- place: as of `parts`.
local function attend(self, x, options, place)
  local qkv = ops.reshape(self.qkv(x), { x:size(1), x:size(2), self.kv_heads, self.group + 2, self.head_size })
  local kept = caches.current()
  if kept then return attend_to_kept(self, kept, qkv, options) end
  if self.opt.qk_norm then
    local q, k, v = parts(self, qkv, place)
    return sequence_parallel.attention(q, k, v, options)
  end
  if self.rotary then qkv = self.rotary:turn(qkv, self.group + 1, place) end
  return sequence_parallel.attention_packed(qkv, options)
end

-- What forward takes as `seen` -> a key mask, limits, and the place of x as Rotary:turn takes it, or nil for each.
local function understood(self, seen, x)
  if seen == nil or seen:dim() == 2 then return seen end
  local shape = seen:shape()
  if #shape ~= 3 or shape[1] ~= x:size(1) or shape[2] ~= x:size(2) or shape[3] ~= 3 then
    local b, s = x:size(1), x:size(2)
    error(("what is seen must be a key mask (%d, %d) u8, or documents (%d, %d, 3), which ops.documents finds; got (%s)")
      :format(b, s, b, s, table.concat(shape, ", ")), 0)
  end
  local place = { positions = ops.select(seen, 3, 3) }
  if self.rotary and self.rotary.long then
    place.lengths = ops.cast(ops.select(seen, 3, 2), "f32") - ops.cast(ops.select(seen, 3, 1), "f32")
  end
  return nil, ops.narrow(seen, 3, 1, 2), place
end

--- x (b, s, width) -> (b, s, width). seen: nil, or a key mask u8 (b, s), in which 0 hides a position from all queries,
-- or the documents i64 (b, s, 3) of rows that hold several (ops.documents): no position sees another document, and
-- rotary positions begin with each of them. A query that sees no position gives zeros. Backward: dx is set, the
-- gradients of the projections are added to.
function MultiHeadAttention:forward(x, seen)
  local opt = self.opt
  if x:dim() ~= 3 or x:size(3) ~= opt.width then
    error(("x must be (batch, sequence, %d); got (%s)"):format(opt.width, table.concat(x:shape(), ", ")), 0)
  end
  local key_mask, limits, place = understood(self, seen, x)
  local y = attend(self, x, {
    causal = opt.causal, window = opt.window, softcap = opt.softcap, scale = opt.scale,
    key_mask = key_mask, prefix_mask = key_mask and opt.prefix_mask or nil, limits = limits,
    dropout = self.training and opt.dropout > 0 and opt.dropout or nil,
  }, place)
  y = self.output(ops.reshape(y, { x:size(1), x:size(2), opt.heads * self.head_size }))
  return self.dropout and self.dropout(y) or y
end

return MultiHeadAttention
