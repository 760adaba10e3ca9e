--- A Vision Transformer (Dosovitskiy et al. 2021): patches, positions, pre-norm blocks, a norm, a classifier. Images
-- have one, two or three dimensions; ranks may share their patches (parallel.sequence).
-- @module ganymede.models.vision_transformer
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local VisionTransformer = module.class("VisionTransformer", nil, "models")

VisionTransformer.aliases = { img_size = "image_size", in_chans = "channels", num_classes = "classes" }
VisionTransformer.options = {
  image_size = { type = { "integer", "list" }, min = 1, default = 224,
    doc = "the side of the image in pixels, or a list: { height, width }, { depth, height, width }, { length }" },
  patch_size = { type = { "integer", "list" }, min = 1, default = 16,
    doc = "the side of a patch in pixels, or a list as image_size; patches must tile the image" },
  space      = nn.PatchEmbedding.options.space,
  channels   = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  classes    = { type = "integer", min = 1, default = 1000, doc = "the number of classes" },
  width      = { type = "integer", min = 1, default = 768, doc = "the width of the residual stream" },
  depth      = { type = "integer", min = 1, default = 12, doc = "the number of transformer blocks" },
  heads      = { type = "integer", min = 1, default = 12,
    doc = "the number of attention heads, which must divide width" },
  mlp_ratio  = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLPs divided by width" },
  activation = { type = "string", default = "gelu", one_of = functions.of_mlps,
                 doc = "the activation function of the MLPs" },
  moe        = { type = "table", optional = true,
                 doc = "the options of nn.MoE, which replaces the MLP in the last of each `every` blocks; every "
                   .. "(default 1) is one more option, and so is dense, a list of blocks that keep their MLP" },
  pool       = { type = "string", default = "cls", one_of = { "cls", "mean" },
                 doc = "what is classified; cls: the class token, mean: the mean of the patches, without a class "
                   .. "token" },
  dropout    = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the embeddings and branches is dropped in training" },
  attention_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  drop_path  = { type = "number", default = 0, min = 0, below = 1,
                 doc = "the probability with which a sample skips a branch of the last block in training; it grows "
                   .. "linearly from 0 in the first block" },
  bias       = { type = "boolean", default = true,
    doc = "whether projections, MLPs and norms of the blocks have biases" },
  qkv_bias   = nn.MultiHeadAttention.options.qkv_bias,
  eps        = { type = "number", default = 1e-5, above = 0, doc = "a number added to the variance in the norms" },
}

local function block_options(opt, i)
  return {
    width = opt.width, heads = opt.heads, mlp_ratio = opt.mlp_ratio, eps = opt.eps, bias = opt.bias,
    qkv_bias = opt.qkv_bias, activation = opt.activation,
    dropout = opt.dropout, attention_dropout = opt.attention_dropout,
    moe = nn.TransformerBlock.moe_of(opt.moe, i, opt.depth),
    drop_path = stages.drop_path(opt.drop_path, i, opt.depth),
    weight_initializer = init.xavier_uniform(), bias_initializer = init.zeros(),
  }
end

function VisionTransformer:build(opt)
  self.patches = nn.PatchEmbedding {
    image_size = opt.image_size, patch_size = opt.patch_size, space = opt.space, channels = opt.channels,
    width = opt.width,
    class_token = opt.pool == "cls", weight_initializer = init.lecun_normal(), bias_initializer = init.zeros(),
  }
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks = nn.ModuleList()
  for i = 1, opt.depth do self.blocks:append(nn.TransformerBlock(block_options(opt, i))) end
  self.norm = nn.LayerNorm { width = opt.width, eps = opt.eps }
  self.head = nn.Classifier {
    inputs = opt.width, classes = opt.classes,
    weight_initializer = init.xavier_uniform(), bias_initializer = init.zeros(),
  }
end

local function embed(self, x)
  x = self.patches(x)
  return self.dropout and self.dropout(x) or x
end

local function classify(self, branch, stream)
  if self.opt.pool == "cls" then -- the norm works row by row, so only the row of the class token is needed
    branch = ops.select(branch, 2, 1):settle()
    stream = stream and ops.select(stream, 2, 1):settle()
    return self.head((self.norm(branch, stream)))
  end
  return self.head(ops.mean((self.norm(branch, stream)), 2):settle())
end

--- The forward pass: x (b, channels, sides...) -> logits (b, classes). Sections: the patches, each block, norm and
-- head.
function VisionTransformer:sections()
  local list = nn.TransformerBlock.sections(self.blocks)
  table.insert(list, 1, { modules = { self.patches, self.dropout }, forward = function(x) return embed(self, x) end })
  list[#list + 1] = { modules = { self.norm, self.head },
                      forward = function(branch, _, stream) return classify(self, branch, stream) end }
  return list
end

--- Returns the floating point operations of one image, forward and backward (twice the forward pass). A multiply-add
-- counts as two.
function VisionTransformer:flops_per_sample()
  local opt, patches = self.opt, self.patches
  local of_patches = patches:tokens() - (opt.pool == "cls" and 1 or 0)
  local total = 2 * of_patches * patches:pixels() * opt.width
  for _, block in self.blocks:each() do total = total + block:flops(patches:tokens()) end
  return 3 * (total + 2 * opt.width * opt.classes)
end

return VisionTransformer
