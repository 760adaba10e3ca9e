-- Cross entropy of f32 logits so large that their log-sum-exp, as one number, has lost the digits of probabilities:
-- the loss and its gradient against closed formulas in double, with the classes whole and cut, alone and by the chunked
-- head.
-- ranks: 1 2
--
-- Logits are quarters plus a large shift: exact in f32, with differences that are known.
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ROWS, CLASSES = 4, 11 -- on 2 ranks blocks of 6 and 5 classes
local classes_last, classes_first = { cuts = { {}, { "tensor" } } }, { cuts = { { "tensor" } } }

local function quarter(r, k) return (5 * r * k + 3 * k + r) % 17 / 4 end
local function target_of(r) return 3 * r % CLASSES end

-- In double: the losses of the rows, and the gradient of their sum, row by row.
local function truth(smoothing)
  local losses, gradients = {}, {}
  for r = 0, ROWS - 1 do
    local sum, loss = 0, 0
    for k = 0, CLASSES - 1 do sum = sum + math.exp(quarter(r, k)) end
    for k = 0, CLASSES - 1 do
      local wanted = (k == target_of(r) and 1 - smoothing or 0) + smoothing / CLASSES
      loss = loss + wanted * (math.log(sum) - quarter(r, k))
      gradients[#gradients + 1] = math.exp(quarter(r, k)) / sum - wanted
    end
    losses[#losses + 1] = loss
  end
  return losses, gradients
end

-- f(i, j) of rows and columns, as a leaf laid out so.
local function matrix(rows, columns, f, layout)
  local list = {}
  for i = 0, rows - 1 do
    for j = 0, columns - 1 do list[#list + 1] = f(i, j) end
  end
  local t = gm.tensor(list, { dtype = "f32", shape = { rows, columns } })
  return core.redistribute(t, layout):detach():requires_grad(true)
end

local function whole(t) return core.redistribute(t, { cuts = {} }) end

-- A few roundings of the largest value.
local function check(want, got) numeric.agree(got, want, 8 * 2 ^ -24) end

describe("cross entropy of large logits:", function()
  local targets
  setup(function() core.set_mesh { { "tensor", core.world() } } end)
  before_each(function() targets = numeric.integers({ ROWS }, target_of) end)

  for _, shift in ipairs { 0, 1e3, -1e4, 1e5 } do
    for _, smoothing in ipairs { 0, 0.1 } do
      local losses, gradients = truth(smoothing)
      local name = ("larger by %g, smoothing %g"):format(shift, smoothing)

      it(name, function()
        gm.scope(function()
          local x = matrix(ROWS, CLASSES, function(r, k) return shift + quarter(r, k) end, classes_last)
          local loss = ops.cross_entropy(x, targets, { label_smoothing = smoothing })
          loss:sum():backward()
          check(losses, whole(loss))
          check(gradients, whole(x:grad()))
        end)
      end)

      -- x is the identity, so that logits are the weights' columns, whose gradient is that of the logits.
      it(name .. ", by the head in pieces", function()
        gm.scope(function()
          local x = matrix(ROWS, ROWS, function(i, j) return i == j and 1 or 0 end, { cuts = {} })
          local w = matrix(CLASSES, ROWS, function(k, r) return quarter(r, k) end, classes_first)
          local b = core.redistribute(gm.full({ CLASSES }, shift), classes_first):detach()
          local sum = ops.linear_cross_entropy(x, w, b, targets, { rows = 3, label_smoothing = smoothing })
          sum:backward()
          local all = 0
          for _, v in ipairs(losses) do all = all + v end
          check({ all }, { whole(sum):item() })
          check(gradients, whole(w:grad()):transpose(1, 2):contiguous())
        end)
      end)
    end
  end

  -- The first 6 classes, all that one of 2 ranks has, are masked: of what is left the probabilities are those of 5.
  it("of -inf but for some classes: infinite for a target among the others, right for the rest", function()
    gm.scope(function()
      local x = matrix(2, CLASSES, function(r, k) return k < 6 and -1 / 0 or quarter(r, k) end, classes_last)
      local losses = whole(ops.cross_entropy(x, numeric.integers({ 2 }, function(r) return r == 0 and 2 or 8 end)))
      assert.equal(1 / 0, losses:get(1))
      local sum = 0
      for k = 6, CLASSES - 1 do sum = sum + math.exp(quarter(1, k)) end
      check({ math.log(sum) - quarter(1, 8) }, { losses:get(2) })
    end)
  end)
end)
