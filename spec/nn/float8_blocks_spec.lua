-- Dense layers of floats of 8 bits with scales of blocks of 128 against numbers that Lua rounds by the definition, in
-- f64; and the setting. spec/nn/float8_spec.lua has losses of a training, spec/kernels/float8_blocks_spec.lua codes.
--
-- In f64 scales are exact, and sums of at most 300 products round in 1e-16 of the largest of them: 1e-13.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local ops = gm.ops
local SIDE = 128

-- A number of e4m3 that is nearest to v / scale, times the scale; of two the one whose last digit is even.
local function nearest(v, scale)
  local size = math.abs(v) / scale
  local _, exponent = math.frexp(size)
  local unit = 2 ^ (math.max(exponent - 1, -6) - 3)
  local down = math.floor(size / unit)
  local rest = size / unit - down
  if rest > 0.5 or (rest == 0.5 and down % 2 == 1) then down = down + 1 end
  return (v < 0 and -1 or 1) * math.min(down * unit, 448) * scale
end

-- Rows of a matrix, rounded in blocks of so many rows and columns.
local function rounded(t, high, wide)
  local rows, out = t:detach():totable(), {}
  local m, k = #rows, #rows[1]
  for i = 1, m do out[i] = {} end
  for i = 1, m, high do
    for l = 1, k, wide do
      local largest, scale = 0, 2 ^ -126
      local bottom, right = math.min(m, i + high - 1), math.min(k, l + wide - 1)
      for r = i, bottom do
        for c = l, right do largest = math.max(largest, math.abs(rows[r][c])) end
      end
      while largest > scale * 448 do scale = 2 * scale end
      for r = i, bottom do
        for c = l, right do out[r][c] = nearest(rows[r][c], scale) end
      end
    end
  end
  return gm.tensor(out, { dtype = "f64" })
end

local seed = 60
local function draw(...)
  seed = seed + 1
  return gm.normal({ ... }, { dtype = "f64", seed = seed }) * gm.uniform({ ... }, { dtype = "f64", seed = seed })
end

local function trained(t) return t:detach():requires_grad(true) end

describe("linear_float8 with scales of blocks", function()
  -- tokens, inputs and outputs below one block, in whole ones, and beyond
  for _, lead in ipairs { { 5 }, { 3, 50 }, { 2, 2, 64 } } do
    for _, size in ipairs { { 16, 32 }, { 128, 144 }, { 272, 130 } } do
      it(("computes with rounded numbers, forward and backward: (%s) %d to %d"):format(table.concat(lead, ", "),
        size[1], size[2]), function()
        gm.scope(function()
          local k, n, m, shape = size[1], size[2], 1, {}
          for d, s in ipairs(lead) do m, shape[d] = m * s, s end
          shape[#shape + 1] = k
          local x, w, b = trained(draw(unpack(shape))), trained(draw(n, k)), trained(draw(n))
          shape[#shape] = n
          local g = draw(unpack(shape))
          local y = ops.linear_float8(x, w, b, { blocks = true })
          y:backward(g)
          local rows, dy = x:detach():reshape(m, k), g:reshape(m, n)
          local w8 = rounded(w, SIDE, SIDE)
          local want = ops.matmul(rounded(rows, 1, SIDE), w8:transpose(1, 2)) + b:detach()
          numeric.agree(y:detach():reshape(m, n), want, 1e-13, 1)
          numeric.agree(x:grad():reshape(m, k), ops.matmul(rounded(dy, 1, SIDE), w8), 1e-13, 1)
          local dw = ops.matmul(rounded(dy, SIDE, 1):transpose(1, 2), rounded(rows, SIDE, 1))
          numeric.agree(w:grad(), dw, 1e-13, 1)
          numeric.agree(b:grad(), ops.sum(dy, 1), 1e-13, 1)
        end)
      end)
    end
  end

  it("adds to gradients that are there, and gives only those that are wanted", function()
    gm.scope(function()
      local x, w = draw(6, 144), trained(draw(16, 144))
      local function call(a, b) ops.linear_float8(a, b, nil, { blocks = true }):sum():backward() end
      call(x, w)
      local once = w:grad():clone()
      call(x, w)
      numeric.agree(w:grad(), once * 2, 0, 1)
      local frozen = w:detach()
      x = trained(x)
      call(x, frozen)
      assert.is_nil(frozen:grad())
      assert.is_true(x:grad():abs():sum():item() > 0)
    end)
  end)

  -- One token of 1e6 with one scale leaves nothing of the others; in blocks each row has its own.
  it("keeps all rows but the one of a huge number", function()
    gm.scope(function()
      local x, w = draw(40, 256), draw(32, 256)
      local want = ops.matmul(x, w:transpose(1, 2)):totable()
      x:set(9, 17, 1e6)
      local function error_of(opt)
        local y, worst = ops.linear_float8(x, w, nil, opt):totable(), 0
        for i = 1, 40 do
          local up, all = 0, 0
          for j = 1, 32 do
            up = up + (y[i][j] - want[i][j]) ^ 2
            all = all + want[i][j] ^ 2
          end
          if i ~= 9 then worst = math.max(worst, math.sqrt(up / all)) end
        end
        return worst
      end
      -- rounding moves each factor by at most 2^-4, in the mean by less than a third of that
      assert.is_true(error_of { blocks = true } < 0.08, tostring(error_of { blocks = true }))
      assert.is_true(error_of() > 0.9, tostring(error_of()))
    end)
  end)
end)

describe("gm.float8 with scales of blocks", function()
  it("changes what the layers compute, activation included", function()
    gm.scope(function()
      local first = gm.nn.Linear { inputs = 32, outputs = 64, activation = "gelu" }
      local m = gm.nn.Sequential { first, gm.nn.Linear(64, 24) }:materialize()
      local x = gm.uniform({ 3, 32 }, { seed = 5, low = -1 })
      x:set(1, 1, 1e5) -- leaves few digits to the other rows, where all have one scale
      assert.same({ "1" }, gm.float8(m, { scaling = "blocks" }))
      local want = ops.gelu(ops.linear_float8(x, m[1].weight, m[1].bias, { blocks = true }))
      assert.same(want:totable(), m[1](x):totable())
      assert.not_same(ops.gelu(ops.linear_float8(x, m[1].weight, m[1].bias)):totable(), want:totable())
    end)
  end)

  it("has no past, and keeps nothing", function()
    local m = gm.nn.Sequential { gm.nn.Linear(32, 64) }
    local ok, err = pcall(gm.float8, m, { scaling = "blocks", history = 4 })
    assert.is_false(ok)
    assert.matches('history goes with scaling = "delayed"; scales of "blocks" have no past', err, 1, true)
    gm.float8(m, { scaling = "blocks" })
    ok, err = pcall(gm.float8_update, m)
    assert.is_false(ok)
    assert.matches("no layer of the model keeps scales", err, 1, true)
  end)
end)
