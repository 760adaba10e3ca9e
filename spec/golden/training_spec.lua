--- Twenty AdamW steps of a tiny GPT against PyTorch (gpt.py): every loss, the first gradients, the last weights.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local optim = require "ganymede.optim"
local read = require "spec.golden.read"

local file = read "gpt"

local function one_step(model, criterion, optimizer, batch, on_gradients)
  local length = batch:size(2) - 1
  optimizer:zero_grad()
  local logits = model(batch:narrow(2, 1, length):contiguous())
  local loss = criterion(logits, batch:narrow(2, 2, length):contiguous())
  local value = loss:item()
  loss:backward()
  if on_gradients then on_gradients() end
  optimizer:step()
  return value
end

-- Trains 20 steps -> list of losses, the model. first(model) is called with the first gradients.
local function train(dtype, first)
  gm.set_default_dtype(dtype)
  local model = gm.models.GPT(file.meta.model)
  for _, p in ipairs(model:named_parameters()) do p.tensor:detach():copy_(file:tensor("param." .. p.name)) end
  local criterion = gm.nn.CrossEntropyLoss {}
  local optimizer = optim.AdamW(file.meta.optimizer, model)
  local tokens, losses = file:tensor "tokens", {}
  for k = 1, tokens:size(1) do
    local on_gradients = k == 1 and first and function() first(model) end or nil
    losses[k] = gm.scope(one_step, model, criterion, optimizer, tokens[k], on_gradients)
  end
  return losses, model
end

local function agree(losses, wanted, tolerance)
  assert.equal(#wanted, #losses)
  for k, want in ipairs(wanted) do
    assert.is_true(math.abs(losses[k] - want) <= tolerance * want,
      ("step %d: %.17g, not %.17g"):format(k, losses[k], want))
  end
end

describe("golden training of a tiny GPT", function()
  local before
  before_each(function() before = gm.default_dtype() end)
  after_each(function() gm.set_default_dtype(before) end)

  it("equals PyTorch in f64: first gradients, 20 losses, last weights", function()
    gm.scope(function()
      local seen = 0
      local losses, model = train("f64", function(model)
        for _, p in ipairs(model:named_parameters()) do
          assert.is_true(file:largest("grad." .. p.name) >= 1e-3, p.name)
          -- rounding of 2^-53 in sums of some thousand terms
          numeric.agree(p.tensor:grad(), file:tensor("grad." .. p.name), 1e-10)
          seen = seen + 1
        end
      end)
      assert.equal(#file:names "param.", seen)
      assert.equal(20, #losses)
      agree(losses, file:tensor("loss.f64"):totable(), 1e-10)
      assert.is_true(losses[20] < 0.9 * losses[1], "the loss falls")
      -- Adam divides by sqrt(v): where a gradient is near zero its rounding is magnified
      for _, p in ipairs(model:named_parameters()) do
        numeric.agree(p.tensor, file:tensor("final." .. p.name), 1e-8)
      end
    end)
  end)

  it("equals PyTorch in f32: 20 losses within 1e-5", function()
    gm.scope(function()
      agree(train "f32", file:tensor("loss.f32"):totable(), 1e-5)
    end)
  end)
end)
