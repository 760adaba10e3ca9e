--- A block of an MLP-Mixer (Tolstikhin et al. 2021): an MLP over the tokens of each channel, then one over the channels
-- of each token, both behind norms and beside paths around them.
-- @module ganymede.nn.mixer_block
local DropPath = require("ganymede.nn.dropout").DropPath
local init = require "ganymede.nn.initializers"
local LayerNorm = require "ganymede.nn.layer_norm"
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local MixerBlock = module.class "MixerBlock"
MixerBlock.recompute_kind = "block" -- what the setting recompute calls it

MixerBlock.options = {
  width  = { type = "integer", min = 1, doc = "the width of a token" },
  tokens = { type = "integer", min = 1, doc = "the number of tokens of a sample" },
  token_hidden = { type = "integer", min = 1, doc = "the hidden width of the MLP over tokens" },
  hidden = { type = "integer", min = 1, doc = "the hidden width of the MLP over channels" },
  eps    = { type = "number", default = 1e-6, above = 0, doc = "a number added to the variance in both norms" },
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result of an MLP is dropped in training" },
  drop_path = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips a branch in training" },
}

function MixerBlock:build(opt)
  local function mlp(width, hidden)
    return MLP { width = width, hidden = hidden, dropout = opt.dropout, weight_initializer = init.xavier_uniform(),
      bias_initializer = init.zeros() }
  end
  self.norm1 = LayerNorm { width = opt.width, eps = opt.eps }
  self.token_mlp = mlp(opt.tokens, opt.token_hidden)
  self.norm2 = LayerNorm { width = opt.width, eps = opt.eps }
  self.mlp = mlp(opt.width, opt.hidden)
  if opt.drop_path > 0 then self.drop_path1, self.drop_path2 = DropPath(opt.drop_path), DropPath(opt.drop_path) end
end

--- x (b, tokens, width) -> the same shape. Ranks that share channels or tokens share the other dimension while tokens
-- are mixed.
function MixerBlock:forward(x)
  if x:dim() ~= 3 or x:size(2) ~= self.opt.tokens or x:size(3) ~= self.opt.width then
    error(("x must be (batch, %d, %d); got (%s)"):format(self.opt.tokens, self.opt.width,
      table.concat(x:shape(), ", ")), 0)
  end
  local y = stream.join(self.norm1(x):transpose(2, 3))
  y = stream.join(self.token_mlp(y):transpose(2, 3))
  x = ops.add(x, self.drop_path1 and self.drop_path1(y) or y)
  y = self.mlp(self.norm2(x))
  return ops.add(x, self.drop_path2 and self.drop_path2(y) or y)
end

return MixerBlock
