--- A transformer block: attention and MLP, each with a residual connection.
--
-- Pre-norm (the default): h = x + attention(norm1(x)), y = h + mlp(norm2(h)). A sum and the norm after it are one
-- kernel, which reads the residual stream once. In a stack, the next block's norm makes the last sum of a block, so
-- `TransformerBlock.chain(blocks, x)` returns (branch, stream), which the final norm adds. Where a stack is cut for a
-- pipeline (TransformerBlock.sections), branch and stream are added first, so that one tensor crosses.
-- post_norm = true (BERT, Vaswani et al. 2017): h = norm1(x + attention(x)), y = norm2(h + mlp(h)).
-- input_norms = false with branch_norms (OLMo 2): h = x + norm(attention(x)), y = h + norm(mlp(h)).
-- @module ganymede.nn.transformer
local Attention = require "ganymede.nn.attention"
local core = require "ganymede.core"
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local layouts = require "ganymede.nn.stream"
local DropPath = require("ganymede.nn.dropout").DropPath
local MLP = require "ganymede.nn.mlp"
local MoE = require "ganymede.nn.moe"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local registry = require "ganymede.base.registry"
local tensors = require "ganymede.tensor"

local TransformerBlock = module.class "TransformerBlock"
TransformerBlock.recompute_kind = "block" -- what the setting recompute calls it

TransformerBlock.options = {
  width     = { type = "integer", min = 1, doc = "the width of x, y and the residual stream" },
  heads     = { type = "integer", min = 1, doc = "the number of query heads, which must divide width" },
  kv_heads  = { type = "integer", min = 1, optional = true,
    doc = "the number of key and value heads, which must divide heads; default: heads" },
  mlp_ratio = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLP divided by width" },
  hidden    = { type = "integer", min = 1, optional = true,
    doc = "the hidden width of the MLP, in place of mlp_ratio" },
  head_size = Attention.options.head_size, qkv_bias = Attention.options.qkv_bias,
  rotary    = Attention.options.rotary, qk_norm = Attention.options.qk_norm,
  qk_norm_joint = Attention.options.qk_norm_joint,
  causal    = { type = "boolean", default = false,
    doc = "whether each position attends only to itself and to the positions before it" },
  window    = Attention.options.window, attention_softcap = Attention.options.softcap,
  attention_scale = Attention.options.scale, prefix_mask = Attention.options.prefix_mask,
  activation = { type = "string", default = "gelu", one_of = functions.of_mlps,
                 doc = "the activation function of the MLP" },
  norm      = { type = "string", default = "LayerNorm", one_of = { "LayerNorm", "RMSNorm" },
                doc = "the class of the norms" },
  eps       = { type = "number", default = 1e-5, above = 0,
    doc = "a number added to the variance (RMSNorm: the mean square) in all norms" },
  norm_offset = { type = "boolean", default = false,
    doc = "whether RMSNorm multiplies by 1 + weight, as in Gemma" },
  branch_norms = { type = "boolean", default = false,
    doc = "whether the results of attention and MLP go through a norm each before they are added, as in Gemma 2; not "
      .. "with post_norm" },
  input_norms = { type = "boolean", default = true,
    doc = "whether x goes through a norm before attention, and before the MLP; false, as in OLMo 2: the branches have "
      .. "only their branch_norms" },
  bias      = { type = "boolean", default = true, doc = "whether the projections, the MLP and LayerNorm have biases" },
  mlp_bias  = { type = "boolean", optional = true,
    doc = "whether the MLP, or its experts, have biases; default: bias" },
  dropout   = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the results of attention and MLP is dropped in training" },
  attention_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  drop_path = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips a branch in training" },
  moe       = { type = "table", optional = true, doc = "the options of nn.MoE, which then replaces the MLP" },
  post_norm = { type = "boolean", default = false,
    doc = "whether each norm comes after the sum, as in BERT, and not before the branch" },
  weight_initializer   = init.option "the initializer of every weight matrix; default: that of nn.Linear",
  residual_initializer = init.option("the initializer of the two weights whose results are added to the residual "
    .. "stream; default: weight_initializer"),
  bias_initializer     = init.option "the initializer of the biases of projections and MLP; default: that of nn.Linear",
}

