-- Weights of few bits in layers and models: what is rounded, what they compute, how adapters learn beside them, what is
-- refused; alone and in 1D tensor parallelism.
-- ranks: 1 2
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local fails = require "spec.support.fails"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local nn, ops = gm.nn, gm.ops
local two = core.world() == 2

-- 64 of a row for each of two ranks, two groups of 32.
local function llama(more)
  local opt = { vocabulary = 29, width = 128, depth = 2, heads = 2, kv_heads = 2, hidden = 128 }
  for key, value in pairs(more or {}) do opt[key] = value end
  return gm.models.Llama(opt)
end

local tokens = { { 1, 2, 3, 4, 5 }, { 9, 8, 7, 6, 28 } }

local function logits_of(model) return model(gm.tensor(tokens, { dtype = "i64" })):gather() end

-- The model with each weight replaced by the numbers that rounding leaves of it.
local function with_numbers(model, opt)
  for _, p in ipairs(model:named_parameters()) do
    if p.tensor:dim() == 2 then
      local whole = p.tensor:gather()
      local codes = ops.quantize(whole, opt)
      local back = ops.dequantize(codes, whole:size(2), { bits = opt.bits, group = opt.group, dtype = "f64" })
      p.tensor:copy_(back:redistribute { cuts = core.layout(p.tensor).cuts })
    end
  end
  return model
end

describe("gm.quantize" .. (two and " in 1D on two ranks" or ""), function()
  if two then
    setup(function() against.install { tensor = { size = 2, mode = "1d" } } end)
    teardown(function() against.install { data = 2 } end)
  end

  for _, kind in ipairs { { bits = 8, group = 32 }, { bits = 4, group = 32 }, { bits = 4, group = 64 } } do
    -- the last table is cut over its rows in 1D
    for _, case in ipairs { {}, { tied = false }, { vocabulary = 2100 } } do
      it(("a model computes with %d bits in groups of %d what it computes with their numbers, %s"):format(kind.bits,
        kind.group, case.vocabulary and "many rows" or case.tied == false and "untied" or "tied"),
        numeric.f64(function()
          gm.scope(gm.no_grad, function()
            local model, other = llama(case):eval(), llama(case):eval()
            local report = gm.quantize(model, { bits = kind.bits, group = kind.group,
              match = case.tied == false and { "blocks", "head", "tokens" } or nil })
            assert.equal(case.tied == false and 12 or 11, #report.layers)
            -- a number moves by at most half of 1/127 or 1/8 of the largest of its group; most move by much less
            assert.is_true(report.worst.error < (kind.bits == 8 and 0.01 or 0.15) and report.mean > 0)
            -- in f64 both sum the same products, in another order
            numeric.agree(logits_of(model), logits_of(with_numbers(other, kind)), 1e-12)
          end)
        end))
    end
  end

  it("leaves generation as it is", function()
    local prompts = { { 1, 2, 3 }, { 4 } }
    local model, other = llama(), llama()
    gm.no_grad(gm.scope, with_numbers, other, { bits = 8, group = 32 })
    gm.quantize(model)
    local a = gm.generate(model, { prompts = prompts, max_tokens = 6 })
    local b = gm.generate(other, { prompts = prompts, max_tokens = 6 })
    for i = 1, 2 do assert.same(b[i].tokens, a[i].tokens) end
  end)

  it("adapters learn beside frozen weights, as beside the numbers of these", numeric.f64(function()
    local function gradients(model)
      local out = {}
      local loss = ops.sum(ops.square(logits_of(model)))
      loss:backward()
      for _, p in ipairs(model:named_parameters()) do
        if p.tensor:requires_grad() then out[p.name] = p.tensor:grad():gather() end
      end
      return out
    end
    local model, other = llama {}, llama {}
    gm.no_grad(gm.scope, with_numbers, other, { bits = 4, group = 32 })
    gm.quantize(model, { bits = 4 })
    for _, m in ipairs { model, other } do
      gm.lora(m, { rank = 2, match = "^blocks" })
      gm.no_grad(function()
        for _, p in ipairs(m:named_parameters()) do
          if p.name:find "lora%.b" then p.tensor:copy_(gm.full(p.tensor:shape(), 0.01)) end
        end
      end)
    end
    local got, want, count = gradients(model), gradients(other), 0
    for name, g in pairs(want) do
      count = count + 1
      numeric.agree(got[name], g, 1e-10)
    end
    assert.equal(2 * 5 * 2, count) -- of two blocks, five layers, two matrices
  end))

  it("keeps codes in the state, where checkpoints find them", function()
    local model = nn.Linear(64, 64, false)
    gm.quantize(model, { bits = 4 })
    local state = model:state()
    assert.equal("u8", state[1].tensor:dtype())
    assert.is_false(state[1].tensor:requires_grad())
    assert.same({ 64, 36 }, state[1].tensor:shape())
  end)

  it("refuses what it cannot do", function()
    fails("matches no layer", gm.quantize, nn.Linear(64, 64), { match = "blocks" })
    fails("no linear layer", gm.quantize, nn.Sequential { nn.ReLU() })
    fails("multiple of 32", gm.quantize, nn.Linear(64, 64), { group = 40 })
    fails("head_chunk = 0", gm.quantize, llama { head_chunk = 4 })
    fails("matches no layer", gm.quantize, nn.LayerNorm(64), { match = "" })
    local model = nn.Linear(64, 64)
    gm.quantize(model)
    gm.lora(model, { rank = 2 })
    fails("few bits", gm.merge_lora, model)
    local other = nn.Sequential { nn.Linear(64, 64) }
    gm.quantize(other)
    fails("no gradient", gm.lora, other, { train = "weight" })
  end)

  if two then
    it("refuses a group that two ranks would share", function()
      local model = nn.Sequential { nn.MLP(96, 96) } -- 48 of a row of the second layer for each rank
      fails("would share a block", gm.quantize, model)
    end)
  end
end)

if not two then
  describe("gm.pretrained with quantize", function()
    it("rounds as it reads; export and misspelt kinds are refused", function()
      local model = gm.pretrained("spec/golden/hub/llama", { quantize = { bits = 8, match = "mlp" } })
      local again = gm.pretrained "spec/golden/hub/llama"
      local report = gm.quantize(again, { match = "mlp" })
      gm.scope(gm.no_grad, function()
        local ids = gm.tensor({ { 1, 2, 3 } }, { dtype = "i64" })
        assert.same(again(ids):totable(), model(ids):totable())
      end)
      assert.equal(6, #report.layers)
      local folder = os.tmpname()
      os.remove(folder)
      fails("has 8 bits", gm.export_model, model, folder)
      fails("int8, int4 or a table", gm.pretrained, "spec/golden/hub/llama", { quantize = "int3" })
    end)
  end)
end
