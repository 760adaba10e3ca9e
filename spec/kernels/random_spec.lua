-- Random ops: every table draws the bits of the reference, whole or as a block of a larger tensor. The function log of
-- a GPU is not that of the host in f64, within 2 units of the last place (CUDA C++ Programming Guide, "Mathematical
-- Functions"): there a cut normal number may be a few units of the last place off. In the other dtypes it is rounded
-- once from f64. Other normal numbers take the same steps everywhere (kernels/sample.h).
local core = require "ganymede.core"
local gm = require "ganymede"
local emulation = require "spec.cuda.emulation"
local support = require "spec.kernels.support"

local agree, each, with = support.agree, support.each, support.with
local streams = { { key = 0, step = 0 }, { key = 2 ^ 52 + 12345, step = 2 ^ 40 + 7 } }
local layouts = { "contiguous", "turned", "window" }

-- { op, attributes }
local draws = {
  { "uniform", { low = -0.3, high = 1.7 } },
  { "uniform", { low = 0, high = 1 } },
  { "normal", { mean = 0.5, std = 0.02 } },
  { "normal", { mean = 0, std = 1, truncated = true, low = -2, high = 2 } },
  { "normal", { mean = -1, std = 2, truncated = true, low = 1, high = 30 } },
}

-- 16 roundings of the largest magnitude on a GPU in f64; the emulation uses the host's functions.
local function on_gpu(attrs, dtype)
  if not attrs.truncated or dtype ~= "f64" or emulation.is_on() then return nil end
  return { cuda = support.absolute(16) }
end

describe("random ops have the bits of ref:", function()
  for _, draw in ipairs(draws) do
    local op, attrs = draw[1], draw[2]
    each(it, op .. (attrs.truncated and " truncated" or ""), support.shapes, layouts, function(dtype, shape, layout)
      for _, stream in ipairs(streams) do
        agree { op = op, inputs = {}, outputs = { support.given(shape, dtype, layout) }, within = support.exact,
                on = on_gpu(attrs, dtype), attrs = with(attrs, { stream = stream }) }
      end
    end)
  end

  each(it, "dropout", support.shapes, support.layouts, function(dtype, shape, layout)
    local x = support.input(shape, dtype, layout, 0.5, 1.5) -- never 0: a zero was dropped
    for _, stream in ipairs(streams) do
      for _, p in ipairs { 0, 0.1, 0.75 } do
        agree { op = "dropout", inputs = { x }, outputs = { true }, within = support.exact,
                attrs = { p = p, stream = stream } }
      end
    end
  end)

  -- Local shape, global shape, offset: pairs of normal and blocks of philox (of eight, for dropout) are cut at every
  -- place.
  local boxes = {
    { { 5 }, { 23 }, { 0 } }, { { 5 }, { 23 }, { 1 } }, { { 5 }, { 23 }, { 2 } }, { { 5 }, { 23 }, { 3 } },
    { { 9 }, { 23 }, { 4 } }, { { 9 }, { 23 }, { 5 } }, { { 9 }, { 23 }, { 6 } }, { { 9 }, { 23 }, { 7 } },
    { { 1 }, { 7 }, { 6 } }, { { 3, 5 }, { 4, 7 }, { 1, 1 } }, { { 3, 5 }, { 3, 10 }, { 0, 5 } },
    { { 7, 1025 }, { 9, 3001 }, { 2, 1111 } }, { { 2, 3, 4 }, { 4, 3, 5 }, { 1, 0, 1 } },
    { { 1, 6 }, { 2 ^ 20, 2 ^ 20 }, { 2 ^ 20 - 1, 2 ^ 20 - 6 } }, { { 0, 3 }, { 4, 3 }, { 4, 0 } },
  }
  for _, box in ipairs(boxes) do
    local shape, place = box[1], { shape = box[2], offset = box[3] }
    local name = ("block %s at %s of %s"):format(support.show(shape), support.show(place.offset),
      support.show(place.shape))
    it(name, function()
      gm.scope(function()
        for _, dtype in ipairs(support.dtypes) do
          for _, draw in ipairs(draws) do
            agree { op = draw[1], inputs = {}, outputs = { support.given(shape, dtype) }, within = support.exact,
                    on = on_gpu(draw[2], dtype), attrs = with(draw[2], { stream = streams[2], box = place }) }
          end
          agree { op = "dropout", inputs = { support.input(shape, dtype, "contiguous", 0.5, 1.5) }, outputs = { true },
                  within = support.exact, attrs = { p = 0.1, stream = streams[1], box = place } }
        end
      end)
    end)
  end
end)

-- Random123 gives these words to block 0 with key 0 in step 0, for philox4x32 of 7 rounds: 5f6fb709 0d893f64 4f121f81
-- 4f730a48. Each has the numbers of two elements, the lower half first. Shares p and the elements that are dropped:
describe("dropout has the numbers published with Random123:", function()
  for _, case in ipairs { { 0.25, "00111010" }, { 0.1, "00010010" }, { 0.04017, "00000010" }, { 0.04016, "00000000" },
                          { 0.72, "11111111" }, { 0.7148, "01111111" } } do
    local p, dropped = case[1], case[2]
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      it(("p = %g, %s"):format(p, backend), function()
        gm.scope(function()
          for _, dtype in ipairs(support.dtypes) do
            local kept = support.copy(gm.full({ 1 }, 65536 / (65536 - math.floor(p * 65536 + 0.5)), { dtype = "f64" }),
                                      dtype == "f64" and "f64" or "f32")
            local want = support.copy(kept, dtype):item()
            local y = core.run_op(backend, "dropout", { n = 1, support.copy(gm.ones { 8 }, dtype) }, { n = 1, true },
                                  { p = p, stream = { key = 0, step = 0 } })[1]
            for i, v in ipairs(support.copy(y, "f64"):totable()) do
              assert.equal(dropped:sub(i, i) == "1" and 0 or want, v)
            end
          end
        end)
      end)
    end
  end
end)
