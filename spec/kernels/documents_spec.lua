-- Several documents in one row: the op that finds them, and attention that ends at their borders (`limits`), every
-- table against the reference; and attention of n documents in one row against each document alone.
local gm = require "ganymede"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local rounding = require "spec.kernels.attention_rounding"
local support = require "spec.kernels.support"

local input = support.input

local function agree(case)
  case.dense_rows = true
  case.rounding = rounding(case.op, case.inputs, case.attrs or {})
  support.agree(case)
end

-- ---------------------------------------------------------------- documents

describe("documents agree with ref:", function()
  for _, shape in ipairs { { 1, 1 }, { 3, 7 }, { 2, 300 }, { 0, 4 }, { 2, 0 }, { 1, 1030 } } do
    for _, dtype in ipairs { "i64", "i32" } do
      it(dtype .. " " .. support.show(shape), function()
        for _, layout in ipairs { "contiguous", "turned", "window" } do
          gm.scope(function()
            for _, highest in ipairs { 0, 1, 5 } do
              local segment = support.integers(shape, dtype, -1, highest, layout)
              support.agree { op = "documents", inputs = { segment }, outputs = { true }, within = support.exact }
            end
          end)
        end
      end)
    end
  end

  it("first place, end and place of each position, worked out by hand", function()
    local segment = gm.tensor({ { 4, 4, 4, 9, -1, -1, 4, 4 }, { 0, 1, 2, 2, 2, 2, 2, -7 } }, { dtype = "i64" })
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      local spans = core.run_op(backend, "documents", { segment }, { true })[1]
      assert.same({
        { { 0, 3, 0 }, { 0, 3, 1 }, { 0, 3, 2 }, { 3, 4, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 6, 8, 0 }, { 6, 8, 1 } },
        { { 0, 1, 0 }, { 1, 2, 0 }, { 2, 7, 0 }, { 2, 7, 1 }, { 2, 7, 2 }, { 2, 7, 3 }, { 2, 7, 4 }, { 0, 0, 0 } },
      }, spans:totable(), backend)
    end
  end)
end)

-- ---------------------------------------------------------------- attention with limits

