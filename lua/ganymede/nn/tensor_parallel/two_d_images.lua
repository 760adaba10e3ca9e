--- Layers of images in 2D and 2.5D tensor parallelism (two_d): channels are the width of an image. Row cuts samples,
-- col cuts channels, and the weight of a convolution lies in blocks over both, as that of a Linear does
-- (host/parallel/sharded/convolution.h). So no rank holds a whole weight, or an image with all its channels.
--
-- With groups, each rank of a row has whole groups, and the weight is stored cut over all ranks and gathered over row,
-- as vectors are. If the ranks do not divide the number of groups, the layer is whole on every rank, as in 1D, and its
-- result has all channels. Norms keep the cut of channels; group norm takes all channels where a group would be cut.
-- @module ganymede.nn.tensor_parallel.two_d_images
local batch_norm = require "ganymede.nn.batch_norm"
local convolution = require "ganymede.nn.convolution"
local group_norm = require "ganymede.nn.group_norm"
local space = require "ganymede.tensor.space"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"
local two_d = require "ganymede.nn.tensor_parallel.two_d"

local CHANNELS = 2

-- ---------------------------------------------------------------- convolutions

-- How the ranks share the layer: "blocks", "groups" or "whole".
local function way(self)
  local groups = self.opt.groups
  if groups == 1 then return "blocks" end
  return groups % stream.parts() == 0 and "groups" or "whole"
end

-- How many elements a channel of y has for one element of a channel of x.
local function growth(self)
  local ratio = 1
  for _, n in ipairs(self.settings.stride) do ratio = ratio * n end
  return self.transposed and ratio or 1 / ratio
end

-- x and w travel, or w and y, whichever sends less.
local function placement(self)
  local how, opt = way(self), self.opt
  if how == "whole" then return nil end
  if how == "groups" then return { weight = two_d.vector(), bias = two_d.vector() } end
  local of_out, of_in = "col", "row"
  if opt.out_channels * growth(self) < opt.in_channels then of_out, of_in = of_in, of_out end
  return { weight = { store = self.transposed and { of_in, of_out } or { of_out, of_in } }, bias = two_d.vector() }
end

local function forward(self, x)
  self:check_input(x)
  x = way(self) == "whole" and stream.whole(x, CHANNELS) or stream.channels(x)
  return self:product(x, self.opt.activation)
end

-- ---------------------------------------------------------------- norms

local vectors = { weight = two_d.vector(), bias = two_d.vector() }

-- Where space is cut, groups become channels of one sample, which cannot be cut twice.
local function normalise_groups(base)
  return function(self, x)
    local cut = space.is_cut(x) or (self.opt.groups or self.opt.channels) % stream.parts() ~= 0
    return base.forward(self, cut and stream.whole(x, CHANNELS) or x)
  end
end

for _, mode in ipairs { "2d", "2.5d" } do
  for _, name in ipairs { "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d" } do
    tensor_parallel.subclass(mode, convolution[name], { placement = placement, forward = forward })
  end
  for _, name in ipairs { "BatchNorm1d", "BatchNorm2d", "BatchNorm3d" } do
    tensor_parallel.subclass(mode, batch_norm[name], { placement = vectors })
  end
  for _, name in ipairs { "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d" } do
    local base = group_norm[name]
    tensor_parallel.subclass(mode, base, { placement = vectors, forward = normalise_groups(base) })
  end
end
