--- Tables with sparse gradients against PyTorch (sparse.py): SparseAdam, Adagrad and SGD after five steps.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "sparse"
local TOLERANCE = 1e-13 -- of f64: five updates of numbers of order 1
local options = {
  SparseAdam = { lr = 0.1, betas = { 0.8, 0.95 }, eps = 1e-3 },
  Adagrad = { lr = 0.1, lr_decay = 0.05, eps = 1e-6 },
  SGD = { lr = 0.1 },
}

local function layer_of(case)
  if case.kind == "bag" then return gm.nn.EmbeddingBag { count = 11, width = 3, mode = case.mode, sparse = true } end
  return gm.nn.Embedding { count = 11, width = 3, sparse = true, padding_index = case.padding }
end

describe("golden sparse gradients:", function()
  for _, case in ipairs(file.cases) do
    it(case.name, numeric.f64(function()
      local function golden(what) return file:tensor(case.name .. "/" .. what, "f64") end
      local layer = layer_of(case)
      layer.weight:detach():copy_(golden "weight")
      local optimizer = gm.optim[case.optimizer](options[case.optimizer], layer)
      local index, seed = golden "index", golden "seed"
      for step = 1, index:size(1) do
        optimizer:zero_grad()
        ;(layer(index:select(1, step):contiguous()) * seed:select(1, step)):sum():backward()
        optimizer:step {}
      end
      numeric.agree(layer.weight, golden "final", TOLERANCE)
      for _, entry in ipairs(optimizer:state()) do
        numeric.agree(entry.tensor, golden(entry.name:match "^(.-)/"), TOLERANCE)
      end
    end))
  end
end)
