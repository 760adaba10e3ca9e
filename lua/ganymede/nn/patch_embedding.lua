--- Turns an image of one, two or three dimensions into a sequence of patches (Dosovitskiy et al. 2021). Each patch is
-- multiplied by one matrix, which is a convolution with stride = kernel size; then a class token is put in front and
-- learned positions are added. The columns of the weight are ordered (channels, depth, rows, columns), like a flattened
-- convolution kernel, and so are the patches, the last dimension fastest.
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
  image_size  = { type = { "integer", "list" }, min = 1,
    doc = "the side of the image in pixels, or a list: { height, width }, { depth, height, width }, { length }" },
  patch_size  = { type = { "integer", "list" }, min = 1,
    doc = "the side of a patch in pixels, or a list as image_size; patches must tile the image" },
  space       = { type = "integer", one_of = { 1, 2, 3 }, optional = true,
    doc = "the number of dimensions of the image; default: as many as image_size lists, else 2" },
  channels    = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  width       = { type = "integer", min = 1, doc = "the width of a token" },
  class_token = { type = "boolean", default = true,
    doc = "whether a learned class token is put in front of the patches" },
  positions   = { type = "boolean", default = true, doc = "whether learned positions are added" },
  weight_initializer   = init.option("the initializer of the weight; default: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) with "
    .. "fan_in = channels times the pixels of a patch"),
  bias_initializer     = init.option "the initializer of the bias; default: that of the weight",
  position_initializer = init.option("the initializer of the positions; default: normal with standard deviation 0.02, "
    .. "cut at two standard deviations"),
  class_initializer    = init.option "the initializer of the class token; default: zeros",
}

-- A size as a list of `space` whole numbers.
local function listed(name, size, space)
  local list = {}
  for d = 1, space do list[d] = type(size) == "table" and size[d] or size end
  for _, n in ipairs(list) do
    if type(n) ~= "number" or n % 1 ~= 0 or n < 1 or type(size) == "table" and #size ~= space then
      error(("PatchEmbedding: %s must be an integer or a list of %d, one for each dimension of the image"):format(name,
        space), 4)
    end
  end
  return list
end

local function product(list)
  local n = 1
  for _, k in ipairs(list) do n = n * k end
  return n
end

local function crossed(list) return table.concat(list, " x ") end

--- Returns the number of tokens of one image: its patches and the class token.
function PatchEmbedding:tokens() return product(self.patches) + (self.opt.class_token and 1 or 0) end

--- Returns the number of pixels of a patch, all channels together.
function PatchEmbedding:pixels() return self.opt.channels * product(self.patch) end

function PatchEmbedding:build(opt)
  local space = opt.space or type(opt.image_size) == "table" and #opt.image_size or 2
  if space < 1 or space > 3 then
    error(("PatchEmbedding: image_size lists %d dimensions; an image has one to three"):format(space), 3)
  end
  self.image, self.patch = listed("image_size", opt.image_size, space), listed("patch_size", opt.patch_size, space)
  self.patches = {}
  for d, side in ipairs(self.image) do
    self.patches[d] = side / self.patch[d]
    if self.patches[d] % 1 ~= 0 then
      error(("PatchEmbedding: patches of %s do not tile an image of %s; patch_size must divide each side"):format(
        crossed(self.patch), crossed(self.image)), 3)
    end
  end
  local fan_in = self:pixels()
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
  local ok = x:dim() == #self.image + 2 and x:size(2) == self.opt.channels
  for d, side in ipairs(self.image) do ok = ok and x:size(d + 2) == side end
  if not ok then
    error(("images must be (batch, %d, %s); got (%s)"):format(self.opt.channels, table.concat(self.image, ", "),
      table.concat(x:shape(), ", ")), 0)
  end
end

-- x (b, c, n p, rest...) -> (b n, c p, rest...): the first dimension of space becomes one of the batch.
local function cut_first(x, n, p)
  local shape, b, c = x:shape(), x:size(1), x:size(2)
  local turned = ops.permute(ops.reshape(x, { b, c, n, p, -1 }), { 1, 3, 2, 4, 5 })
  return ops.reshape(turned, { b * n, c * p, unpack(shape, 4) })
end

-- x (b, channels, sides...) -> (b, patches, pixels of a patch)
local function patches_of(self, x)
  local b, d, last = x:size(1), 1, #self.image
  while d <= last do
    if d == last - 1 and self.patch[d] == self.patch[last] then
      x, d = ops.patchify(x, self.patch[d]), last
    else
      x = cut_first(x, self.patches[d], self.patch[d])
    end
    d = d + 1
  end
  return ops.reshape(x, { b, product(self.patches), self:pixels() })
end

-- x -> (b, tokens, pixels of a patch): zeros for the class token, then the patches
local function rows_of(self, x)
  local patches = patches_of(self, x)
  if not self.opt.class_token then return patches end
  local zeros = tensors.zeros({ 1, 1, patches:size(3) }, { dtype = x:dtype() })
  return ops.cat({ ops.expand(zeros, { x:size(1), 1, patches:size(3) }), patches }, 2)
end

-- Returns what is added to the products, (1, tokens, width) or (width): class token and biases, and the positions.
local function offset(self)
  local token, rows, positions = self:use "class_token", self:use "bias", self:use "positions"
  if token then rows = ops.cat({ token, ops.expand(rows, { 1, product(self.patches), self.opt.width }) }, 2) end
  return positions and ops.add(rows, positions) or rows
end

--- x (b, channels, sides...) -> (b, tokens, width). Backward: dx is set, the gradients of the parameters are added
-- to.
function PatchEmbedding:forward(x)
  check_image(self, x)
  return ops.add(ops.linear(stream.enter(rows_of(self, x)), self:use "weight"), offset(self))
end

return PatchEmbedding
