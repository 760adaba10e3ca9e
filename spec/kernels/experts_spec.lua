-- Who is served by which expert, and rows on their way there and back: every table against ref, and ref against lists
-- of numbers. Plans are exact; rows that are only moved are too.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"
local agree, input = support.agree, support.input

-- -1 .. most: a fraction becomes the whole number nearer to 0, so that -2 does not come out.
local function numbers(shape, dtype, most, layout) return support.integers(shape, dtype, -2, most, layout) end

-- index (runs, n, k), experts: one expert, as many as fill one pass of a sort and more; nothing at all
local queues = {
  { { 1, 1, 1 }, 1 }, { { 1, 40, 2 }, 3 }, { { 3, 17, 2 }, 5 }, { { 2, 700, 3 }, 64 }, { { 4, 33, 2 }, 300 },
  { { 1, 0, 2 }, 4 }, { { 5, 1, 1 }, 2 },
}

describe("experts:", function()
  for _, case in ipairs(queues) do
    local shape, experts = unpack(case)
    it(("queues of %s, %d experts"):format(support.show(shape), experts), function()
      for _, dtype in ipairs { "i64", "i32" } do
        for _, layout in ipairs { "contiguous", "turned", "window" } do
          gm.scope(function()
            local index = numbers(shape, dtype, experts - 1, layout)
            local attrs = { experts = experts, capacity = math.floor(shape[2] * shape[3] / experts * 0.7) }
            local exact = support.exact
            agree { op = "experts_count", inputs = { index }, outputs = { true }, attrs = attrs, within = exact }
            agree { op = "experts_limit", inputs = { index, n = 2 }, outputs = { true }, attrs = attrs,
                    within = exact }
            local count = core.run_op("ref", "experts_count", { index }, { true }, attrs)[1]
            local runs = {}
            for r = 1, shape[1] do runs[r] = shape[1] - r end
            agree { op = "experts_before", inputs = { count, gm.tensor(runs, { dtype = "i64" }) }, outputs = { true },
                    within = exact }
            agree { op = "experts_limit", inputs = { index, count }, outputs = { true }, attrs = attrs,
                    within = exact }
          end)
        end
      end
    end)
  end

  it("the queue by hand: first choices of all tokens, then second ones", function()
    local index = gm.tensor({ 0, 1, 0, 0, 1, 0, -1, 1 }, { dtype = "i64", shape = { 1, 4, 2 } })
    local kept = core.run_op("ref", "experts_limit", { index, n = 2 }, { true }, { experts = 2, capacity = 2 })[1]
    assert.same({ { { 0, 1 }, { 0, -1 }, { 1, -1 }, { -1, -1 } } }, kept:totable())
    local count = core.run_op("ref", "experts_count", { index }, { true }, { experts = 2 })[1]
    assert.same({ { { 2, 1 }, { 2, 2 } } }, count:totable())
    local of_runs = gm.tensor({ 2, 1, 2, 2, 0, 3, 1, 1 }, { dtype = "i64", shape = { 2, 2, 2 } })
    local before = core.run_op("ref", "experts_before", { of_runs, gm.tensor({ 1, 0 }, { dtype = "i64" }) }, { true },
      {})[1]
    assert.same({ { { 0, 3 }, { 3, 5 } }, { { 0, 0 }, { 2, 4 } } }, before:totable())
  end)

  -- index (tokens, k): rows as many as choices, and a number for each expert; some experts before the others
  for _, case in ipairs { { 1, 1, 1 }, { 40, 2, 3 }, { 700, 3, 64 }, { 33, 2, 300 }, { 0, 2, 4 } } do
    local tokens, k, experts = unpack(case)
    it(("rows of %d tokens, %d of %d experts"):format(tokens, k, experts), function()
      for _, dtype in ipairs { "i64", "i32" } do
        gm.scope(function()
          local index = numbers({ tokens, k }, dtype, experts - 1)
          local most = 1
          local list = core.run_op("ref", "experts_order", { index }, { true, true, true, true },
            { experts = experts })
          for _, n in ipairs(list[3]:totable()) do most = math.max(most, n) end
          for _, first in ipairs { { 0, 0 }, { math.floor(experts / 3), math.floor(experts / 2) } } do
            for _, capacity in ipairs { 0, most, most + 3 } do
              agree { op = "experts_order", inputs = { index }, outputs = { true, true, true, true },
                      within = support.exact,
                      attrs = { experts = experts, first = first[1], ahead = first[2], capacity = capacity } }
            end
          end
        end)
      end
    end)
  end

  it("rows by hand", function()
    local index = gm.tensor({ 2, 0, 0, -1, 1, 2 }, { dtype = "i64", shape = { 3, 2 } })
    local function order(attrs)
      attrs.experts = 3
      local out = core.run_op("ref", "experts_order", { index }, { true, true, true, true }, attrs)
      return { out[1]:totable(), out[2]:totable(), out[3]:totable(), out[4]:totable() }
    end
    assert.same({ { 1, 2, 4, 0, 5, -1 }, { { 3, 0 }, { 1, -1 }, { 2, 4 } }, { 2, 1, 2 }, { 0 } }, order {})
    assert.same({ { 1, 2, 4, 0, 5, -1 }, { { 3, 0 }, { 1, -1 }, { 2, 4 } }, { 2, 1, 2 }, { 0, 2, 3, 5 } },
      order { ahead = 3 })
    assert.same({ { 0, 5, 1, 2, 4, -1 }, { { 0, 2 }, { 3, -1 }, { 4, 1 } }, { 2, 1, 2 }, { 0, 2 } },
      order { first = 2, ahead = 1 })
    assert.same({ { 1, 2, -1, 4, -1, -1, 0, 5, -1 }, { { 6, 0 }, { 1, -1 }, { 3, 7 } }, { 2, 1, 2 }, { 3, 6 } },
      order { first = 1, ahead = 1, capacity = 3 })
  end)

  -- (tokens, rows, k, width)
  local sizes = { { 1, 1, 1, 1 }, { 5, 9, 2, 7 }, { 20, 33, 3, 64 }, { 3, 4, 1, 1030 }, { 0, 0, 2, 4 }, { 4, 6, 2, 0 } }
  support.each(it, "rows there and back", sizes, { "contiguous", "window", "turned" }, function(dtype, size, layout)
    local tokens, rows, k, width = unpack(size)
    local wide = support.wide(dtype)
    local choice = numbers({ rows }, "i64", tokens * k - 1, layout)
    local row = numbers({ tokens, k }, "i64", rows - 1, layout)
    local x, y = input({ tokens, width }, dtype, layout), input({ rows, width }, dtype, layout)
    local g, weight = input({ tokens, width }, dtype, layout), input({ tokens, k }, wide, layout)
    agree { op = "experts_gather", inputs = { x, choice, n = 3 }, outputs = { true }, attrs = { k = k },
            within = support.exact }
    agree { op = "experts_gather", inputs = { x, choice, weight }, outputs = { true }, attrs = { k = k },
            within = support.relative(1) }
    for _, w in ipairs { weight, false } do
      agree { op = "experts_combine", inputs = { y, row, w, n = 3 }, outputs = { true }, within = support.terms(k, 1) }
      agree { op = "experts_combine", inputs = { y, row, w, n = 3 }, attrs = { accumulate = true },
              outputs = { support.given({ tokens, width }, dtype, layout) }, within = support.terms(k, 1) }
    end
    agree { op = "experts_combine_grad", inputs = { y, row, g }, outputs = { true }, within = support.terms(width) }
  end)

  it("what names nothing is refused", function()
    gm.scope(function()
      local function zeros(shape) return function() return gm.zeros(shape, { dtype = "i64" }) end end
      local function of(list) return gm.tensor(list, { dtype = "i64" }) end
      local x = input({ 2, 3 }, "f32")
      for _, wrong in ipairs { -2, 4 } do
        local index = gm.tensor({ 0, wrong }, { dtype = "i64", shape = { 2, 1 } })
        local runs = gm.tensor({ 0, wrong }, { dtype = "i64", shape = { 1, 2, 1 } })
        local attrs, says = { experts = 4, capacity = 2 }, wrong .. " at position 1 .* none of 4 experts, nor %-1"
        support.refuses("experts_count", { runs }, { zeros { 1, 1, 4 } }, attrs, says)
        support.refuses("experts_limit", { runs, n = 2 }, { zeros { 1, 2, 1 } }, attrs, says)
        support.refuses("experts_gather", { x, of { 0, wrong }, n = 3 }, { support.given({ 2, 3 }, "f32") }, { k = 2 },
          wrong .. " at position 1 .* none of 4")
        support.refuses("experts_combine", { input({ 4, 3 }, "f32"), index, n = 3 }, { support.given({ 2, 3 }, "f32") },
          { accumulate = true }, wrong .. " at position 1 .* none of 4")
      end
    end)
  end)
end)
