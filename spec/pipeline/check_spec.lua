--- The checker of pipeline schedules finds each class of fault where it was planted, and its verdict on thousands of
--- small changes is that of an executor which knows nothing of it.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local check = require "ganymede.schedules.check"
local geometry = require "ganymede.job.geometry"
local options = require "ganymede.base.options"
local pipeline = require "ganymede.schedules.pipeline"
local reference = require "spec.pipeline.reference"

local function build(name, p, m, v) return pipeline.build(name, { stages = p, micro_batches = m, chunks = v }, 0) end

-- Position in a rank's list of an action, fields given in order.
local function find(schedule, rank, ...)
  for i, action in ipairs(schedule.actions[rank + 1]) do
    local same = #action == select("#", ...)
    for k = 1, #action do same = same and action[k] == select(k, ...) end
    if same then return i end
  end
  error("no such action")
end

local function swap(list, i, k) list[i], list[k] = list[k], list[i] end

-- plant(schedule) -> rank and position where it must be found (position nil: at the end), and a part of the message
local faults = {
  form = {
    ["an unknown kind"] = function(s)
      s.actions[2][3] = { "recompute", 1, 1 }
      return 1, 3, "no such kind"
    end,
    ["a micro-batch too many"] = function(s)
      local i = find(s, 0, "forward", 4, 1)
      s.actions[1][i] = { "forward", 5, 1 }
      return 0, i, "micro%-batches are 1 to 4"
    end,
    ["a chunk that nobody has"] = function(s)
      s.actions[3][2] = { "forward", 1, 2 }
      return 2, 2, "chunks are 1 to 1"
    end,
    ["a peer outside"] = function(s)
      local i = find(s, 2, "send", "gradient", 1, 1, 1)
      s.actions[3][i] = { "send", "gradient", 1, 1, 3 }
      return 2, i, "ranks are 0 to 2"
    end,
    ["a message to itself"] = function(s)
      s.actions[1][2] = { "send", "activation", 1, 1, 0 }
      return 0, 2, "cannot send to itself"
    end,
    ["a field that is missing"] = function(s)
      s.actions[1][2] = { "send", "activation", 1, 1 }
      return 0, 2, "4 fields instead of 5"
    end,
    ["neither activation nor gradient"] = function(s)
      s.actions[1][2] = { "send", "weights", 1, 1, 1 }
      return 0, 2, "neither activation nor gradient"
    end,
    ["something that is no action"] = function(s)
      s.actions[1][2] = "send"
      return 0, 2, "must be a table; got send"
    end,
    ["a part held twice"] = function(s)
      s.parts[3][1] = 1
      return 2, nil, "part 1 is held by rank 0 too"
    end,
    ["a list too few"] = function(s)
      s.actions[3] = nil
      return nil, nil, "actions must have one list for each of the 3 ranks"
    end,
  },
  complete = {
    ["a backward pass left out"] = function(s)
      table.remove(s.actions[1], find(s, 0, "backward", 4, 1))
      return 0, nil, "has no backward .* of micro%-batch 4, chunk 1"
    end,
    ["a forward pass done twice"] = function(s)
      local i = find(s, 2, "forward", 2, 1)
      table.insert(s.actions[3], i + 1, { "forward", 2, 1 })
      return 2, i + 1, "was already done by action " .. i
    end,
    ["weight gradients left out"] = function(s)
      s.actions[2][find(s, 1, "backward", 3, 1)] = { "backward_input", 3, 1 }
      return 1, nil, "has no backward_weight of micro%-batch 3"
    end,
    ["weight gradients done twice"] = function(s)
      table.insert(s.actions[2], { "backward_weight", 3, 1 })
      return 1, #s.actions[2], "was already done"
    end,
  },
  order = {
    ["backward before forward"] = function(s)
      local i, k = find(s, 2, "forward", 1, 1), find(s, 2, "backward", 1, 1)
      swap(s.actions[3], i, k)
      return 2, i, "comes before its forward"
    end,
    ["weight gradients first"] = function(s)
      local i = find(s, 1, "backward", 3, 1)
      s.actions[2][i] = { "backward_weight", 3, 1 }
      table.insert(s.actions[2], i + 1, { "backward_input", 3, 1 })
      return 1, i, "comes before its backward_input"
    end,
    ["computing before its message"] = function(s)
      local i = find(s, 1, "receive", "activation", 1, 1, 0)
      swap(s.actions[2], i, i + 1)
      return 1, i, "comes before the receive of its activation"
    end,
    ["a send before what it carries"] = function(s)
      swap(s.actions[1], 1, 2)
      return 0, 1, "comes before what it carries is made"
    end,
  },
  transfer = {
    ["a send left out"] = function(s)
      table.remove(s.actions[1], find(s, 0, "send", "activation", 2, 1, 1))
      return 0, nil, "has no send of the activation of micro%-batch 2"
    end,
    ["a receive doubled"] = function(s)
      local i = find(s, 1, "receive", "gradient", 2, 1, 2)
      table.insert(s.actions[2], i + 1, { "receive", "gradient", 2, 1, 2 })
      return 1, i + 1, "was already received by action " .. i
    end,
    ["a send doubled"] = function(s)
      table.insert(s.actions[1], 3, { "send", "activation", 1, 1, 1 })
      return 0, 3, "was already sent by action 2"
    end,
    ["the wrong rank"] = function(s)
      s.actions[1][2] = { "send", "activation", 1, 1, 2 }
      return 0, 2, "it is read by rank 1"
    end,
    ["a message from the wrong rank"] = function(s)
      s.actions[2][1] = { "receive", "activation", 1, 1, 2 }
      return 1, 1, "it is made by rank 0"
    end,
    ["a message of the last part"] = function(s)
      table.insert(s.actions[3], 3, { "send", "activation", 1, 1, 0 })
      return 2, 3, "nobody reads it: part 3"
    end,
    ["a message to the first part"] = function(s)
      table.insert(s.actions[1], 1, { "receive", "activation", 1, 1, 2 })
      return 0, 1, "nobody makes it: part 1"
    end,
    ["messages in another order than sent"] = function(s)
      local i, k = find(s, 1, "receive", "activation", 2, 1, 0), find(s, 1, "receive", "activation", 3, 1, 0)
      table.insert(s.actions[2], i, table.remove(s.actions[2], k))
      return 1, i, "message 2 from rank 0 is its action 4 %(send activation of micro%-batch 2"
    end,
  },
}

