-- stable_diffusion.lua - the U-Net of Stable Diffusion 1.5 (Rombach et al. 2022: 860 million parameters) on latent
-- images of 4 x 64 x 64 with texts of 77 embeddings of 768, for the plans of docs/scale.md. Nothing is read: samples
-- are made up. One has the numbers of an image and of a text, because batches have one input.
--
--     ./ganymede plan spec/bench/scale/stable_diffusion.lua -n 8 --machine dgx_a100_80g
local gm = require "ganymede"
local ops = gm.ops

local LATENT, WORDS, WIDTH = 4 * 64 * 64, 77, 768

local TextToImage = gm.nn.class "TextToImage"
TextToImage.options = {}

function TextToImage:build()
  self.diffusion = gm.models.Diffusion { drop = 0.1, process = { schedule = "scaled_linear" },
    denoiser = { type = "UNet", context = WIDTH } }
end

-- x (b, 19, 64, 64) -> latent images (b, 4, 64, 64), embeddings (b, 77, 768)
local function parts_of(x)
  local flat, n = ops.reshape(x, { x:size(1), -1 }), x:size(1)
  return { ops.reshape(flat:narrow(2, 1, LATENT):contiguous(), { n, 4, 64, 64 }),
    ops.reshape(flat:narrow(2, LATENT + 1, WORDS * WIDTH):contiguous(), { n, WORDS, WIDTH }) }
end

function TextToImage:sections()
  local list = self.diffusion:sections()
  local first = list[1].forward
  list[1].forward = function(x) return first(parts_of(x)) end
  return list
end

return gm.recipe {
  name  = "stable-diffusion",
  dtype = "bf16",
  model = function() return TextToImage {} end,
  data  = { train = { type = "Synthetic", length = 2 ^ 12, shape = { 19, 64, 64 } }, batch_size = 256 },
  loss  = { type = "DiffusionLoss" },
  optimizer = { type = "AdamW", lr = 1e-4 },
  steps = 100000,
  clip_grad_norm = 1.0,
  seed  = 1024,
}
