--- An MLP-Mixer (Tolstikhin et al. 2021): patches, blocks that mix the tokens and then the channels, a norm, the mean
-- of the tokens, a classifier. The defaults are those of Mixer-B/16.
-- @module ganymede.models.mlp_mixer
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local MLPMixer = module.class("MLPMixer", nil, "models")

local of_patches = nn.PatchEmbedding.options

MLPMixer.aliases = { img_size = "image_size", in_chans = "channels", num_classes = "classes" }
MLPMixer.options = {
  image_size = { type = { "integer", "list" }, min = 1, default = 224, doc = of_patches.image_size.doc },
  patch_size = { type = { "integer", "list" }, min = 1, default = 16, doc = of_patches.patch_size.doc },
  space      = of_patches.space,
  channels   = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  classes    = { type = "integer", min = 1, default = 1000, doc = "the number of classes" },
  width      = { type = "integer", min = 1, default = 768, doc = "the width of a token" },
  depth      = { type = "integer", min = 1, default = 12, doc = "the number of blocks" },
  token_hidden = { type = "integer", min = 1, optional = true,
    doc = "the hidden width of the MLPs over tokens; default: half of width" },
  hidden     = { type = "integer", min = 1, optional = true,
    doc = "the hidden width of the MLPs over channels; default: 4 width" },
  dropout    = nn.MixerBlock.options.dropout,
  drop_path  = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips a branch of the last block in training; it grows linearly from 0 "
      .. "in the first block" },
  eps        = { type = "number", default = 1e-6, above = 0, doc = "a number added to the variance in the norms" },
}

function MLPMixer:build(opt)
  self.patches = nn.PatchEmbedding { image_size = opt.image_size, patch_size = opt.patch_size, space = opt.space,
    channels = opt.channels, width = opt.width, class_token = false, positions = false,
    weight_initializer = init.lecun_normal(), bias_initializer = init.zeros() }
  self.blocks = nn.ModuleList()
  for i = 1, opt.depth do
    self.blocks:append(nn.MixerBlock { width = opt.width, tokens = self.patches:tokens(),
      token_hidden = opt.token_hidden or math.ceil(opt.width / 2), hidden = opt.hidden or 4 * opt.width, eps = opt.eps,
      dropout = opt.dropout, drop_path = stages.drop_path(opt.drop_path, i, opt.depth) })
  end
  self.norm = nn.LayerNorm { width = opt.width, eps = opt.eps }
  self.head = nn.Classifier { inputs = opt.width, classes = opt.classes, weight_initializer = init.zeros(),
    bias_initializer = init.zeros() }
end

--- The forward pass: x (b, channels, sides...) -> logits (b, classes). Sections: the patches, each block, norm and
-- head.
function MLPMixer:sections()
  local list = { { modules = { self.patches }, forward = self.patches } }
  for i, block in self.blocks:each() do list[i + 1] = { modules = { block }, forward = block } end
  list[#list + 1] = { modules = { self.norm, self.head }, forward = function(x)
    return self.head(ops.mean(self.norm(x), 2):settle())
  end }
  return list
end

return MLPMixer
