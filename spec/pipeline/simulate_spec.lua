--- Times of a schedule for given costs, by formulas and by hand.
local pipeline = require "ganymede.schedules.pipeline"
local simulate = pipeline.simulate

local function build(name, p, m, v) return pipeline.build(name, { stages = p, micro_batches = m, chunks = v }, 0) end

local function near(wanted, found) assert.is_true(math.abs(wanted - found) < 1e-9, wanted .. " ~= " .. found) end

local function sum_and_most(list)
  local sum, most = 0, 0
  for _, n in ipairs(list) do sum, most = sum + n, math.max(most, n) end
  return sum, most
end

describe("the simulation of a schedule", function()
  it("of GPipe is a flow shop: stages of unequal cost, transfers", function()
    -- The last of m jobs leaves a line of machines after the sum of all costs and m - 1 times the largest; each way
    -- adds p - 1 transfers.
    local F, B, W = { 1.25, 3, 0.5, 2 }, { 2, 1, 4.5, 1 }, { 1, 0.25, 0.75, 2.5 }
    local backward = {}
    for part = 1, 4 do backward[part] = B[part] + W[part] end
    for _, m in ipairs { 1, 3, 9 } do
      local s = simulate(build("gpipe", 4, m), { forward = F, backward_input = B, backward_weight = W, transfer = 0.5 })
      local f, most_f = sum_and_most(F)
      local b, most_b = sum_and_most(backward)
      near(f + (m - 1) * most_f + b + (m - 1) * most_b + 2 * 3 * 0.5, s.time)
      near(m * (0.5 + 5.25), s.ideal) -- part 3
    end
  end)

  it("of 1F1B on two stages, by hand, with both kinds of sends", function()
    local costs = { forward = 2, backward_input = 2, backward_weight = 1, transfer = 1 }
    local schedule = build("1f1b", 2, 2)
    assert.same({
      { { "forward", 1, 1 }, { "send", "activation", 1, 1, 1 }, { "forward", 2, 1 },
        { "send", "activation", 2, 1, 1 }, { "receive", "gradient", 1, 1, 1 }, { "backward", 1, 1 },
        { "receive", "gradient", 2, 1, 1 }, { "backward", 2, 1 } },
      { { "receive", "activation", 1, 1, 0 }, { "forward", 1, 1 }, { "receive", "activation", 2, 1, 0 },
        { "backward", 1, 1 }, { "send", "gradient", 1, 1, 0 }, { "forward", 2, 1 }, { "backward", 2, 1 },
        { "send", "gradient", 2, 1, 0 } },
    }, schedule.actions)
    local s = simulate(schedule, costs)
    assert.same({ { 0, 2, 2, 4, 4, 9, 12, 14 }, { 0, 3, 5, 5, 8, 8, 10, 13 } }, s.begins)
    assert.same({ { 2, 3, 4, 5, 9, 12, 14, 17 }, { 3, 5, 5, 8, 9, 10, 13, 14 } }, s.finishes)
    assert.same({ 17, 10, 17, 0.7 }, { s.time, s.ideal, s.span, s.bubble })
    assert.same({ 7, 0 }, { s.idle[1], s.idle[2] })
    costs.blocking = true
    s = simulate(schedule, costs)
    assert.same({ { 0, 2, 3, 5, 9, 10, 15, 16 }, { 2, 3, 5, 6, 9, 10, 12, 15 } }, s.begins)
    assert.same({ { 2, 3, 5, 6, 10, 13, 16, 19 }, { 3, 5, 6, 9, 10, 12, 15, 16 } }, s.finishes)
  end)

  it("gives messages the time from their send to their arrival, and computing the same times without them", function()
    for _, name in ipairs { "1f1b", "interleaved", "zb-v" } do
      local schedule = build(name, 4, 8)
      local costs = { forward = {}, backward_weight = 0.5, transfer = 0.75 }
      for part = 1, 4 * schedule.chunks do costs.forward[part] = 1 + part % 3 end
      local s = simulate(schedule, costs)
      local bare, kept, sent, received, late = { actions = {} }, {}, {}, {}, 0
      for i, actions in ipairs(schedule.actions) do
        bare.actions[i], kept[i] = {}, {}
        for k, a in ipairs(actions) do
          if a[1] == "send" or a[1] == "receive" then
            local from, to = i - 1, a[5]
            if a[1] == "receive" then from, to = to, from end
            local way, list = from .. ">" .. to, a[1] == "send" and sent or received
            list[way] = list[way] or {}
            table.insert(list[way], { s.begins[i][k], s.finishes[i][k] })
          else
            table.insert(bare.actions[i], a)
            table.insert(kept[i], s.begins[i][k])
          end
        end
      end
      for way, list in pairs(sent) do
        for k, send in ipairs(list) do
          local receive = received[way][k]
          assert.same({ send[1] + 0.75, math.max(receive[1], send[2]) }, { send[2], receive[2] })
          late = late + (receive[1] > send[2] and 1 or 0)
        end
      end
      assert.is_true(late > 0, "no receive was posted after its message was there")
      assert.same(kept, simulate(setmetatable(bare, { __index = schedule }), costs).begins)
    end
  end)

  it("loses more with blocking sends, never less", function()
    for _, name in ipairs { "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" } do
      local schedule = build(name, 4, 8)
      local costs = { transfer = 0.25 }
      local free = simulate(schedule, costs).time
      costs.blocking = true
      assert.is_true(simulate(schedule, costs).time > free, name)
    end
  end)

  it("holds micro-batches from forward to weight gradients", function()
    -- By times, not by the order of the lists: how many have begun and not ended at the begin of each forward pass.
    for _, name in ipairs { "1f1b", "zb-h1", "zb-h2" } do
      local schedule = build(name, 4, 9)
      local s = simulate(schedule)
      for i, actions in ipairs(schedule.actions) do
        local most = 0
        for k, a in ipairs(actions) do
          local held = 0
          for j, other in ipairs(actions) do
            if other[1] == "forward" and s.begins[i][j] <= s.begins[i][k] then held = held + 1 end
            local frees = other[1] == "backward" or other[1] == "backward_weight"
            if frees and s.finishes[i][j] <= s.begins[i][k] then held = held - 1 end
          end
          if a[1] == "forward" then most = math.max(most, held) end
        end
        assert.equal(most, s.live[i])
      end
    end
  end)

  it("refuses costs that are none", function()
    local schedule = build("1f1b", 2, 2)
    for _, case in ipairs {
      { { forward = 0 }, "forward must be a time above 0, or a list of them by part; got 0" },
      { { backward = 2 }, "there is no cost 'backward'; there are forward, backward_input" },
      { { forward = { 1 } }, "forward%[2%] must be .*; got nil" },
      { { transfer = -1 }, "transfer must be a time, 0 or more; got %-1" },
      { { transfer = { 1, 1 } }, "transfer must be one number" },
      { { backward_weight = 0 / 0 }, "backward_weight must be" },
    } do
      local ok, why = pcall(function() simulate(schedule, case[1]) end)
      assert.is_false(ok)
      assert.matches("^spec/pipeline/simulate_spec.lua:%d+: simulate: " .. case[2], (why:gsub("^.-spec/", "spec/")))
    end
  end)
end)
