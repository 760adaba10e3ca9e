--- What models of images in stages share: options, checks of the lists that say what stages there are, the chance with
-- which blocks are skipped, the convolution that makes one position of a square of them.
-- @module ganymede.models.stages
local init = require "ganymede.nn.initializers"
local nn = require "ganymede.nn"
local options = require "ganymede.base.options"

local M = {}

--- The initializer of weights of ConvNeXt and Swin.
M.weights = init.trunc_normal { std = 0.02, low = -0.04, high = 0.04 }

--- Options that ConvNeXt and Swin both take.
M.options = {
  width    = { type = "integer", min = 1, optional = true,
    doc = "the number of channels of the first stage, in place of that of size" },
  blocks   = { type = "list", optional = true,
    doc = "the list of the numbers of blocks of the stages, in place of those of size" },
  patch_size = { type = "integer", min = 1, default = 4, doc = "kernel and stride of the first convolution" },
  drop_path = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips a branch of the last block in training; it grows linearly from 0 "
      .. "in the first block" },
  channels = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  classes  = { type = "integer", min = 1, default = 1000, doc = "the number of classes" },
}

local function check(class, name, list, same)
  for i, n in ipairs(list) do
    if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
      error(("%s: %s[%d] must be a whole number from 1; got %s"):format(class, name, i, options.brief(n)), 5)
    end
  end
  if #list == 0 then error(("%s: %s needs at least one stage"):format(class, name), 5) end
  if same and #list ~= #same then
    error(("%s: %s has %d stages, and blocks has %d"):format(class, name, #list, #same), 5)
  end
  return list
end

--- Returns the list of how many blocks the stages have, if it is one.
function M.counts(class, blocks) return check(class, "blocks", blocks) end

--- Returns a list with a number for each of these stages, if it is one.
function M.each(class, name, list, blocks) return check(class, name, list, blocks) end

--- Returns the chance with which a sample skips the branches of block i of all: it grows linearly from 0.
function M.drop_path(most, i, all) return all > 1 and most * (i - 1) / (all - 1) or most end

--- Returns a convolution whose kernel and stride are `side`, whole on every rank of 1D tensor parallelism.
function M.patches(inputs, outputs, side)
  return nn.Conv2d { in_channels = inputs, out_channels = outputs, kernel_size = side, stride = side,
    partition = "whole", weight_initializer = M.weights, bias_initializer = init.zeros() }
end

--- Returns the number of all blocks.
function M.sum(blocks)
  local all = 0
  for _, n in ipairs(blocks) do all = all + n end
  return all
end

return M
