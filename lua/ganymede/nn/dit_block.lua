--- The block of a diffusion transformer (Peebles and Xie 2023): attention and MLP, whose norms, and the gates of what
-- they add, are functions of a condition (adaLN-zero). It begins as the identity.
-- @module ganymede.nn.dit_block
local AdaptiveLayerNorm = require("ganymede.nn.adaptive_norm").AdaptiveLayerNorm
local Attention = require "ganymede.nn.attention"
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local DiTBlock = module.class "DiTBlock"
DiTBlock.recompute_kind = "block"

DiTBlock.options = {
  width = { type = "integer", min = 1, doc = "the width of x, y and the condition" },
  heads = { type = "integer", min = 1, doc = "the number of heads, which must divide width" },
  mlp_ratio = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLP divided by width" },
}

function DiTBlock:build(opt)
  local hidden = opt.mlp_ratio * opt.width
  if hidden % 1 ~= 0 then
    error(("DiTBlock: mlp_ratio = %g makes %g hidden numbers of %d"):format(opt.mlp_ratio, hidden, opt.width), 3)
  end
  local function norm() return AdaptiveLayerNorm { width = opt.width, condition = opt.width, gate = true } end
  self.norm1, self.attention = norm(), Attention { width = opt.width, heads = opt.heads }
  self.norm2, self.mlp = norm(), MLP { width = opt.width, hidden = hidden, activation = "gelu_tanh" }
end

--- x (b, s, width), condition (b, width) -> (b, s, width).
function DiTBlock:forward(x, condition)
  local y, gate = self.norm1(x, condition)
  x = ops.add(x, ops.mul(gate, self.attention(y)))
  y, gate = self.norm2(x, condition)
  return ops.add(x, ops.mul(gate, self.mlp(y)))
end

return DiTBlock
