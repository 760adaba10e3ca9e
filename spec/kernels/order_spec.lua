-- sort and unsort: every CPU table, and the kernels of GPUs, against the reference, which counts what stands before an
-- element: bit for bit. Whole numbers from a few make equals; one row has NaN and infinities.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local shapes = { { 1 }, { 7 }, { 3, 5 }, { 4, 64 }, { 2, 3, 33 }, { 3, 0 }, { 0, 4 }, { 2, 200 },
                 { 5, 40 }, { 4, 41 }, { 1, 700 } }

describe("sort agrees with ref:", function()
  for _, descending in ipairs { false, true } do
    support.each(it, descending and "descending" or "ascending", shapes, support.layouts,
      function(dtype, shape, layout)
        local attrs = { descending = descending }
        local x = support.input(shape, dtype, layout)
        support.agree { op = "sort", inputs = { x }, outputs = { true, true }, attrs = attrs,
                        within = { support.exact, support.exact } }
        local few = gm.uniform(shape, { low = 0, high = 4, seed = 3 }):to("i32"):to(dtype)
        support.agree { op = "sort", inputs = { few }, outputs = { true, true }, attrs = attrs,
                        within = { support.exact, support.exact } }
        local index = core.run_op("ref", "sort", { few }, { true, true }, attrs)[2]
        support.agree { op = "unsort", inputs = { index, support.input(shape, dtype, layout) }, outputs = { true },
                        within = support.exact }
      end)
  end

  -- Whole packs of 16 bytes, of one turn of a block's threads and of more, up to what shared memory holds, and beyond.
  support.each(it, "unsort of even lines", { { 3, 8 }, { 5, 1024 }, { 2, 3, 4096 }, { 1, 8200 } }, { "contiguous" },
    function(dtype, shape)
      local index = core.run_op("ref", "sort", { support.input(shape, "f32") }, { true, true }, {})[2]
      for _, wanted in ipairs { "i64", "i32" } do
        support.agree { op = "unsort", inputs = { index:to(wanted), support.input(shape, dtype) }, outputs = { true },
                        within = support.exact }
      end
    end)

  it("zeros of both signs are equals, also in long rows", function()
    gm.scope(function()
      local list, kinds = {}, { 0, -0, 0 / 0, -1 / 0, 1, -1e-40, 1 / 0, -3, 1e-40 }
      for i = 1, 600 do list[i] = kinds[i * i % 7 + 1] end
      for i = 1, 600, 11 do list[i] = kinds[i % #kinds + 1] end
      local x = gm.tensor(list, { dtype = "f32" })
      for _, n in ipairs { 9, 40, 41, 600 } do
        for _, descending in ipairs { false, true } do
          support.agree { op = "sort", inputs = { x:narrow(1, 1, n) }, outputs = { true, true },
                          attrs = { descending = descending }, within = { support.exact, support.exact } }
        end
      end
    end)
  end)

  it("NaN counts as the largest, and equals stay in their order", function()
    gm.scope(function()
      local x = gm.tensor { 2, 0 / 0, math.huge, 2, -math.huge, 0 / 0, -1 }
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local function places(descending)
          return core.run_op(backend, "sort", { x }, { true, true }, { descending = descending })[2]:totable()
        end
        assert.same({ 4, 6, 0, 3, 2, 1, 5 }, places(false))
        assert.same({ 1, 5, 2, 0, 3, 6, 4 }, places(true))
      end
    end)
  end)
end)
