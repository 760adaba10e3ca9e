--- Turns an image into a sequence of patches (Dosovitskiy et al. 2021). Each patch is multiplied by one matrix, which
-- is a convolution with stride = kernel size; then a class token is put in front and learned positions are added.
-- The columns of the weight are ordered (channels, rows, columns), like a flattened convolution kernel.
--
-- There is one product and one sum of activations. In the product the class token is a patch of zeros in front; what is
-- added has the token in that row and the bias in the others. So each token is computed by itself, and a mesh may cut
-- the tokens.
-- @module ganymede.nn.patch_embedding
local tensors = require "ganymede.tensor"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local PatchEmbedding = module.class "PatchEmbedding"

PatchEmbedding.matrices = {} -- what images enter through: no matrix of a hidden layer (ganymede.optim.muon)
PatchEmbedding.aliases = { img_size = "image_size", in_chans = "channels", embed_size = "width" }
PatchEmbedding.options = {
  image_size  = { type = { "integer", "table" }, min = 1,
    doc = "the side of the image in pixels, or { height, width }" },
  patch_size  = { type = "integer", min = 1,
    doc = "the side of a patch in pixels, which must divide both sides of the image" },
  channels    = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  width       = { type = "integer", min = 1, doc = "the width of a token" },
  class_token = { type = "boolean", default = true,
    doc = "whether a learned class token is put in front of the patches" },
  positions   = { type = "boolean", default = true, doc = "whether learned positions are added" },
  weight_initializer   = init.option("the initializer of the weight; default: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) with "
    .. "fan_in = channels patch_size^2"),
  bias_initializer     = init.option "the initializer of the bias; default: that of the weight",
  position_initializer = init.option("the initializer of the positions; default: normal with standard deviation 0.02, "
    .. "cut at two standard deviations"),
  class_initializer    = init.option "the initializer of the class token; default: zeros",
}

local function sides(size)
  if type(size) == "number" then return size, size end
  local height, width = size[1], size[2]
  if #size ~= 2 or type(height) ~= "number" or type(width) ~= "number" then
    error("PatchEmbedding: image_size must be an integer or { height, width }", 4)
  end
  return height, width
end

--- Returns the number of tokens of one image: its patches and the class token.
function PatchEmbedding:tokens() return self.rows * self.columns + (self.opt.class_token and 1 or 0) end

function PatchEmbedding:build(opt)
  self.height, self.width = sides(opt.image_size)
  self.rows, self.columns = self.height / opt.patch_size, self.width / opt.patch_size
  if self.rows % 1 ~= 0 or self.columns % 1 ~= 0 or self.rows < 1 or self.columns < 1 then
    error(("PatchEmbedding: patches of %d do not tile an image of %d x %d; patch_size must divide both sides"):format(
      opt.patch_size, self.height, self.width), 3)
  end
  local fan_in = opt.channels * opt.patch_size ^ 2
  self:param("weight", { opt.width, fan_in },
    init.resolve(opt.weight_initializer, init.dense_weight, fan_in, opt.width))
  self:param("bias", { opt.width }, init.resolve(opt.bias_initializer, init.dense_bias, fan_in))
  if opt.class_token then
    self:param("class_token", { 1, 1, opt.width }, init.resolve(opt.class_initializer, init.zeros()))
  end
  if opt.positions then
    self:param("positions", { 1, self:tokens(), opt.width },
      init.resolve(opt.position_initializer, init.trunc_normal { std = 0.02, low = -0.04, high = 0.04 }))
  end
end

local function check_image(self, x)
  local ok = x:dim() == 4 and x:size(2) == self.opt.channels and x:size(3) == self.height and x:size(4) == self.width
  if not ok then
    error(("images must be (batch, %d, %d, %d); got (%s)"):format(self.opt.channels, self.height, self.width,
      table.concat(x:shape(), ", ")), 0)
  end
end

-- x -> (b, tokens, channels patch_size^2): zeros for the class token, then the patches
local function rows_of(self, x)
  local patches = ops.patchify(x, self.opt.patch_size)
  if not self.opt.class_token then return patches end
  local zeros = tensors.zeros({ 1, 1, patches:size(3) }, { dtype = x:dtype() })
  return ops.cat({ ops.expand(zeros, { x:size(1), 1, patches:size(3) }), patches }, 2)
end

-- Returns what is added to the products, (1, tokens, width) or (width): class token and biases, and the positions.
local function offset(self)
  local token, rows, positions = self:use "class_token", self:use "bias", self:use "positions"
  if token then rows = ops.cat({ token, ops.expand(rows, { 1, self.rows * self.columns, self.opt.width }) }, 2) end
  return positions and ops.add(rows, positions) or rows
end

--- x (b, channels, height, width) -> (b, tokens, width). Backward: dx is set, the gradients of the parameters are added
-- to.
function PatchEmbedding:forward(x)
  check_image(self, x)
  return ops.add(ops.linear(stream.enter(rows_of(self, x)), self:use "weight"), offset(self))
end

return PatchEmbedding
