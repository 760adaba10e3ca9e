--- A transformer block: attention and MLP, each beside a residual connection.
--
-- Pre-norm (the default): x + attention(norm1(x)), then + mlp(norm2(.)). The sum and the norm that follows it
-- are one kernel, so that the residual stream is read once. Within a stack even the last sum of a block waits
-- for the next block's norm: `TransformerBlock.chain(blocks, x)` gives (branch, stream) for the final norm. Where a
-- stack is cut for a pipeline (TransformerBlock.sections) they are added first: one tensor crosses.
-- post_norm = true (BERT, Vaswani et al. 2017): norm1(x + attention(x)), then norm2(. + mlp(.)).
-- @module ganymede.nn.transformer
local Attention = require "ganymede.nn.attention"
local init = require "ganymede.nn.initializers"
local layouts = require "ganymede.nn.stream"
local DropPath = require("ganymede.nn.dropout").DropPath
local MLP = require "ganymede.nn.mlp"
local MoE = require "ganymede.nn.moe"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local registry = require "ganymede.base.registry"

local TransformerBlock = module.class "TransformerBlock"
TransformerBlock.recompute_kind = "block" -- what the setting recompute calls it

TransformerBlock.options = {
  width     = { type = "integer", min = 1, doc = "width of the residual stream" },
  heads     = { type = "integer", min = 1, doc = "query heads; divides width" },
  kv_heads  = { type = "integer", min = 1, optional = true, doc = "key and value heads; default heads" },
  mlp_ratio = { type = "number", above = 0, default = 4, doc = "hidden width of the MLP over width" },
  causal    = { type = "boolean", default = false, doc = "a position sees itself and what is before it only?" },
  activation = { type = "string", default = "gelu", one_of = { "relu", "gelu", "gelu_tanh", "silu" },
                 doc = "of the MLP" },
  norm      = { type = "string", default = "LayerNorm", one_of = { "LayerNorm", "RMSNorm" },
                doc = "class of both norms" },
  eps       = { type = "number", default = 1e-5, above = 0, doc = "of both norms" },
  bias      = { type = "boolean", default = true, doc = "biases in projections, MLP and LayerNorm?" },
  dropout   = { type = "number", default = 0, min = 0, below = 1, doc = "on what attention and MLP give" },
  attention_dropout = { type = "number", default = 0, min = 0, below = 1, doc = "on the attention probabilities" },
  drop_path = { type = "number", default = 0, min = 0, below = 1, doc = "probability that a sample skips a branch" },
  moe       = { type = "table", optional = true, doc = "options of nn.MoE, which stands in the MLP's place then" },
  post_norm = { type = "boolean", default = false, doc = "normalise after the sum, as BERT does?" },
  weight_initializer   = init.option "of every weight matrix; default as nn.Linear",
  residual_initializer = init.option "of the two that write to the residual stream; default weight_initializer",
  bias_initializer     = init.option "of every bias of projections and MLP; default as nn.Linear",
}

local function new_norm(opt)
  local options = { width = opt.width, eps = opt.eps }
  if opt.norm == "LayerNorm" then options.bias = opt.bias end
  return registry.layers:get(opt.norm)(options)
end

local function hidden_width(opt)
  local hidden = opt.width * opt.mlp_ratio
  if hidden % 1 ~= 0 or hidden < 1 then
    error(("TransformerBlock: mlp_ratio %g times width %d is no whole number"):format(opt.mlp_ratio, opt.width), 4)
  end
  return hidden
end

function TransformerBlock:build(opt)
  local initializers = {
    bias = opt.bias, weight_initializer = opt.weight_initializer, output_initializer = opt.residual_initializer,
    bias_initializer = opt.bias_initializer, width = opt.width,
  }
  local function with(more)
    for k, v in pairs(initializers) do more[k] = v end
    return more
  end
  local hidden = hidden_width(opt)
  self.norm1 = new_norm(opt)
  self.attention = Attention(with {
    heads = opt.heads, kv_heads = opt.kv_heads, causal = opt.causal,
    dropout = opt.attention_dropout, output_dropout = opt.dropout,
  })
  self.norm2 = new_norm(opt)
  local mlp = with { hidden = hidden, activation = opt.activation, dropout = opt.dropout }
  for k, v in pairs(opt.moe or {}) do mlp[k] = v end
  self.mlp = opt.moe and MoE(mlp) or MLP(mlp)
  if opt.drop_path > 0 then
    self.drop_path1 = DropPath(opt.drop_path)
    self.drop_path2 = DropPath(opt.drop_path)
  end
