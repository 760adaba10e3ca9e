-- Dropout of attention's weights (kernels/drop.h): every table drops the same weights as ref, forward and in
-- each gradient, and a part of the whole drops what the whole drops there. spec/unit/philox_test.c has the numbers
-- themselves.
--
-- Masks become visible where all scores are 0. With a unit matrix as v an output is a row of weights; with unit
-- matrices as k, as q and as the gradient, the gradients are such rows and columns. They are compared bit by bit.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local all = { "ref", unpack(support.backends) }

-- (b, rows, h, d), of which row i is 1 at i and 0 elsewhere
local function unit(b, rows, h, d, dtype)
  local values = {}
  for i = 1, rows do
    for j = 1, d do values[#values + 1] = i == j and 1 or 0 end
  end
  local t = support.copy(gm.tensor(values):reshape { 1, rows, 1, d }, dtype)
  return t:expand { b, rows, h, d }
end

local function filled(value, b, rows, h, d, dtype) return support.copy(gm.zeros { b, rows, h, d } + value, dtype) end

-- Which of the first `wide` numbers of each row of t (b, rows, h, d) are not 0 -> at[b][h][row], a text of 0 and 1;
-- turned: at[b][h][column], of rows
local function mask_of(t, wide, turned)
  local b, rows, h, d = unpack(t:shape())
  local plain, at = support.copy(t, "f32"), {}
  local data = plain:data()
  for x = 1, b do
    at[x] = {}
    for n = 1, h do
      local lines = {}
      for i = 1, turned and wide or rows do
        local line = {}
        for j = 1, turned and rows or wide do
          local row, column = turned and j or i, turned and i or j
          line[j] = data[(((x - 1) * rows + row - 1) * h + n - 1) * d + column - 1] ~= 0 and "1" or "0"
        end
        lines[i] = table.concat(line)
      end
      at[x][n] = lines
    end
  end
  return at
end

local function forward(backend, case, dtype)
  local b, s, t, h, d = unpack(case)
  local q, k = filled(0, b, s, h, d, dtype), filled(0, b, t, h, d, dtype)
  local inputs = { q, k, unit(b, t, h, d, dtype), nil, n = 6 }
  return core.run_op(backend, "attention", inputs, { true, true, n = 2 }, case.attrs)[1]
end

-- The masks by which the gradients of q, k and v were made. lse is 0, so that all probabilities are 1; o is 0.
local function backward(backend, case, dtype)
  local b, s, t, h, d = unpack(case)
  local function zeros(rows) return filled(0, b, rows, h, d, dtype) end
  local function run(q, k, g)
    local lse = support.copy(gm.zeros { b, h, s }, support.wide(dtype))
    local inputs = { q, k, filled(1, b, t, h, d, dtype), nil, zeros(s), lse, g, n = 9 }
    return core.run_op(backend, "attention_grad", inputs, { true, true, true, n = 4 }, case.attrs)
  end
  local of_q = run(zeros(s), unit(b, t, h, d, dtype), filled(1, b, s, h, d, dtype))
  local of_k = run(unit(b, s, h, d, dtype), zeros(t), unit(b, s, h, d, dtype))
  return { q = mask_of(of_q[1], t), k = mask_of(of_k[2], s, true), v = mask_of(of_k[3], s, true) }
end

local function attrs_of(p, box) return { p = p, stream = { key = 77, step = 3 }, box = box } end

-- b, queries, keys, heads, size: rows of 47 keys; the same from a key that begins a block, and from others
local cases = {
  ["the whole"] = { 1, 40, 47, 2, 64, attrs = attrs_of(0.5) },
  ["keys from a block on"] = { 1, 40, 47, 2, 64, attrs = attrs_of(0.3,
    { shape = { 3, 4, 90, 77 }, offset = { 1, 2, 33, 16 } }) },
  ["keys from inside a block on"] = { 1, 40, 47, 2, 64, attrs = attrs_of(0.3,
    { shape = { 3, 4, 90, 77 }, offset = { 1, 2, 33, 13 } }) },
  ["wide heads"] = { 1, 70, 100, 1, 128, attrs = attrs_of(0.5), dtypes = { "f32", "bf16" } },
}

describe("dropout of attention", function()
  for name, case in pairs(cases) do
    it("drops the same weights everywhere: " .. name, function()
      gm.scope(function()
        local want = mask_of(forward("ref", case, "f64"), case[3])
        for _, dtype in ipairs(case.dtypes or support.dtypes) do
          for _, backend in ipairs(all) do
            local label = backend .. " " .. dtype
            assert.same(want, mask_of(forward(backend, case, dtype), case[3]), label)
            for of, mask in pairs(backward(backend, case, dtype)) do assert.same(want, mask, label .. ", " .. of) end
          end
        end
      end)
    end)
  end

  it("a part drops what the whole drops there", function()
    gm.scope(function()
      local whole = mask_of(forward("ref", { 2, 20, 45, 3, 64, attrs = attrs_of(0.5) }, "f32"), 45)
      for _, part in ipairs { { 1, 0, 0, 0 }, { 0, 2, 0, 0 }, { 0, 1, 7, 0 }, { 0, 0, 0, 8 }, { 1, 1, 3, 21 } } do
        local b, h, s, t = 2 - part[1], 3 - part[2], 20 - part[3], 45 - part[4]
        local attrs = attrs_of(0.5, { shape = { 2, 3, 20, 45 }, offset = part })
        for _, backend in ipairs(all) do
          local mask = mask_of(forward(backend, { b, s, t, h, 64, attrs = attrs }, "f32"), t)
          for x = 1, b do
            for n = 1, h do
              for i = 1, s do
                local want = whole[x + part[1]][n + part[2]][i + part[3]]:sub(part[4] + 1)
                assert.equal(want, mask[x][n][i], backend)
              end
            end
          end
        end
      end
    end)
  end)

  -- 26,214 of 65,536 are dropped where p is 0.4, and the factor makes up for these: it is not quite 1 / (1 - p).
  it("keeps the mean: the factor is that of the share that is drawn", function()
    gm.scope(function()
      for _, backend in ipairs(all) do
        local case = { 1, 40, 40, 1, 40, attrs = attrs_of(0.4) }
        local kept, sum = 0, 0
        for _, of_query in ipairs(forward(backend, case, "f64")[1]:totable()) do
          for _, weight in ipairs(of_query[1]) do
            if weight ~= 0 then
              assert.near(65536 / (65536 - 26214) / 40, weight, 1e-12, backend)
              kept = kept + 1
            end
            sum = sum + weight
          end
        end
        assert.near(0.6, kept / 1600, 5 * math.sqrt(0.24 / 1600), backend)
        assert.near(40, sum, 5 * math.sqrt(0.4 / 0.6), backend)
      end
    end)
  end)

  it("of next to nothing drops nothing, and of next to all leaves finite numbers", function()
    gm.scope(function()
      for _, backend in ipairs(all) do
        local function weights(p) return forward(backend, { 1, 40, 40, 1, 40, attrs = attrs_of(p) }, "f32") end
        support.compare(weights(2 ^ -18), weights(0), support.absolute(0), backend)
        for _, of_query in ipairs(weights(1 - 2 ^ -30)[1]:totable()) do
          for _, weight in ipairs(of_query[1]) do
            assert.is_true(weight == 0 or math.abs(weight / (65536 / 40) - 1) < 1e-5, backend)
          end
        end
      end
    end)
  end)
end)
