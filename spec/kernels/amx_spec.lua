-- Products of bf16 in tiles of AMX (kernels/cpu/gemm_amx.c): by the processor if it can, and with plain C in place of
-- the instructions (amx_tiles.h). bf16_products_spec.lua and contraction_spec.lua compare them with the
-- reference in random sizes; here are the edges of tiles and of blocks. spec/unit/amx_test.c has the instructions.
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local tables = { "cpu-amx-emulated", core.has_backend "cpu-amx" and "cpu-amx" or nil }

local function whole(rows, columns)
  return support.integers({ rows, columns }, "i32", -8, 8):to "bf16"
end

local function product(name, a, b, attrs, output)
  return core.run_op(name, "matmul", { n = 2, a, b }, { n = 1, output or true }, attrs)[1]
end

-- Products of whole numbers up to 8 are exact in f32, in any order, up to a length of 2^18.
local function exact(backend, truth, m, k, n, attrs)
  attrs.dtype = "f32"
  gm.scope(function()
    local a = whole(attrs.transpose_a and k or m, attrs.transpose_a and m or k)
    local b = whole(attrs.transpose_b and n or k, attrs.transpose_b and k or n)
    local label = ("%d x %d x %d by %s"):format(m, n, k, backend)
    support.compare(product(backend, a, b, attrs), product(truth, a, b, attrs), support.exact, label)
  end)
end

