-- Tensors whose last dimension is short: CPU tables take many such rows together (walk_turn of kernels/cpu/base.c,
-- walk_across of dense.c, sum_try_beside and add_flat of reduce.c). Here are the widths at which they begin and cease
-- to do so, more rows than are taken at a time, each way in which an operand may lie or repeat, and outputs that are
-- windows.
--
-- Copies, arithmetic, halves that are added, and choices are rounded once: they have the bits of the reference.
-- sanitizers: only "bf16, 3 " "f64, 31 " "f32, 255 " "two at a time" "sums"
--   "for rows of 33" "for rows of 1024", the others run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local support = require "spec.kernels.support"

local agree, exact, given, input = support.agree, support.exact, support.given, support.input
local rows = 530 -- more than the 512 that are taken at a time

-- Operands that broadcast to `rows` x n.
local function operands(n, dtype)
  return {
    { "contiguous", input({ rows, n }, dtype) },
    { "a window", input({ rows, n }, dtype, "window") },
    { "a row", input({ n }, dtype) },
    { "a column", input({ rows, 1 }, dtype) },
    { "turned", input({ n, rows }, dtype):transpose(1, 2) },
  }
end

local function compare(op, inputs, outputs, attrs, label)
  agree { op = op, inputs = inputs, outputs = outputs, attrs = attrs, within = exact, label = label }
end

describe("short rows:", function()
  local widths = { f32 = { 2, 3, 4, 5, 15, 16, 31, 32, 63, 64, 255, 256 }, f64 = { 3, 31 }, bf16 = { 2, 3, 15, 255 } }
  for _, dtype in ipairs { "f32", "f64", "bf16" } do
    for _, n in ipairs(widths[dtype]) do
      it(("%s, %d wide"):format(dtype, n), function()
        gm.scope(function()
          local condition = support.integers({ rows, n }, "u8", 0, 1)
          for _, a in ipairs(operands(n, dtype)) do
            local whole = a[2]:expand { rows, n }
            compare("copy", { whole }, { true }, { dtype = dtype }, a[1])
            compare("copy", { whole }, { true }, { dtype = dtype == "f64" and "f32" or "f64" }, a[1] .. ", cast")
            compare("axpy", { whole }, { given({ rows, n }, dtype, "window") }, { alpha = 0.5 }, a[1])
            for _, b in ipairs(operands(n, dtype)) do
              local label = a[1] .. ", " .. b[1]
              if whole:numel() == a[2]:numel() then
                compare("binary", { a[2], b[2] }, { true }, { ["function"] = "mul" }, label)
              end
              compare("where", { condition, a[2], b[2] }, { true }, {}, label)
            end
          end
          compare("fill", {}, { given({ rows, n }, dtype, "window") }, { value = 3 }, "fill")
        end)
      end)
    end
  end

  -- Images are made larger by copies in which each element stands twice in both directions.
  for _, shape in ipairs { { 5, 7, 16 }, { 1, 3, 1 }, { 70, 2, 3 }, { 2, 40, 33 } } do
    it(("images of %s, two at a time"):format(support.show(shape)), function()
      for _, dtype in ipairs { "f32", "bf16", "u8" } do
        gm.scope(function()
          local c, h, w = unpack(shape)
          local x = dtype == "u8" and support.integers(shape, "u8", 0, 255) or input(shape, dtype)
          compare("copy", { x:reshape { c, h, 1, w, 1 }:expand { c, h, 2, w, 2 } }, { true }, { dtype = dtype }, dtype)
        end)
      end
    end)
  end

  -- An output that goes past the caches, of 8 MiB and more.
  it("products of 300,000 rows with one row and one column", function()
    gm.scope(function()
      local x = input({ 300000, 7 }, "f32")
      compare("binary", { x, input({ 7 }, "f32") }, { true }, { ["function"] = "mul" }, "a row")
      compare("binary", { x, input({ 300000, 1 }, "f32") }, { true }, { ["function"] = "mul" }, "a column")
    end)
  end)

  -- Rows of which an operand has one element each: from 32 elements on they need no copy of it, and up to 1,023 many
  -- rows are taken at a time. Both orders of operands; both ways in which x and the output may lie.
  local function across(shape, column, dtype, output)
    local c = input(column, dtype)
    for _, lies in ipairs { "contiguous", "window" } do
      local x = input(shape, dtype, lies ~= "contiguous" and lies or nil)
      for _, f in ipairs { "add", "sub", "mul", "div" } do
        compare("binary", { x, c }, { output }, { ["function"] = f }, f .. ", " .. lies)
        compare("binary", { c, x }, { output }, { ["function"] = f }, f .. ", the column first, " .. lies)
      end
    end
  end

  local of_columns = { f32 = { 31, 32, 33, 100, 1023, 1024, 4100 }, f64 = { 33, 100, 1024 }, bf16 = { 33, 1023 } }
  for _, dtype in ipairs { "f32", "f64", "bf16" } do
    for _, n in ipairs(of_columns[dtype]) do
      it(("%s, one element for rows of %d"):format(dtype, n), function()
        gm.scope(function()
          local few = n > 1000 and 9 or 77
          across({ few, n }, { few, 1 }, dtype, true)
          across({ few, n }, { few, 1 }, dtype, given({ few, n }, dtype, "window"))
          across({ 2, 7, n }, { 7, 1 }, dtype, true)
        end)
      end)
    end
  end

  it("one element for rows of an output of which every second element is computed", function()
    gm.scope(function()
      local function output()
        local base = gm.zeros({ 40, 50, 2 }, { dtype = "f32" })
        return base:select(3, 1), base
      end
      across({ 40, 50 }, { 40, 1 }, "f32", output)
    end)
  end)

  it("one element for rows of an output that goes past the caches", function()
    for _, shape in ipairs { { 34000, 65 }, { 700, 3100 } } do
      gm.scope(function()
        local x, c = input(shape, "f32", "window"), input({ shape[1], 1 }, "f32")
        compare("binary", { x, c }, { true }, { ["function"] = "sub" }, support.show(shape))
      end)
    end
  end)

  local function sums(x, label)
    local shape = x:shape()
    for dims = 1, 2 ^ #shape - 1 do
      local n = 1
      for d, size in ipairs(shape) do
        if math.floor(dims / 2 ^ (d - 1)) % 2 == 1 then n = n * size end
      end
      for _, keepdim in ipairs { false, true } do
        local attrs = { dims = dims, keepdim = keepdim }
        agree { op = "sum", inputs = { x }, outputs = { true }, attrs = attrs,
                label = ("%s, dims %d"):format(label, dims),
                within = support.terms(n, support.reference("sum", { support.magnitude(x) }, attrs)) }
      end
    end
  end

  -- Rows of 15 are the longest whose sums are added up beside each other, 64 or fewer at a time; 63 is the longest row
  -- that is joined with its neighbours when columns are summed.
  for _, shape in ipairs { { rows, 2 }, { rows, 3 }, { 130, 15 }, { 130, 16 }, { 15, 3 }, { 200, 63 }, { 200, 64 },
    { 4, 65, 3 }, { 40, 2, 16, 2 }, { 6, 5, 3, 5, 3 }, { 17, 600, 2 }, { 2, 300, 3, 2 } } do
    for _, dtype in ipairs { "f32", "f64", "bf16" } do
      it(("sums of %s of %s"):format(dtype, support.show(shape)), function()
        gm.scope(function()
          sums(input(shape, dtype), "contiguous")
          sums(input(shape, dtype, "window"), "a window")
        end)
      end)
    end
  end
end)