describe("the checker of pipeline schedules", function()
  for _, class in ipairs { "form", "complete", "order", "transfer" } do
    for _, name in ipairs(options.sorted_keys(faults[class])) do
      local plant = faults[class][name]
      it(("finds %s (%s)"):format(name, class), function()
        local schedule = build("1f1b", 3, 4)
        assert.is_true(check(schedule))
        local rank, position, message = plant(schedule)
        local ok, problem = check(schedule)
        assert.is_nil(ok)
        assert.same({ class, rank, position }, { problem.class, problem.rank, problem.position })
        assert.matches(message, problem.message)
        assert.matches(rank and position and ("^1f1b: rank %d, action %d"):format(rank, position)
          or rank and ("^1f1b: rank %d: "):format(rank) or "^1f1b: ", problem.message)
        if position then assert.equal(schedule.actions[rank + 1][position], problem.action) end
      end)
    end
  end

  it("finds messages of one micro-batch taken for each other: chunks, and activation for gradient", function()
    for _, case in ipairs {
      { 1, { "activation", 1, 1, 0 }, { "activation", 1, 2, 0 } }, -- of parts 1 and 3
      { 0, { "activation", 1, 2, 1 }, { "gradient", 1, 1, 1 } }, -- both made by part 2
    } do
      local s = build("interleaved", 2, 2, 2)
      local rank, one, other = unpack(case)
      local list, last = {}, 0
      for _, action in ipairs(s.actions[rank + 1]) do -- all receives are posted first
        if action[1] == "receive" then last = last + 1 end
        table.insert(list, action[1] == "receive" and last or #list + 1, action)
      end
      s.actions[rank + 1] = list
      local i, k = find(s, rank, "receive", unpack(one)), find(s, rank, "receive", unpack(other))
      assert.is_true(reference.execute(s, false, 5))
      swap(list, i, k)
      local ok, problem = check(s)
      assert.is_nil(ok)
      assert.same({ "transfer", rank, i }, { problem.class, problem.rank, problem.position })
      assert.is_nil(reference.execute(s, false, 5))
    end
  end)

  it("finds sends that wait for each other, which non-blocking ones do not", function()
    local s = build("1f1b", 2, 2)
    -- Both ranks come to a message of their own: rank 0 sends micro-batch 2, rank 1 the gradient of 1, none receives.
    local late = find(s, 1, "receive", "activation", 2, 1, 0)
    local moved = table.remove(s.actions[2], late)
    table.insert(s.actions[2], find(s, 1, "send", "gradient", 1, 1, 0) + 1, moved)
    assert.is_true(reference.execute(s, false, 3))
    local ok, problem = check(s)
    assert.is_nil(ok)
    assert.same({ "deadlock", 0, find(s, 0, "send", "activation", 2, 1, 1) },
      { problem.class, problem.rank, problem.position })
    assert.matches("waits for ever with blocking sends, for rank 1 to come to the receive; rank 1, action 4 %(send "
      .. "gradient of micro%-batch 1, chunk 1, to rank 0%) waits for rank 0 to come to the receive$", problem.message)
  end)

  it("finds orders in which two ranks wait for each other's results", function()
    local s = { name = "mine", stages = 2, micro_batches = 2, chunks = 1, parts = { { 1 }, { 2 } }, actions = {
      { { "forward", 1, 1 }, { "backward", 1, 1 }, { "forward", 2, 1 }, { "backward", 2, 1 } },
      { { "forward", 1, 1 }, { "forward", 2, 1 }, { "backward", 1, 1 }, { "backward", 2, 1 } },
    } }
    local ok, problem = check(s, { transfers = false })
    assert.is_nil(ok)
    assert.same({ "deadlock", 0, 2 }, { problem.class, problem.rank, problem.position })
    assert.equal("mine: rank 0, action 2 (backward of micro-batch 1, chunk 1): waits for ever, for the gradient of "
      .. "micro-batch 1 that chunk 1 of rank 1 makes; rank 1, action 2 (forward of micro-batch 2, chunk 1) waits for "
      .. "the activation of micro-batch 2 that chunk 1 of rank 0 makes", problem.message)
    s.actions[1] = { { "forward", 1, 1 }, { "send", "activation", 1, 1, 1 }, { "receive", "gradient", 1, 1, 1 },
      { "backward", 1, 1 }, { "forward", 2, 1 }, { "send", "activation", 2, 1, 1 },
      { "receive", "gradient", 2, 1, 1 }, { "backward", 2, 1 } }
    s.actions[2] = { { "receive", "activation", 1, 1, 0 }, { "receive", "activation", 2, 1, 0 }, { "forward", 1, 1 },
      { "forward", 2, 1 }, { "backward", 1, 1 }, { "send", "gradient", 1, 1, 0 }, { "backward", 2, 1 },
      { "send", "gradient", 2, 1, 0 } }
    ok, problem = check(s)
    assert.is_nil(ok)
    assert.same({ "deadlock", 0, 4 }, { problem.class, problem.rank, problem.position })
    assert.matches("waits for ever with non%-blocking sends", problem.message)
  end)

  it("wants transfers put in by the pass, not by the order", function()
    local ok, problem = check(build("1f1b", 2, 2), { transfers = false })
    assert.is_nil(ok)
    assert.same({ "form", 0, 2 }, { problem.class, problem.rank, problem.position })
  end)

  it("finds backward passes in what is forward_only, and passes that are missing", function()
    local s = pipeline.build("1f1b", { stages = 2, micro_batches = 2, forward_only = true })
    assert.is_true(check(s))
    table.insert(s.actions[2], { "backward", 1, 1 })
    assert.same({ "complete", 1, 5 }, { select(2, check(s)).class, select(2, check(s)).rank,
      select(2, check(s)).position })
    table.remove(s.actions[2])
    table.remove(s.actions[2])
    assert.matches("rank 1: has no forward of micro%-batch 2, chunk 1$", select(2, check(s)).message)
  end)

  -- A change is harmless or it is not: the executor runs the lists and compares gradients with one process.
  local function agree(schedule, what, seen)
    local runs = reference.execute(schedule, true, 11) and reference.execute(schedule, false, 11) or nil
    local ok, problem = check(schedule)
    assert.equal(runs, ok, what .. ": " .. (problem and problem.message or "was found right"))
    seen[ok and "right" or problem.class] = (seen[ok and "right" or problem.class] or 0) + 1
  end

  for _, case in ipairs { { "1f1b", 3, 4 }, { "interleaved", 2, 4, 2 }, { "zb-h1", 3, 4 }, { "zb-v", 3, 3 } } do
    it(("judges every exchange, loss and move in %s as an executor does"):format(case[1]), function()
      local seen = {}
      local schedule = build(unpack(case))
      for rank, list in ipairs(schedule.actions) do
        for i = 1, #list do
          local what = ("rank %d, action %d (%s)"):format(rank - 1, i, geometry.describe(list[i]))
          local action = table.remove(list, i)
          agree(schedule, "without " .. what, seen)
          for _, step in ipairs { 1, 2, 5, -3 } do
            local to = i + step
            if to >= 1 and to <= #list + 1 then
              table.insert(list, to, action)
              agree(schedule, ("%s moved by %d"):format(what, step), seen)
              table.remove(list, to)
            end
          end
          table.insert(list, i, action)
          table.insert(list, i, action)
          agree(schedule, "doubled " .. what, seen)
          table.remove(list, i)
        end
      end
      for _, class in ipairs { "right", "complete", "order", "transfer", "deadlock" } do
        assert.is_true((seen[class] or 0) > 0, "no change was " .. class)
      end
    end)
  end
end)