local function new_norm(opt)
  local options = { width = opt.width, eps = opt.eps }
  if opt.norm == "LayerNorm" then options.bias = opt.bias else options.offset = opt.norm_offset end
  return registry.layers:get(opt.norm)(options)
end

local function hidden_width(opt)
  if opt.hidden then return opt.hidden end
  local hidden = opt.width * opt.mlp_ratio
  local nearest = math.floor(hidden + 0.5)
  if math.abs(hidden - nearest) < 1e-9 * hidden then hidden = nearest end -- what the rounding of a ratio leaves
  if hidden % 1 ~= 0 or hidden < 1 then
    error(("TransformerBlock: mlp_ratio %g times width %d must be a whole number from 1"):format(opt.mlp_ratio,
      opt.width), 4)
  end
  return hidden
end

local function check_norms(opt)
  if opt.norm_offset and opt.norm ~= "RMSNorm" then
    error("TransformerBlock: norm_offset is an option of RMSNorm; set norm = \"RMSNorm\"", 4)
  end
  if opt.branch_norms and opt.post_norm then
    error("TransformerBlock: branch_norms and post_norm say two things of where the norms are; give one", 4)
  end
  if not (opt.input_norms or opt.branch_norms) then
    error("TransformerBlock: input_norms = false leaves the block without norms; set branch_norms = true", 4)
  end
end

function TransformerBlock:build(opt)
  check_norms(opt)
  local initializers = {
    bias = opt.bias, weight_initializer = opt.weight_initializer, output_initializer = opt.residual_initializer,
    bias_initializer = opt.bias_initializer, width = opt.width,
  }
  local function with(more)
    for k, v in pairs(initializers) do more[k] = v end
    return more
  end
  local hidden = hidden_width(opt)
  if opt.input_norms then self.norm1 = new_norm(opt) end
  self.attention = Attention(with {
    heads = opt.heads, kv_heads = opt.kv_heads, head_size = opt.head_size, causal = opt.causal,
    window = opt.window, softcap = opt.attention_softcap, scale = opt.attention_scale, prefix_mask = opt.prefix_mask,
    qkv_bias = opt.qkv_bias, rotary = opt.rotary, qk_norm = opt.qk_norm, qk_norm_joint = opt.qk_norm_joint,
    dropout = opt.attention_dropout, output_dropout = opt.dropout,
  })
  if opt.input_norms then self.norm2 = new_norm(opt) end
  if opt.branch_norms then self.attention_norm, self.mlp_norm = new_norm(opt), new_norm(opt) end
  local mlp = with { hidden = hidden, activation = opt.activation, dropout = opt.dropout }
  if opt.mlp_bias ~= nil then mlp.bias = opt.mlp_bias end
  for k, v in pairs(opt.moe or {}) do mlp[k] = v end
  self.mlp = opt.moe and MoE(mlp) or MLP(mlp)
  if opt.drop_path > 0 then
    self.drop_path1 = DropPath(opt.drop_path)
    self.drop_path2 = DropPath(opt.drop_path)
  end
end

local function attention_branch(self, x, key_mask)
  local y = self.attention(x, key_mask)
  if self.attention_norm then y = self.attention_norm(y) end
  return self.drop_path1 and self.drop_path1(y) or y
end

local function mlp_branch(self, x)
  local y = self.mlp(x)
  if self.mlp_norm then y = self.mlp_norm(y) end
  return self.drop_path2 and self.drop_path2(y) or y
end

-- A residual that leaves every number as it is, -0 as well; so a norm that adds it computes as with branch and stream.
local function no_residual(x)
  return tensors.no_grad(function() return x:detach():clone():fill_(-0.0) end)
end