describe("tiles of AMX", function()
  it("are what the processor has, and no device emulates them by itself", function()
    local refusal, exists = core.amx_refusal()
    assert.is_boolean(exists)
    assert.is_true(refusal == nil or #refusal > 10)
    assert.is_true(exists or refusal ~= nil)
    assert.not_equal("cpu-amx-emulated", core.device().backend)
    assert.equal(refusal == nil and core.has_backend "cpu-avx512bf16", core.has_backend "cpu-amx")
    assert.equal(core.has_backend "cpu-avx512bf16", core.has_backend "cpu-amx-emulated")
  end)

  it("are told of by `ganymede doctor`", function()
    local text = require("spec.support.run_host")({ "doctor", "--json", "--out", "/tmp" }).out
    local facts
    for _, entry in ipairs(require("ganymede.base.json").decode(text).checks) do
      if entry.name == "cpu" then facts = entry.facts end
    end
    assert.equal(core.amx_refusal() or "used", facts.amx)
    assert.equal(core.pairs_slow(), facts.pairs_slow)
  end)
end)

for _, backend in ipairs(tables) do describe("products in tiles by " .. backend, function()
  local function lacks()
    if core.has_backend(backend) then return false end
    pending "needs a processor with AVX512-BF16, and its table in this build"
    return true
  end

  -- 16 rows, 16 columns and 32 numbers are a tile; two of rows and of columns a block.
  it("end where rows, columns and k end", function()
    if lacks() then return end
    for _, m in ipairs { 1, 2, 15, 16, 17, 31, 32, 33, 48, 65 } do
      for _, n in ipairs { 1, 16, 17, 32, 33, 65 } do
        for i, k in ipairs { 1, 2, 31, 32, 33, 64, 97 } do
          exact(backend, "ref", m, k, n, { transpose_a = (m + i) % 2 == 0, transpose_b = (n + i) % 3 == 0 })
        end
      end
    end
  end)

  -- 512 numbers are the depth of a block; what is packed at a time is 1.5 MiB. The truth of large ones is the plain
  -- table in f32, which sums whole numbers exactly.
  it("follow each other along k, and in all blocks", function()
    if lacks() then return end
    for _, k in ipairs { 511, 512, 513, 545, 1024, 1057 } do
      exact(backend, "ref", 33, k, 34, { transpose_a = k % 2 == 0, transpose_b = k % 3 == 0 })
    end
    exact(backend, "cpu-generic", 33, 30001, 35, {})
    exact(backend, "cpu-generic", 35, 30001, 33, { transpose_b = true })
    exact(backend, "cpu-generic", 603, 1201, 620, {})
    exact(backend, "cpu-generic", 1301, 641, 1300, { transpose_a = true })
  end)

  -- What was in the memory of a product before must not reach this one: not even as 0 times infinity.
  it("meet only zeros behind the ends", function()
    if lacks() then return end
    for _, name in ipairs { "transpose_a", "transpose_b", "none" } do
      local attrs = { [name ~= "none" and name or "dtype"] = name ~= "none" or "f32", dtype = "f32" }
      local wild = gm.full({ 64, 64 }, 0 / 0, { dtype = "bf16" })
      gm.scope(function()
        for _, size in ipairs { 33, 50, 63 } do
          product(backend, wild, wild, attrs)
          exact(backend, "ref", size, 34, size, attrs)
          product(backend, wild, wild, attrs)
          exact(backend, "ref", 64, 34, size, attrs)
        end
      end)
    end
  end)

  -- Results of bf16 are rounded from the sums in f32 as they are stored: blocks that are transposed at last (few rows,
  -- and the numbers of a column are neighbours), blocks that are not, and what is added to.
  it("round once to bf16, and write nothing beside the results", function()
    if lacks() then return end
    for i, shape in ipairs { { 17, 40, 33 }, { 17, 40, 33 }, { 33, 300, 64 }, { 150, 31, 31 }, { 40, 260, 97 } } do
      local m, k, n = unpack(shape)
      local attrs = { transpose_b = i % 2 == 0, accumulate = i > 1, alpha = i > 2 and -2 or 1 }
      gm.scope(function()
        local a, b = whole(m, k), whole(attrs.transpose_b and n or k, attrs.transpose_b and k or n)
        local frame = gm.full({ m, n + 5 }, 7, { dtype = "bf16" })
        local given = support.integers({ m, n }, "i32", -9, 9):to "bf16"
        local result = frame:narrow(2, 3, n)
        core.run_op("ref", "copy", { n = 1, given }, { n = 1, result })
        product(backend, a, b, attrs, result)
        support.compare(result, product("ref", a, b, attrs, given), support.exact, "case " .. i)
        for _, columns in ipairs { { 1, 2 }, { n + 3, 3 } } do
          local beside = frame:narrow(2, columns[1], columns[2])
          support.compare(beside, gm.full({ m, columns[2] }, 7, { dtype = "bf16" }), support.exact, "beside " .. i)
        end
      end)
    end
  end)

  -- The gradient of a bias is summed on the way: of rows that are resident and of rows that are walked, once where
  -- several pieces of the other operand meet them, and over all blocks along k. Whole numbers make all sums exact.
  it("sum the rows of gradients", function()
    if lacks() then return end
    local function gradients(by, g, x, given, adds)
      local dw, db = support.copy(given[1]), support.copy(given[2])
      if given.turned then dw = support.copy(given[1]:transpose(1, 2)):transpose(1, 2) end
      core.run_op(by, "linear_weight_grad", { n = 2, g, x }, { n = 2, dw, db }, { accumulate = adds })
      return dw, db
    end
    for i, shape in ipairs { { 33, 34, 300 }, { 70, 20, 257 }, { 15, 40, 31 }, { 40, 15, 513 }, { 5, 1, 40 },
                             { 280, 270, 600 }, { 310, 300, 2600 }, { 900, 40, 650 }, { 420, 400, 2000 },
                             { 400, 420, 2000 }, { 34, 33, 257 } } do
      local m, n, k = unpack(shape)
      gm.scope(function()
        local wide, turned = whole(k, m + 3), whole(m, k):transpose(1, 2)
        local x = i == 1 and whole(n, k):transpose(1, 2) or whole(k, n)
        local given = { whole(m, n), whole(1, m):reshape { m }, turned = i == 2 }
        for _, g in ipairs { wide:narrow(2, 2, m), m * k < 30000 and turned or nil } do
          local dw, db = gradients(backend, g, x, given, i % 2 == 0)
          local true_dw, true_db = gradients("cpu-generic", g, x, given, i % 2 == 0)
          support.compare(db, true_db, support.exact, ("db of %d x %d x %d"):format(m, n, k))
          support.compare(dw, true_dw, support.exact, ("dw of %d x %d x %d"):format(m, n, k))
        end
      end)
    end
  end)

  it("write large results of bf16 past the caches", function()
    if lacks() then return end
    for _, n in ipairs { 1408, 1411 } do -- rows are whole lines, and are not
      local a, b = whole(1504, 3), whole(3, n)
      local truth = product("cpu-generic", a, b, { dtype = "f32" })
      support.compare(product(backend, a, b, { dtype = "bf16" }), truth:to "bf16", support.exact, "columns: " .. n)
    end
  end)

  it("add to what is there, times alpha, and serve batches and swapped results", function()
    if lacks() then return end
    for _, shape in ipairs { { 3, 40, 70, 50 }, { 17, 20, 33, 16 } } do
      local count, m, k, n = unpack(shape)
      local a = support.integers({ count, m, k }, "i32", -4, 4):to "bf16"
      local b = support.integers({ count, k, n }, "i32", -4, 4):to "bf16"
      local given = support.integers({ count, m, n }, "i32", -9, 9):to "f32"
      local attrs, plain = { accumulate = true, alpha = -2, dtype = "f32" }, { dtype = "f32" }
      support.compare(product(backend, a, b, attrs, support.copy(given)),
        product("ref", a, b, attrs, support.copy(given)), support.exact, "added in a batch")
      local function turned() return gm.zeros { count, n, m }:permute { 1, 3, 2 } end
      support.compare(product(backend, a, b, plain, turned()), product("ref", a, b, plain, turned()), support.exact,
        "turned")
    end
  end)
end) end
