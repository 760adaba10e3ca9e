--- Fifty updates of each optimizer with given gradients, against PyTorch (families.py) and the programs of the authors
-- of CAME and GaLore (came.py, galore.py).
local examples = require "spec.golden.examples"
local given_gradients = require "spec.golden.given_gradients"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

-- relative to the largest parameter: fifty updates of a few roundings each
local tolerances = { f32 = 1e-5, f64 = 1e-12 }

local function judge(file, case, dtype)
  local seen = 0
  given_gradients.run(case,
    function(n) return file:tensor("param." .. n, dtype) end,
    function(k, n) return file:tensor(("grad.%d.%d"):format(k, n), dtype) end,
    function(k, n, p)
      local name = ("%s/after.%d.%d"):format(case.name, k, n)
      if file:has(name) then
        numeric.agree(p, file:tensor(name), tolerances[dtype])
        seen = seen + 1
      end
    end)
  assert.equal(4 * case.params, seen)
end

describe("golden", function()
  require "ganymede.optim"
  for _, name in ipairs { "families", "came", "galore" } do
    local file = read(name)
    examples(it, file, function(case, dtype) judge(file, case, dtype) end)
  end
end)
