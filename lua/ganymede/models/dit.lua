--- A diffusion transformer (Peebles and Xie 2023): patches with fixed positions, blocks whose norms know time and class
-- (adaLN-zero), a linear layer that makes patches of an image again.
--
--     gm.models.DiT { image_size = 32, width = 1152, depth = 28, heads = 16, classes = 1001 }     -- DiT-XL/2
-- @module ganymede.models.dit
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local DiT = module.class("DiT", nil, "models")

DiT.aliases = { in_channels = "channels", hidden_size = "width" }
DiT.options = {
  image_size = { type = { "integer", "list" }, min = 1, default = 32,
    doc = "the side of the (latent) image in pixels, or { height, width }" },
  patch_size = { type = "integer", min = 1, default = 2,
    doc = "the side of a patch in pixels, which must divide both sides of the image" },
  channels = { type = "integer", min = 1, default = 4, doc = "the number of channels of x" },
  outputs  = { type = "integer", min = 1, optional = true,
    doc = "the number of channels of the result; default: channels" },
  width    = { type = "integer", min = 4, default = 384, doc = "the width of the residual stream, a multiple of 4" },
  depth    = { type = "integer", min = 1, default = 12, doc = "the number of blocks" },
  heads    = { type = "integer", min = 1, default = 6, doc = "the number of heads, which must divide width" },
  mlp_ratio = nn.DiTBlock.options.mlp_ratio,
  frequencies = { type = "integer", min = 2, default = 256,
    doc = "the number of cosines and sines of the time, an even number" },
  classes  = { type = "integer", min = 1, optional = true,
    doc = "the number of classes, whose embedding is added to that of the time; default: there are none" },
}

function DiT:build(opt)
  if opt.width % 4 ~= 0 then error(("DiT: width = %d must be a multiple of 4"):format(opt.width), 3) end
  self.time = nn.TimeEmbedding { channels = opt.frequencies, width = opt.width }
  if opt.classes then self.classes = nn.Embedding(opt.classes, opt.width) end
  self.patches = nn.PatchEmbedding { image_size = opt.image_size, patch_size = opt.patch_size,
    channels = opt.channels, width = opt.width, class_token = false, positions = false }
  self.blocks = nn.ModuleList()
  for _ = 1, opt.depth do
    self.blocks:append(nn.DiTBlock { width = opt.width, heads = opt.heads, mlp_ratio = opt.mlp_ratio })
  end
  self.norm = nn.AdaptiveLayerNorm { width = opt.width, condition = opt.width }
  self.leave = nn.Linear { inputs = opt.width, outputs = opt.patch_size ^ 2 * (opt.outputs or opt.channels),
    partition = "whole", weight_initializer = init.zeros(), bias_initializer = init.zeros() }
end

-- Of a place along one side: sines, then cosines of `n` numbers in all.
local function waves(list, place, n)
  local half = n / 2
  for i = 0, half - 1 do list[#list + 1] = math.sin(place / 10000 ^ (i / half)) end
  for i = 0, half - 1 do list[#list + 1] = math.cos(place / 10000 ^ (i / half)) end
end

-- The positions (1, rows columns, width): half of the numbers know the column, the others the row.
local function positions(self, dtype)
  local width, rows, columns, list = self.opt.width, self.patches.patches[1], self.patches.patches[2], {}
  for row = 0, rows - 1 do
    for column = 0, columns - 1 do
      waves(list, column, width / 2)
      waves(list, row, width / 2)
    end
  end
  return core.tensor(list, dtype, { 1, rows * columns, width })
end

-- patches (b, rows columns, p p outputs) -> (b, outputs, h, w)
local function image(self, y)
  local opt, p = self.opt, self.patches
  local n, side, b = opt.outputs or opt.channels, opt.patch_size, y:size(1)
  local rows, columns = unpack(p.patches)
  y = stream.whole(y, 3) -- the pixels of a patch are no blocks of it
  y = stream.cut_between(y, 2, columns)
  y = ops.permute(ops.reshape(y, { b, rows, columns, side, side, n }), { 1, 6, 2, 4, 3, 5 })
  return ops.reshape(y, { b, n, rows * side, columns * side })
end

local function begin(self, x, time, classes)
  if not core.is_tensor(x) and type(x) == "table" then x, time, classes = x[1], x[2], x[3] end
  if (classes ~= nil) ~= (self.classes ~= nil) then
    error(classes and "this model has no classes, and a condition is given"
      or "this model needs classes (batch) of whole numbers as its third argument", 0)
  end
  local condition = stream.to(self.time(time), 1) -- as embeddings return theirs
  if self.classes then condition = ops.add(condition, self.classes(classes)) end
  x = self.patches(x)
  return ops.add(x, positions(self, x:dtype())), condition
end

--- The forward pass: x (b, channels, h, w), time (b), and where the model has them classes (b) i64
-- -> (b, outputs, h, w). All of them may come as one list. Sections: the embeddings, each block, the head.
function DiT:sections()
  local list = { { modules = { self.time, self.patches, self.classes }, -- classes, which may be none, are the last
                   forward = function(...) return begin(self, ...) end } }
  for _, block in self.blocks:each() do
    list[#list + 1] = { modules = { block },
                        forward = function(x, condition) return block(x, condition), condition end }
  end
  list[#list + 1] = { modules = { self.norm, self.leave }, forward = function(x, condition)
    local y = self.norm(x, condition)
    return image(self, self.leave(y))
  end }
  return list
end

return DiT
