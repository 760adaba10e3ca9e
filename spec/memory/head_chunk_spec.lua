--- What a head in pieces holds at most, to the byte; and what it rounds where weights have 16 bits.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ROWS, WIDTH, CLASSES = 256, 8, 5000

local function inputs(dtype)
  return gm.uniform({ ROWS, WIDTH }, { low = -1, high = 1, seed = 1, dtype = dtype }):requires_grad(true),
    gm.uniform({ CLASSES, WIDTH }, { low = -1, high = 1, seed = 2, dtype = dtype }):requires_grad(true),
    numeric.integers({ ROWS }, function(i) return 77 * i % CLASSES end)
end

-- Most bytes while fn runs, beside what is held before.
local function peak_of(fn)
  local before = gm.memory().live
  gm.memory_reset_peak()
  fn()
  return gm.memory().peak - before
end

local function peaks(rows)
  return gm.scope(function()
    local x, w, target = inputs "f32"
    local function loss() return ops.linear_cross_entropy(x, w, nil, target, { rows = rows }) end
    return { training = peak_of(function() loss():backward() end), looking = peak_of(function() gm.no_grad(loss) end) }
  end)
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("the memory of a head in pieces", function()
  it("is two pieces of logits and the gradients of x and w, and no byte a row more than it needs", function()
    for _, rows in ipairs { 96, 112, 128 } do -- with fewer, what a product packs is more than a piece
      local logits, gradients = 4 * rows * CLASSES, 4 * (ROWS + CLASSES) * WIDTH
      local losses, scalars = 4 * rows, 5 * 4 -- sums, the seed, and what backward of a piece will bring
      assert.equal(2 * logits + gradients + losses + scalars, peaks(rows).training)
    end
  end)

  it("is one piece where no gradient is wanted", function()
    for _, rows in ipairs { 8, 32, 128 } do -- beside it what a product packs, which every instruction set does its way
      local most = peaks(rows).looking
      assert.is_true(most < 4 * rows * CLASSES + gm.memory().scratch_peak + 2 ^ 16)
    end
    assert.is_true(peaks(ROWS).looking >= 4 * ROWS * CLASSES)
  end)

  it("holds the same after each step", function()
    local live
    for _ = 1, 3 do
      gm.scope(function()
        local x, w, target = inputs "f32"
        ops.linear_cross_entropy(x, w, nil, target, { rows = 5 }):backward()
      end)
      live = live or gm.memory().live
      assert.equal(live, gm.memory().live)
    end
  end)
end)

describe("a head in pieces of 16 bits", function()
  local classes = 50

  -- Gradients of x and w; the gradient of the sum is 1.
  local function gradients(dtype, rows)
    return gm.scope(function()
      local x = gm.uniform({ ROWS, WIDTH }, { low = -1, high = 1, seed = 1, dtype = dtype }):requires_grad(true)
      local w = gm.uniform({ classes, WIDTH }, { low = -1, high = 1, seed = 2, dtype = dtype }):requires_grad(true)
      local target = numeric.integers({ ROWS }, function(i) return 77 * i % classes end)
      ops.linear_cross_entropy(x, w, nil, target, { rows = rows }):backward()
      return { numeric.flat(x:grad()), numeric.flat(w:grad()) }
    end)
  end

  for _, case in ipairs { { "bf16", 2 ^ -7 }, { "f16", 2 ^ -10 } } do -- the last place, as a share of the number
    local dtype, unit = unpack(case)
    it("rounds once what it sums over the pieces, " .. dtype, function()
      local whole, pieces = gradients(dtype, ROWS), gradients(dtype, 1)
      for k = 1, 2 do
        local others = 0
        for i, want in ipairs(whole[k]) do
          local off = math.abs(pieces[k][i] - want)
          -- a logit of one row, summed in another order, may round another way: it is below 4, and so moves its
          -- probability by two last places
          assert.is_true(off <= 4 * unit * math.abs(want) + 1e-6, ("%g, not %g"):format(pieces[k][i], want))
          if off > 0 then others = others + 1 end
        end
        -- sums of f32 in another order round another way now and then; 64 roundings on the way would most of the time
        assert.is_true(others <= 0.02 * #whole[k], others .. " numbers differ")
      end
    end)
  end
end)