-- The input of the block is branch + stream, not yet added; stream nil: branch alone; true: branch is the sum. The
-- results are of the same kind.
local function pre_norm(self, branch, stream, key_mask)
  local y
  if stream == true then stream = no_residual(branch) end
  if stream then y, stream = self.norm1(branch, stream) else y, stream = self.norm1(branch), branch end
  y, stream = self.norm2(attention_branch(self, y, key_mask), stream)
  return mlp_branch(self, y), stream
end

local function post_norm(self, x, key_mask)
  local y = self.norm1(attention_branch(self, x, key_mask), x)
  return (self.norm2(mlp_branch(self, y), y))
end

local function branch_norm(self, x, key_mask)
  x = x + attention_branch(self, x, key_mask)
  return x + mlp_branch(self, x)
end

-- Whether a block reads and gives the sum of branch and stream alone, because no norm adds them.
local function is_plain(opt) return opt.post_norm or not opt.input_norms end

--- x (b, s, width) -> (b, s, width). key_mask u8 (b, s): 0 hides a position; or the documents (b, s, 3) of rows that
-- hold several (nn.MultiHeadAttention).
-- In a chain it takes (branch, key_mask, stream), with stream = false in the first block, and returns branch, stream.
-- stream = true: x is branch + stream already (recompute_join).
function TransformerBlock:forward(x, key_mask, stream)
  if not stream then x = layouts.to(x, 1) end -- the layout in which the branches end, which a sum needs
  if self.opt.post_norm then return post_norm(self, x, key_mask) end
  if not self.opt.input_norms then return branch_norm(self, x, key_mask) end
  if stream ~= nil then return pre_norm(self, x, stream or nil, key_mask) end
  return ops.add(pre_norm(self, x, nil, key_mask))
end

--- What a block that runs again keeps of its arguments: branch and stream are read as their sum only.
function TransformerBlock.recompute_join(branch, key_mask, stream)
  if not core.is_tensor(stream) then return branch, key_mask, stream end
  return ops.add(branch, stream), key_mask, true
end

-- The set of the blocks that keep their MLP. list: moe.dense, or nil.
local function dense_blocks(list, depth)
  if list ~= nil and type(list) ~= "table" then
    error(("moe.dense must be a list of the blocks that have an MLP; got %s"):format(tostring(list)), 4)
  end
  local set = {}
  for k, n in ipairs(list or {}) do
    if type(n) ~= "number" or n % 1 ~= 0 or n < 1 or n > depth then
      error(("moe.dense[%d] must be the number of a block, from 1 to %d; got %s"):format(k, depth, tostring(n)), 4)
    end
    set[n] = true
  end
  return set
end

--- Returns the options of nn.MoE of block i in a stack of so many, or nil if the block has an MLP. moe is a model's
-- option: options of nn.MoE, `every` (default 1) and `dense` (default none). The last of each `every` blocks has
-- experts, unless `dense` lists it.
function TransformerBlock.moe_of(moe, i, depth)
  if not moe then return nil end
  local every, own = moe.every or 1, {}
  if type(every) ~= "number" or every < 1 or every % 1 ~= 0 then
    error(("moe.every must be an integer, at least 1; got %s"):format(tostring(every)), 3)
  end
  if every > depth then
    error(("moe.every = %d, but there are only %d blocks, so that none would have experts"):format(every, depth), 3)
  end
  local dense, left = dense_blocks(moe.dense, depth), 0
  for n = every, depth, every do left = left + (dense[n] and 0 or 1) end
  if left == 0 then error("moe.dense lists all blocks that would have experts", 3) end
  for key, value in pairs(moe) do
    if key ~= "every" and key ~= "dense" then own[key] = value end
  end
  return not dense[i] and i % every == 0 and own or nil
end