-- Limits that go up and down, that leave nothing to some queries, and that name keys before the first and behind the
-- last; all keys are counted from `first`.
local function any_limits(b, s, t, first)
  local list = {}
  for row = 0, b - 1 do
    for i = 0, s - 1 do
      local from = (7 * i * i + 3 * row) % (t + 4) - 2
      local many = (5 * i + row) % 4 == 0 and 0 or (11 * i + 2) % (t + 3)
      list[#list + 1], list[#list + 2] = first + from, first + from + many
    end
  end
  return gm.tensor(list, { dtype = "i64", shape = { b, s, 2 } })
end

-- Documents of these lengths, one after the other, each row with its own order.
local function documents(b, lengths)
  local rows = {}
  for r = 1, b do
    rows[r] = {}
    for k = 1, #lengths do
      for _ = 1, lengths[(k + r) % #lengths + 1] do table.insert(rows[r], k) end
    end
  end
  return core.run_op("ref", "documents", { gm.tensor(rows, { dtype = "i64" }) }, { true })[1]:narrow(3, 1, 2)
end

-- Blocks of keys and of queries that lie within a document, that hold several, and at whose border one begins.
-- b, queries, keys, heads, key heads, size; attributes; documents, or first key of any limits; whether there is a mask
local cases = {
  { "any limits", { 2, 40, 37, 4, 2, 8 }, { p = 0.3 }, 5, true },
  { "any limits with a window", { 1, 70, 90, 2, 1, 16 }, { causal = true, window = 30, softcap = 0.8 }, 0 },
  { "any limits, more queries than keys", { 2, 65, 20, 2, 2, 5 }, { causal = true, scale = 0.7 }, -9 },
  { "documents", { 2, 150, 150, 2, 1, 16 }, { causal = true }, { 70, 1, 9, 64, 6 } },
  { "documents that see all of themselves", { 1, 130, 130, 2, 2, 64 }, {}, { 3, 64, 63 } },
  { "documents with a window", { 1, 200, 200, 2, 1, 8 }, { causal = true, window = 20, p = 0.2 }, { 90, 110 }, true },
  { "long documents", { 1, 240, 240, 2, 1, 16 }, {}, { 110, 130 } },
  { "documents of heads of 128", { 1, 100, 100, 1, 1, 128 }, { causal = true }, { 33, 67 } },
}

local function limits_of(case)
  local b, s, t = unpack(case[2])
  if type(case[4]) == "table" then return documents(b, case[4]), 0 end
  return any_limits(b, s, t, case[4]), case[4]
end

describe("attention with limits agrees with ref:", function()
  for _, case in ipairs(cases) do
    for _, dtype in ipairs(support.dtypes) do
      it(case[1] .. " in " .. dtype, function()
        gm.scope(function()
          local b, s, t, h, hk, d = unpack(case[2])
          local limits, first = limits_of(case)
          local attrs = { stream = { key = 99, step = 5 }, first = first }
          for key, value in pairs(case[3]) do attrs[key] = value end
          local mask = case[5] and support.integers({ b, t }, "u8", 0, 2) or nil
          local q, k, v = input({ b, s, h, d }, dtype), input({ b, t, hk, d }, dtype), input({ b, t, hk, d }, dtype)
          local g, bound = input({ b, s, h, d }, dtype), math.max(2, math.sqrt(d))
          local inputs = { q, k, v, mask, limits, n = 6 }
          agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs,
                  within = support.terms(t + d, bound) }
          local function saved(i)
            return support.copy(support.reference("attention", inputs, attrs, i, 2),
              i == 1 and dtype or support.wide(dtype))
          end
          agree { op = "attention_grad", inputs = { q, k, v, mask, saved(1), saved(2), g, limits, n = 9 },
                  outputs = { true, true, true, n = 4 }, attrs = attrs,
                  within = support.terms(s * h / hk + t + d, 2 * bound) }
        end)
      end)
    end
  end

  -- spec/golden/documents.py. Sums of at most 11 products, in f64 on both sides.
  it("is PyTorch's with a block-diagonal causal mask, gradients too", function()
    gm.scope(function()
      local file = gm.open_arrays "spec/golden/documents.safetensors"
      local x = {}
      for _, name in ipairs { "q", "k", "v" } do x[name] = file:read(name):requires_grad(true) end
      local limits = gm.ops.narrow(gm.ops.documents(file:read "segments"), 3, 1, 2)
      local o = gm.ops.attention(x.q, x.k, x.v, { causal = true, limits = limits })
      o:backward(file:read "g")
      local got = { o = o, dq = x.q:grad(), dk = x.k:grad(), dv = x.v:grad() }
      for name, t in pairs(got) do
        local want = numeric.flat(file:read(name):totable())
        assert.is_true(numeric.relative_error(numeric.flat(t:totable()), want) <= 1e-14, name)
      end
      file:close()
    end)
  end)

  -- Sums go over the same keys in the same order on ref; other tables cut their blocks elsewhere.
  it("documents in one row are each document alone", function()
    gm.scope(function()
      local lengths, total = { 5, 1, 70, 33 }, 109
      local segments = {}
      for n, length in ipairs(lengths) do
        for _ = 1, length do segments[#segments + 1] = n end
      end
      local spans = core.run_op("ref", "documents", { gm.tensor({ segments }, { dtype = "i64" }) }, { true })[1]
      local limits = spans:narrow(3, 1, 2)
      local q, k, v = input({ 1, total, 4, 8 }, "f64"), input({ 1, total, 2, 8 }, "f64"),
        input({ 1, total, 2, 8 }, "f64")
      local g, attrs = input({ 1, total, 4, 8 }, "f64"), { causal = true }
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local all = core.run_op(backend, "attention", { q, k, v, nil, limits, n = 6 }, { true, true, n = 2 }, attrs)
        local slopes = core.run_op(backend, "attention_grad", { q, k, v, nil, all[1], all[2], g, limits, n = 9 },
          { true, true, true, n = 4 }, attrs)
        local first = 1
        for _, n in ipairs(lengths) do
          local function part(x) return x:narrow(2, first, n) end
          local alone = core.run_op(backend, "attention", { part(q), part(k), part(v), nil, nil, n = 6 },
            { true, true, n = 2 }, attrs)
          support.compare(part(all[1]), alone[1], support.absolute(64, 4), backend)
          support.compare(all[2]:narrow(3, first, n), alone[2], support.absolute(64, 8), backend)
          local own = core.run_op(backend, "attention_grad",
            { part(q), part(k), part(v), nil, alone[1], alone[2], part(g), nil, n = 9 }, { true, true, true, n = 4 },
            attrs)
          for i = 1, 3 do support.compare(part(slopes[i]), own[i], support.absolute(256, 8), backend) end
          first = first + n
        end
      end
    end)
  end)
end)
