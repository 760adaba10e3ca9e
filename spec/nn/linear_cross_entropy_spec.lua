--- A classifier and its loss some rows at a time: the sum, all gradients, what memory holds, against the whole head.
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ROWS, WIDTH, CLASSES = 11, 6, 9

local function any(seed, ...) return gm.uniform({ ... }, { low = -1, high = 1, seed = seed }) end

-- x, w, b (nil: none), target. opt: bias, ignored ("some", "all"), tied (w makes x, too)
local function inputs(opt)
  local w, b = any(2, CLASSES, WIDTH):requires_grad(true), opt.bias and any(3, CLASSES):requires_grad(true) or nil
  local x = any(1, ROWS, WIDTH):requires_grad(true)
  local target = numeric.integers({ ROWS }, function(i)
    if opt.ignored == "all" or (opt.ignored == "some" and i % 3 == 1) then return -100 end
    return 5 * i % CLASSES
  end)
  return x, w, b, target
end

-- A loss of x, scaled, so that the gradient of the sum is no 1; tied: x is looked up in w, besides.
local function through(head, opt, x, w, b, target)
  local y = ops.tanh(x)
  if opt.tied then y = y + ops.embedding(w, numeric.integers({ ROWS }, function(i) return 2 * i % CLASSES end)) end
  return head(y, w, b, target) * 0.37
end

local function options_of(opt, rows)
  return { rows = rows, label_smoothing = opt.smooth and 0.1 or 0 }
end

local function whole(opt)
  return function(x, w, b, target)
    return ops.cross_entropy(ops.linear(x, w, b), target, options_of(opt)):sum()
  end
end

local function in_pieces(opt, rows)
  return function(x, w, b, target) return ops.linear_cross_entropy(x, w, b, target, options_of(opt, rows)) end
end

-- loss, then the gradients of x, w and b
local function measure(opt, head)
  return gm.scope(function()
    local x, w, b, target = inputs(opt)
    local loss = through(head, opt, x, w, b, target)
    loss:backward()
    local out = { { loss:item() }, numeric.flat(x:grad()), numeric.flat(w:grad()) }
    if b then out[4] = numeric.flat(b:grad()) end
    return out
  end)
end

local function largest_difference(a, b)
  local worst = 0
  for k, list in ipairs(a) do
    assert.equal(#list, #b[k])
    for i, v in ipairs(list) do worst = math.max(worst, math.abs(v - b[k][i])) end
  end
  return worst
end

local cases = {
  { "plain", {} }, { "bias", { bias = true } }, { "ignored targets", { bias = true, ignored = "some" } },
  { "label smoothing", { smooth = true } }, { "nothing counts", { bias = true, ignored = "all" } },
  { "tied", { tied = true } },
}

describe("linear_cross_entropy", function()
  local before
  setup(function() before = gm.default_dtype() gm.set_default_dtype "f64" end)
  teardown(function() gm.set_default_dtype(before) end)

  -- 11 rows: pieces that divide them, that do not, one
  for _, case in ipairs(cases) do
    local name, opt = unpack(case)
    it("is the whole head's sum, with its gradients: " .. name, function()
      local want = measure(opt, whole(opt))
      for _, rows in ipairs { 1, 4, 10, 11, 64 } do
        local worst = largest_difference(want, measure(opt, in_pieces(opt, rows)))
        assert.is_true(worst <= 1e-12, ("%d rows: differs by %g"):format(rows, worst))
      end
      if opt.ignored == "all" then assert.equal(0, want[1][1]) else assert.is_true(want[1][1] > 1) end
    end)
  end

  it("has the gradients that central differences say, also in two halves", function()
    local opt = { bias = true, smooth = true, ignored = "some" }
    local x, w, b, target = inputs(opt)
    for _, halves in ipairs { false, true } do
      gm.gradcheck(function(u, v, c) return through(in_pieces(opt, 3), opt, u, v, c, target) end,
        { x:detach(), w:detach(), b:detach() }, { halves = halves })
    end
  end)

  it("adds to gradients that are there", function()
    gm.scope(function()
      local x, w, _, target = inputs {}
      in_pieces({}, 4)(x, w, nil, target):backward()
      local once = numeric.flat(w:grad())
      in_pieces({}, 4)(x, w, nil, target):backward()
      for i, v in ipairs(numeric.flat(w:grad())) do assert.near(2 * once[i], v, 1e-13) end
    end)
  end)

  it("says where the largest logits are, and takes any leading dimensions", function()
    gm.scope(function()
      local x, w, b, target = inputs { bias = true }
      x, target = x:detach():narrow(1, 1, 10):reshape { 2, 5, WIDTH }, target:narrow(1, 1, 10):reshape { 2, 5 }
      for _, rows in ipairs { 3, 10 } do
        local sum, places = ops.linear_cross_entropy(x, w, b, target, { rows = rows, places = true })
        assert.same(numeric.flat(ops.argmax(ops.linear(x, w, b), -1)), numeric.flat(places))
        assert.same({ 2, 5 }, places:shape())
        assert.near(ops.cross_entropy(ops.linear(x, w, b), target):sum():item(), sum:item(), 1e-12)
      end
    end)
  end)

  it("takes all rows at once where nobody says how many", function()
    local x, w = any(1, 4, 6), any(2, 9, 6)
    local target = numeric.integers({ 4 }, function() return 1 end)
    assert.equal(ops.linear_cross_entropy(x, w, nil, target, { rows = 4 }):item(),
      ops.linear_cross_entropy(x, w, nil, target):item())
  end)

  it("says what does not fit", function()
    local x, w = any(1, 4, 6), any(2, 9, 6)
    local target = numeric.integers({ 5 }, function() return 1 end)
    assert.error_matches(function() ops.linear_cross_entropy(x, w, nil, target, { rows = 2 }) end,
      "linear_cross_entropy: x is f64 %(4, 6%), the target i64 %(5%); should be one for each row of x")
    assert.error_matches(function() ops.linear_cross_entropy(x, w, nil, target:narrow(1, 1, 4), { rows = 0 }) end,
      "'rows' must be an integer, at least 1; got 0")
    local wrong = numeric.integers({ 4 }, function() return 9 end)
    assert.error_matches(function()
      ops.linear_cross_entropy(x, w:requires_grad(true), nil, wrong, { rows = 2 })
      core.synchronize() -- a GPU says it where something waits
    end, "target")
    ops.sum(w):backward() -- the tape is as it was before the call that failed
  end)
end)
