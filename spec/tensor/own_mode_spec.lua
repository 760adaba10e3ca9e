--- Tensor modes that a user writes in Lua alone: axes, how activations lie, a Linear; training equals serial.
--
-- "slices": activations are always cut over their width, a Linear's weight over its inputs; each rank multiplies what
-- it has, and redistribute scatters the sum of the terms. "by_hand": activations are whole, and the terms are summed
-- by gm.comm in a differentiable function of the recipe's own. The recipe registers both and a run selects one by
-- parallel.tensor.mode; what a mode has no class for (tables, norms, attention) is used as it is. 50 steps in f64 agree
-- to design section 5's 1e-9.
-- sanitizers: no, numbers of several ranks are compared; spec/comm and the specs beside it look at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"

local recipe = [[
local gm = require "ganymede"
local nn, ops, registry = gm.nn, gm.ops, gm.registry

-- Layout of an activation whose width is cut by these axes.
local function cut_width(x, axes)
  local cuts = {}
  for d = 1, x:dim() do cuts[d] = d == x:dim() and axes or {} end
  return { cuts = cuts }
end

local function finish(self, y)
  if self.opt.bias then y = ops.add(y, self:use "bias") end
  return self.opt.activation and ops[self.opt.activation](y) or y
end

local OfSlices = nn.class("LinearOfSlices", nn.Linear)
OfSlices.placement = { weight = { store = { false, "slice" } }, bias = { store = { "slice" } } }

function OfSlices:forward(x)
  local terms = ops.linear(x, self:use "weight") -- a sum over slice that has not been made
  return finish(self, terms:redistribute(cut_width(terms, { "slice" })))
end

registry.tensor_modes:register("slices", {
  axes = function(t) return { { "slice", t.size } } end, axis_names = { "slice" },
  stream = { rows = "", width = "slice" }, layers = { Linear = OfSlices },
})

local ByHand = nn.class("LinearByHand", nn.Linear)
ByHand.placement = { weight = { store = { false, "hand" } } }

local sum_over_hand = gm.custom {
  forward = function(terms) return gm.comm.all_reduce(terms:local_tensor():clone(), "hand") end,
  backward = function(dy) return dy end,
}

function ByHand:forward(x)
  return finish(self, sum_over_hand(ops.linear(x:redistribute(cut_width(x, { "hand" })), self:use "weight")))
end

registry.tensor_modes:register("by_hand", {
  axes = function(t) return { { "hand", t.size } } end, axis_names = { "hand" }, layers = { Linear = ByHand },
})

return {
  name = "own", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 256, sequence_length = 16, width = 16, depth = 2, heads = 2, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 16, stride = 16 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, weight_decay = 0.1 },
  epochs = 1, clip_grad_norm = 1.0,
}
]]

local STEPS = 50

describe("a tensor mode of the user's own #ranks", function()
  local serial

  setup(function() serial = job.run(recipe, 1, { steps = STEPS }) end)

  for _, mode in ipairs { "slices", "by_hand" } do
    it("trains as one rank does: " .. mode, function()
      local set = { "parallel.tensor.size=2", "parallel.tensor.mode=" .. mode }
      local stats = job.run(recipe, 2, { steps = STEPS, set = set })
      assert.same({ [mode == "slices" and "slice" or "hand"] = 2 }, stats.mesh)
      local worst, at = job.largest_difference(serial, stats, STEPS)
      assert.is_true(worst <= 1e-9, ("%g at step %d"):format(worst, at))
      for r, rank in ipairs(stats.ranks) do -- Linears are half here, tables and norms whole
        local share = rank.parameter_bytes / serial.ranks[1].parameter_bytes
        assert.is_true(share > 0.5 and share < 0.8, ("rank %d holds %g of the parameters"):format(r, share))
      end
      assert.is_true(job.traffic(stats, { phase = "forward" }) > 0)
    end)
  end

  it("is refused where its name is misspelt", function()
    local stats = job.run(recipe, 2, { code = 2, set = { "parallel.tensor.size=2", "parallel.tensor.mode=slicse" } })
    assert.matches("did you mean 'slices'", stats.err .. json.encode(stats.error))
  end)
end)
