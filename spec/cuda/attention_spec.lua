--- The kernels of attention on CUDA where spec/kernels/attention_spec.lua does not look: the widest heads, heads that
-- they refuse, and the same bits each time.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local kernels = require "spec.kernels.support"
local rounding = require "spec.kernels.attention_rounding"

if emulation.lacks(pending) then return end

describe("attention on CUDA:", function()
  local input = kernels.input

  -- The outputs of attention and of its gradient, on a table.
  local function both(backend, q, k, v, g, wide)
    local o = core.run_op(backend, "attention", { q, k, v, n = 6 }, { true, true, n = 2 }, { causal = true })
    local saved = core.run_op("ref", "attention", { q, k, v, n = 6 }, { true, true, n = 2 }, { causal = true })
    local d = core.run_op(backend, "attention_grad", { q, k, v, nil, saved[1], saved[2], g, n = 9 },
      { true, true, true, n = 4 }, { causal = true })
    assert.equal(wide, o[2]:dtype())
    return { o[1], o[2], d[1], d[2], d[3] }
  end

  -- What rounding weights to 16 bits may cost where cuDNN does it. Our own kernels of such heads do not round them.
  local function allowed(q, k, v, g)
    if q:dtype() ~= "bf16" then return {} end
    local attrs = { causal = true }
    local saved = core.run_op("ref", "attention", { q, k, v, n = 6 }, { true, true, n = 2 }, attrs)
    local o = rounding("attention", { q, k, v, n = 6 }, attrs).cuda
    local d = rounding("attention_grad", { q, k, v, nil, saved[1], saved[2], g, n = 9 }, attrs).cuda
    return o and { o[1], o[2], d[1], d[2], d[3] } or {}
  end

  -- Scores sum 256 products of numbers below 1, gradients up to 40 terms of scores.
  for _, dtype in ipairs { "f32", "f64", "bf16" } do
    it("heads of 256 numbers, " .. dtype, function()
      gm.scope(function()
        local q, g = input({ 1, 37, 2, 256 }, dtype), input({ 1, 37, 2, 256 }, dtype)
        local k, v = input({ 1, 37, 1, 256 }, dtype), input({ 1, 37, 1, 256 }, dtype)
        local want, got = both("ref", q, k, v, g, kernels.wide(dtype)), both("cuda", q, k, v, g, kernels.wide(dtype))
        local again = both("cuda", q, k, v, g, kernels.wide(dtype))
        local rounded = allowed(q, k, v, g)
        for i = 1, 5 do
          kernels.compare(got[i], want[i], kernels.terms(293, 32), "output " .. i, rounded[i])
          kernels.compare(again[i], got[i], kernels.exact, "output " .. i .. ", again")
        end
      end)
    end)
  end

  it("heads of more than 256 numbers are refused", function()
    local q = input({ 1, 2, 1, 257 }, "f32")
    local ok, err = pcall(core.run_op, "cuda", "attention", { q, q, q, n = 6 }, { true, true, n = 2 }, {})
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("heads of 257 numbers; the CUDA kernels take up to 256", 1, true), err)
  end)
end)
