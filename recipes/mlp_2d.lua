-- mlp_2d.lua - the multilayer perceptron of the Colossal-AI paper (arXiv:2110.14883), cut over a grid of ranks: layers
-- are named for their mode and take torch's names of options. It learns to give back what it is given.
--
--     ./ganymede run recipes/mlp_2d.lua -n 4
--     ./ganymede run recipes/mlp_2d.lua --set parallel.tensor.size=1     the same losses on one rank
--     ./ganymede check recipes/mlp_2d.lua -n 4                           layouts, bytes held and sent by each layer
--
-- Expect: loss 0.0706 after 150 steps (0.33 would be to answer 0), on one rank and on four; 11 seconds of one core with
-- AVX-512 on one rank, twice that in all on four. Generic names (nn.Linear) do the same in every mode.
local gm = require "ganymede"
local nn = gm.nn

local function vector(i)
  local x = gm.uniform({ 1024 }, { low = -1, high = 1, seed = i })
  return x, x
end

local function vectors() return { length = 2048, get = vector, y_dtype = "f32" } end

return gm.recipe {
  name     = "mlp-2d",
  parallel = { tensor = { size = 4, mode = "2d" } },
  model    = function()
    return nn.Sequential {
      nn.Linear2D { in_features = 1024, out_features = 8192 },
      nn.LayerNorm2D { normalized_shape = 8192 },
      nn.Linear2D { in_features = 8192, out_features = 1024 },
    }
  end,
  data     = { train = vectors, batch_size = 64 },
  loss     = { type = "MSELoss" },
  optimizer = { type = "AdamW", lr = 1e-3 },
  steps    = 150,
  seed     = 1024,
  hooks    = { { type = "LossHook", interval = 50 } },
}
