--- Bags of rows and a tiny DLRM against PyTorch (dlrm.py): outputs, gradients, three steps of Adagrad.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "dlrm"
local TOLERANCE = 1e-12 -- of f64: sums of some ten terms of 2^-53, through a few layers and steps

describe("golden bags of rows", function()
  for _, case in ipairs(file.cases) do
    it(("of mode %s%s equal torch.nn.EmbeddingBag"):format(case.mode, case.weighted and " with weights" or ""),
      numeric.f64(function()
        local function golden(what) return file:tensor(case.name .. "/" .. what, "f64") end
        local layer = gm.nn.EmbeddingBag { count = 9, width = 3, mode = case.mode }
        layer.weight:detach():copy_(golden "weight")
        local given = case.weighted and golden "weights":requires_grad(true) or nil
        local index, weights = gm.nn.EmbeddingBag.bags_of(golden "index", golden "offsets", given)
        assert.same({ 5, 5 }, index:shape())
        local output = layer(index, weights)
        numeric.agree(output, golden "output", TOLERANCE)
        ;(output * golden "seed"):sum():backward()
        numeric.agree(layer.weight:grad(), golden "grad.weight", TOLERANCE)
        if given then numeric.agree(given:grad(), golden "grad.weights", TOLERANCE) end
      end))
  end
end)

describe("golden DLRM", function()
  it("equals PyTorch in logits, gradients and three steps of Adagrad", numeric.f64(function()
    local model = gm.models.DLRM(file.meta.model)
    local names = {}
    for i, p in ipairs(model:named_parameters()) do
      p.tensor:detach():copy_(file:tensor("param." .. p.name, "f64"))
      names[i] = p.name
    end
    table.sort(names)
    assert.same(file:names "param.", names)
    local engine = gm.initialize { model = model, criterion = { type = "BCEWithLogitsLoss" },
      optimizer = { type = "Adagrad", lr = 0.1, eps = 1e-10 } }
    local inputs, labels = file:tensor("input", "f64"), file:tensor("label", "f64")
    local losses = numeric.flat(file:tensor("loss", "f64"))
    for step = 1, 3 do
      engine:zero_grad()
      local logits = engine(inputs:select(1, step))
      local loss = engine:criterion(logits, labels:select(1, step))
      engine:backward(loss)
      assert.near(losses[step], loss:item(), TOLERANCE)
      if step == 1 then
        numeric.agree(logits, file:tensor("logits", "f64"), TOLERANCE)
        for _, p in ipairs(model:named_parameters()) do
          numeric.agree(p.tensor:grad(), file:tensor("grad." .. p.name, "f64"), TOLERANCE)
        end
      end
      engine:step()
    end
    for _, p in ipairs(model:named_parameters()) do
      numeric.agree(p.tensor, file:tensor("final." .. p.name, "f64"), TOLERANCE)
    end
  end))
end)
