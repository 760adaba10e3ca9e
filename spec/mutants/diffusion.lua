--- Mutants of diffusion: its layers and models, processes, samplers, and what is drawn in training.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1571-keys-as-values", file = "lua/ganymede/nn/cross_attention.lua",
    find = [[ops.select(kv, 4, 2), {]],
    replace = [[ops.select(kv, 4, 1), {]],
    breaks = "cross-attention returns means of keys",
    test = "spec/golden/layers_spec.lua -f diffusion.cross",
  },
  {
    name = "1572-context-unmasked", file = "lua/ganymede/nn/cross_attention.lua",
    find = [[    key_mask = key_mask, dropout]],
    replace = [[    dropout]],
    breaks = "hidden positions of a context are seen",
    test = "spec/golden/layers_spec.lua -f diffusion.cross",
  },
  {
    name = "1573-shift-of-frequencies", file = "lua/ganymede/nn/time_embedding.lua",
    find = [[(half - opt.shift)]],
    replace = [[half]],
    breaks = "frequencies of DDPM are those of Stable Diffusion",
    test = "spec/golden/layers_spec.lua -f diffusion.time",
  },
  {
    name = "1574-shift-before-scale", file = "lua/ganymede/nn/adaptive_norm.lua",
    find = [[local shift, scale, gate = parts_of]],
    replace = [[local scale, shift, gate = parts_of]],
    breaks = "scale and shift of adaLN have changed places",
    test = "spec/golden/layers_spec.lua -f diffusion.dit",
  },
  {
    name = "1575-time-after-norm", file = "lua/ganymede/nn/time_block.lua",
    find = [[self.time(ops.silu(time))]],
    replace = [[self.time(time)]],
    breaks = "the time enters blocks without SiLU",
    test = "spec/golden/layers_spec.lua -f diffusion.block",
  },
  {
    name = "1576-zeros-around", file = "lua/ganymede/nn/resampling.lua",
    find = [[opt.behind and { { 0, 1 }, { 0, 1 } } or 1)]],
    replace = [[1)]],
    breaks = "the autoencoder's images move by half a pixel in each level",
    test = "spec/golden/layers_spec.lua -f diffusion.down",
  },
  {
    name = "1577-first-kept", file = "lua/ganymede/models/unet.lua",
    find = [[(select(n, ...))]],
    replace = [[(select(n, ...)) * 0]],
    breaks = "what was kept on the way down is not used on the way up",
    test = "spec/golden/layers_spec.lua -f diffusion.unet",
  },
  {
    name = "1578-head-of-last-level", file = "lua/ganymede/models/unet.lua",
    find = [[local last = opt.width * opt.multipliers[1]
]],
    replace = [[local last = at
]],
    breaks = "the head of a U-Net has the width of its last level",
    test = "spec/nn/diffusion_spec.lua -f published",
  },
  {
    name = "1579-rows-as-columns", file = "lua/ganymede/models/dit.lua",
    find = [[      waves(list, column, width / 2)
      waves(list, row, width / 2)]],
    replace = [[      waves(list, row, width / 2)
      waves(list, column, width / 2)]],
    breaks = "rows and columns of patches have changed places",
    test = "spec/golden/layers_spec.lua -f diffusion.dit",
  },
  {
    name = "1580-roots-of-betas", file = "lua/ganymede/nn/diffusion_process.lua",
    find = [[t, opt.steps) ^ 2
]],
    replace = [[t, opt.steps)
]],
    breaks = "scaled_linear has roots of betas for betas",
    test = "spec/nn/diffusion_spec.lua -f schedules",
  },
  {
    name = "1581-sign-of-v", file = "lua/ganymede/nn/diffusion_process.lua",
    find = [[image = ops.sub(ops.mul(x, signal)]],
    replace = [[image = ops.add(ops.mul(x, signal)]],
    breaks = "a prediction of v is understood as another image",
    test = "spec/nn/diffusion_spec.lua -f understands",
  },
  {
    name = "1582-first-order", file = "lua/ganymede/nn/diffusion_sampler.lua",
    find = [[if kept.image then]],
    replace = [[if false then]],
    breaks = "dpm is a method of first order",
    test = "spec/nn/diffusion_spec.lua -f 'second order'",
  },
  {
    name = "1583-variance-of-ddpm", file = "lua/ganymede/nn/diffusion_sampler.lua",
    find = [[local deviation = math.sqrt((1 - step) * left)]],
    replace = [[local deviation = 0 * math.sqrt((1 - step) * left)]],
    breaks = "ddpm goes back without noise, so that images vary too little",
    test = "spec/nn/diffusion_spec.lua -f deviation",
  },
  {
    name = "1584-guidance-backwards", file = "lua/ganymede/models/diffusion.lua",
    find = [[local without = self.denoiser(x, t, none)]],
    replace = [[local without = self.denoiser(x, t, opt.condition)]],
    breaks = "guidance changes nothing",
    test = "spec/nn/diffusion_spec.lua -f guidance",
  },
  {
    name = "1585-noise-of-pieces", file = "lua/ganymede/models/diffusion.lua",
    find = [[local eps = core.experts_noise(x, "normal", 0, 1)]],
    replace = [[local eps = core.random("normal", x:shape(), x:dtype(), {}, 1)]],
    breaks = "each micro-batch draws the noise of the first",
    test = "spec/parallel/diffusion_spec.lua -f 'UNet in two stages'",
  },
  {
    name = "1586-autoencoder-trained", file = "lua/ganymede/models/diffusion.lua",
    find = [[    lora.freeze(self.autoencoder, ".")
]],
    replace = "",
    also = { { file = "lua/ganymede/models/diffusion.lua", find = [[return tensors.no_grad(function()
    local mean]], replace = [[return (function(f) return f() end)(function()
    local mean]] } },
    breaks = "the autoencoder of a latent diffusion is trained with it",
    test = "spec/nn/diffusion_spec.lua -f frozen",
  },
  {
    name = "1587-outputs-in-tables", file = "lua/ganymede/nn/sections.lua",
    find = [[if core.is_tensor(entry) then stays[entry] = true end]],
    replace = [[if core.is_tensor(entry) then stays[entry] = nil end]],
    breaks = "a section that returns in a table what it was given loses it",
    test = "spec/golden/layers_spec.lua -f diffusion.autoencoder",
  },
  {
    name = "1588-own-weights-draw", file = "lua/ganymede/hooks/samples.lua",
    find = [[{ priority = 9,]],
    replace = [[{ priority = 11,]],
    breaks = "samples are drawn when EMA has taken its averages back",
    test = "spec/train/sample_hook_spec.lua -f averages",
  },
  {
    name = "1589-distance-of-means", file = "lua/ganymede/nn/frechet.lua",
    find = [[- 2 * trace(both, one)]],
    replace = [[- 2 * trace(half, one)]],
    breaks = "the Frechet distance does not compare covariances",
    test = "spec/train/sample_hook_spec.lua -f 'closed form'",
  },
  {
    name = "1590-nothing-recorded", file = "lua/ganymede/tensor/init.lua",
    find = [[core.no_grad(-depth)]],
    replace = [[depth = 0]],
    breaks = "gm.enable_grad records nothing",
    test = "spec/docs/reference_spec.lua -f enable_grad",
  },
}