--- Returns the window of block i in a stack, or nil if it sees all positions. window is a model's option: a number for
-- all blocks, or a list whose entries the blocks take in turn, 0 for all positions.
function TransformerBlock.window_of(window, i)
  if type(window) ~= "table" then return window end
  for k, n in ipairs(window) do
    if type(n) ~= "number" or n < 0 or n % 1 ~= 0 then
      error(("window[%d] must be a number of positions, or 0 for all; got %s"):format(k, tostring(n)), 3)
    end
  end
  if #window == 0 then error("window must be a number, or a list of at least one", 3) end
  local own = window[(i - 1) % #window + 1]
  return own > 0 and own or nil
end

--- What a language model is called with -> tokens (b, s), what its blocks take as key mask, and the positions (b, s)
-- where they are not 0, 1, ... x: tokens (b, s); or (b, 2, s): tokens, and for each the number of its document.
function TransformerBlock.tokens_of(x, key_mask)
  if x:dim() == 2 then return x, key_mask end
  if x:dim() ~= 3 or x:size(2) ~= 2 then
    error(("tokens must be (batch, sequence), or (batch, 2, sequence): tokens and the numbers of their documents; got "
      .. "(%s)"):format(table.concat(x:shape(), ", ")), 0)
  end
  if key_mask ~= nil then
    error("rows of several documents take no key mask: what is to be hidden has a document with a negative number", 0)
  end
  local documents = ops.documents(ops.select(x, 2, 2))
  return ops.select(x, 2, 1), documents, ops.select(documents, 3, 3)
end

--- Options of models whose blocks attend to what came before (GPT, Llama).
TransformerBlock.of_models = {
  window = { type = { "integer", "list" }, min = 1, optional = true,
    doc = "the number of positions that a position attends to, itself included; a list: the blocks take its entries in "
      .. "turn, 0 for all positions" },
  attention_softcap = Attention.options.softcap,
  logit_softcap = { type = "number", above = 0, optional = true,
    doc = "logits x become softcap tanh(x / softcap), as in Gemma 2; not with head_chunk" },
}

-- Runs one block of a stack: (branch, key_mask, stream) -> the same three. stream nil: branch alone.
local function link(block, x, key_mask, stream)
  if is_plain(block.opt) then return block(stream and ops.add(x, stream) or x, key_mask), key_mask end
  local branch, sum = block(x, key_mask, stream or false)
  return branch, key_mask, sum
end

-- Returns what crosses to another stage: x = branch + stream (b, s, width), and the key mask if there is one.
local function close(branch, key_mask, stream)
  local x = stream and ops.add(branch, stream) or branch
  if key_mask == nil then return x end
  return x, key_mask
end

--- Returns the sections (ganymede.nn.sections) of a ModuleList of blocks, one for each block. The first receives
-- x (b, s, width) and the key mask or nil. Each returns (branch, key mask or nil, stream), with the branch and stream
-- of `chain`.
function TransformerBlock.sections(blocks)
  local list = {}
  for _, block in blocks:each() do
    list[#list + 1] = { modules = { block }, close = close, join = TransformerBlock.recompute_join,
                        forward = function(...) return link(block, ...) end }
  end
  return list
end

--- Runs x (b, s, width) through a ModuleList of blocks and returns branch and stream. Their sum is the result; a norm
-- adds them while it reads them: y = norm(branch, stream). If there are no blocks, or no norm stands before their
-- branches, stream is nil.
function TransformerBlock.chain(blocks, x, key_mask)
  local stream
  for _, block in blocks:each() do x, key_mask, stream = link(block, x, key_mask, stream) end
  return x, stream
end

--- Returns the floating point operations of the forward pass of one sequence of `length` positions. A multiply-add
-- counts as two, causal attention as half of full attention, or with a window as what this leaves; norms and
-- activations are not counted.
function TransformerBlock:flops(length)
  local opt = self.opt
  local size = opt.head_size or opt.width / opt.heads
  local q_width, kv_width = size * opt.heads, size * (opt.kv_heads or opt.heads)
  local projections = 2 * opt.width * (2 * q_width + 2 * kv_width)
  local products = functions.is_gate(opt.activation) and 3 or 2
  local mlp = opt.moe and self.mlp:flops() or 2 * products * opt.width * hidden_width(opt)
  local seen = math.min(opt.window or length, length) -- by all but the first positions
  local keys = opt.causal and seen - seen * seen / (2 * length) or length
  return length * (projections + mlp + 2 * 2 * keys * q_width)
end

return TransformerBlock