end

local function attention_branch(self, x, key_mask)
  local y = self.attention(x, key_mask)
  return self.drop_path1 and self.drop_path1(y) or y
end

local function mlp_branch(self, x)
  local y = self.mlp(x)
  return self.drop_path2 and self.drop_path2(y) or y
end

-- The stream is branch + stream, not yet added (stream nil: branch alone); so is what is returned.
local function pre_norm(self, branch, stream, key_mask)
  local y
  if stream then y, stream = self.norm1(branch, stream) else y, stream = self.norm1(branch), branch end
  y, stream = self.norm2(attention_branch(self, y, key_mask), stream)
  return mlp_branch(self, y), stream
end

local function post_norm(self, x, key_mask)
  local y = self.norm1(attention_branch(self, x, key_mask), x)
  return (self.norm2(mlp_branch(self, y), y))
end

--- x (b, s, width) -> (b, s, width). key_mask u8 (b, s): 0 hides a position.
-- In a chain: (branch, key_mask, stream), stream = false at its beginning -> branch, stream.
function TransformerBlock:forward(x, key_mask, stream)
  if not stream then x = layouts.to(x, 1) end -- as the branches will end, and a sum needs it
  if self.opt.post_norm then return post_norm(self, x, key_mask) end
  if stream ~= nil then return pre_norm(self, x, stream or nil, key_mask) end
  return ops.add(pre_norm(self, x, nil, key_mask))
end

--- Of a model's option `moe`, options of nn.MoE and `every` (default 1): what block i of a stack has as its own; nil
-- where it has an MLP. The last of each `every` blocks has experts.
function TransformerBlock.moe_of(moe, i)
  if not moe then return nil end
  local every, own = moe.every or 1, {}
  if type(every) ~= "number" or every < 1 or every % 1 ~= 0 then
    error(("moe.every must be an integer, at least 1; got %s"):format(tostring(every)), 3)
  end
  for key, value in pairs(moe) do own[key] = key ~= "every" and value or nil end
  return i % every == 0 and own or nil
end

-- One block of a stack: (branch, key_mask, stream) -> the same three. stream nil: there is branch alone.
local function link(block, x, key_mask, stream)
  if block.opt.post_norm then return block(x, key_mask), key_mask end
  local branch, sum = block(x, key_mask, stream or false)
  return branch, key_mask, sum
end

-- What crosses to another stage: x = branch + stream (b, s, width), and the key mask if there is one.
local function close(branch, key_mask, stream)
  local x = stream and ops.add(branch, stream) or branch
  if key_mask == nil then return x end
  return x, key_mask
end

--- The sections (ganymede.nn.sections) of a ModuleList of blocks, a block each. The first gets x (b, s, width)
-- and the key mask or nil; each gives (branch, key mask or nil, stream), as `chain` has branch and stream.
function TransformerBlock.sections(blocks)
  local list = {}
  for _, block in blocks:each() do
    list[#list + 1] = { modules = { block }, close = close,
                        forward = function(...) return link(block, ...) end }
  end
  return list
end

--- Runs x (b, s, width) through a ModuleList of blocks -> branch, stream: their sum is the result, and a norm
-- adds them as it reads them: y = norm(branch, stream). With post-norm blocks, or none, stream is nil.
function TransformerBlock.chain(blocks, x, key_mask)
  local stream
  for _, block in blocks:each() do x, key_mask, stream = link(block, x, key_mask, stream) end
  return x, stream
end

--- Floating point operations of the forward pass for one sequence of `length`: a multiply-add is two; causal
-- attention is counted as half of the full one; norms and activations are not counted.
function TransformerBlock:flops(length)
  local opt = self.opt
  local kv_width = opt.width / opt.heads * (opt.kv_heads or opt.heads)
  local projections = 2 * opt.width * (2 * opt.width + 2 * kv_width)
  local mlp = opt.moe and self.mlp:flops() or 2 * 2 * opt.width * hidden_width(opt)
  local attention = 2 * 2 * length * opt.width * (opt.causal and 0.5 or 1)
  return length * (projections + mlp + attention)
end

return TransformerBlock
