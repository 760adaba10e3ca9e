--- Convolutions in 1D tensor parallelism: the axis `tensor` cuts channels, as it cuts the width of Linears (one_d).
--
-- In a pair the first ("column") is cut over its output channels and returns an activation whose channels are cut. The
-- second ("row") is cut over its input channels, and its results are summed over the ranks. A single one is cut over
-- its output channels, which are then gathered, or is whole on every rank ("whole"). With groups, the ranks share the
-- groups, if their number divides that of the groups; else the layer is whole on every rank.
-- @module ganymede.nn.tensor_parallel.one_d_convolution
local convolution = require "ganymede.nn.convolution"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local CHANNELS = 2
local first, second = { store = { "tensor" } }, { store = { false, "tensor" } }

-- How the ranks share the layer: "groups", "column", "row" or "whole".
local function way(self)
  local opt = self.opt
  if opt.partition == "whole" then return "whole" end
  if opt.groups > 1 then return opt.groups % stream.parts() == 0 and "groups" or "whole" end
  return opt.partition == "row" and "row" or "column"
end

local function placement(self)
  local how, transposed = way(self), self.transposed
  if how == "whole" then return nil end
  if how == "groups" then return { weight = first, bias = first } end
  if how == "row" then return { weight = transposed and first or second } end
  return { weight = transposed and second or first, bias = first }
end

local function forward(self, x)
  self:check_input(x)
  local how, f = way(self), self.opt.activation
  if how == "row" then -- the terms of all ranks are summed before the activation is applied
    local y = self:product(x):settle()
    return f and ops[f](y) or y
  end
  if how ~= "groups" then x = stream.whole(x, CHANNELS) end
  local y = self:product(x, f)
  return self.opt.partition == "column" and y or stream.whole(y, CHANNELS)
end

for _, name in ipairs { "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d" } do
  tensor_parallel.subclass("1d", convolution[name], { placement = placement, forward = forward })
end
