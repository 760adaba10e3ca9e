--- Six updates of each optimizer with given gradients, against PyTorch (optimizers.py).
local examples = require "spec.golden.examples"
local given_gradients = require "spec.golden.given_gradients"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

-- relative to the largest parameter: six updates of a few roundings each
local tolerances = { f32 = 2e-6, f64 = 1e-13 }

local file = read "optimizers"

local function judge(case, dtype)
  local function tensor(what) return file:tensor(case.name .. "/" .. what, dtype) end
  local optimizer = given_gradients.run(case,
    function(n) return tensor("param." .. n) end,
    function(k, n) return tensor(("grad.%d.%d"):format(k, n)) end,
    function(k, n, p)
      numeric.agree(p, file:tensor(("%s/after.%d.%d"):format(case.name, k, n)), tolerances[dtype])
    end)
  assert.equal(case.steps, optimizer:steps())
end

describe("golden", function()
  require "ganymede.optim"
  examples(it, file, judge)
end)
