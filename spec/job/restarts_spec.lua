--- ganymede.job.restarts: whether a job starts again, when and on how many ranks. Histories are written by hand; the
-- answers follow from the law at the top of that file.
-- sanitizers: no, it holds Lua alone
local restarts = require "ganymede.job.restarts"

-- An attempt of 4 ranks that trained from step 0 and was killed without a checkpoint, with changes.
local function attempt(changes)
  local a = { ranks = 4, status = 6, text = "killed", rank = 2, began = 0, reached = 0 }
  for key, value in pairs(changes or {}) do a[key] = value end
  return a
end

local function times(n, changes)
  local list = {}
  for i = 1, n do list[i] = attempt(changes) end
  return list
end

local limits = { most = 3, delay = 1 }

local function next_of(history, more)
  local all = { most = limits.most, delay = limits.delay }
  for key, value in pairs(more or {}) do all[key] = value end
  return restarts.next(history, all)
end

describe("a job that failed", function()
  it("starts again where a rank died or hangs", function()
    for _, status in ipairs { 6, 7 } do assert.equal(4, next_of({ attempt { status = status } }).ranks) end
  end)

  it("ends where the user, the data or the numbers are wrong, and where it was stopped", function()
    for _, status in ipairs { 2, 5, 8, 75, 130, 143 } do
      local plan, why = next_of { attempt { status = status } }
      assert.is_nil(plan)
      assert.is_string(why)
    end
    for _, stop in ipairs { "interrupt", "terminate", "deadline" } do
      assert.is_nil((next_of { attempt { stopped = stop, status = stop == "deadline" and 7 or 6 } }))
    end
  end)

  it("ends where an error came before it ever trained", function()
    local failed = attempt { status = 1 }
    failed.began = nil
    assert.is_nil((next_of { failed }))
    assert.is_table(next_of { attempt(), failed })
  end)

  it("ends where the same error came twice, but not if the job got further", function()
    local function raised(step, reached)
      return attempt { status = 1, text = "wrong in " .. step, reached = reached }
    end
    assert.is_table(next_of { raised(7, 6) })
    local plan, why = next_of { raised(7, 6), raised(8, 6) }
    assert.is_nil(plan)
    assert.matches("twice", why)
    assert.is_table(next_of { raised(7, 6), raised(9, 8) })
    assert.is_table(next_of { raised(7, 6), attempt { status = 1, text = "something else", reached = 6 } })
  end)

  it("ends where only the final checkpoint could not be saved", function()
    local plan, why = next_of { attempt { status = 1, reached = 9,
      text = "rank 0: " .. restarts.UNSAVED:format(12) .. ": No space left on device" } }
    assert.is_nil(plan)
    assert.matches("the training had ended, and only its final checkpoint could not be saved", why)
    assert.is_table(next_of { attempt { status = 1, reached = 9,
      text = "the checkpoint of step 9 could not be saved: No space left on device" } })
  end)

  it("takes different calls of ranks for the same, whichever rank finds them first", function()
    local function differ(text) return attempt { status = 1, text = text, reached = 6 } end
    local one = differ("ranks differ: rank 0 calls all_reduce f64 (1) sum (call 26 of data); rank 1 calls broadcast "
      .. "f64 (4) (call 26), at hooks")
    local other = differ("recipe.lua:10: ranks differ: rank 1 calls broadcast f64 (4) (call 8 of data), at hooks; "
      .. "rank 0 calls all_reduce f64 (1) sum (call 8)")
    local third = differ("ranks differ: rank 0 calls all_reduce f64 (1) sum (call 8 of data); rank 1 calls all_gather "
      .. "f64 (1) (call 8), at hooks")
    assert.is_nil((next_of { one, other }))
    assert.is_nil((next_of { other, one }))
    assert.is_table(next_of { one, third })
  end)

  it("ends after K + 1 attempts in a row without a newer checkpoint", function()
    assert.is_table(next_of(times(3)))
    local plan, why = next_of(times(4))
    assert.is_nil(plan)
    assert.matches("4 attempts in a row left no newer checkpoint %(%-%-max%-restarts 3%)", why)
  end)

  it("counts anew after an attempt that got further", function()
    local history = times(3)
    for step = 5, 50, 5 do history[#history + 1] = attempt { began = step - 5, reached = step } end
    assert.equal(0, restarts.stalled(history))
    assert.equal(1, next_of(history).delay)
    for i = 1, 3 do
      history[#history + 1] = attempt { began = 50, reached = 50 }
      assert.equal(i, restarts.stalled(history))
      assert.is_table(next_of(history))
    end
    history[#history + 1] = attempt { began = 50, reached = 50 }
    assert.is_nil((next_of(history)))
  end)

  it("has made no progress with the checkpoint that it began from", function()
    assert.equal(1, restarts.stalled { attempt { began = 20, reached = 20 } })
    assert.equal(0, restarts.stalled { attempt { began = 20, reached = 21 } })
  end)

  it("waits twice as long each time, a minute at most, or as long as it was told first", function()
    local waited = {}
    for i = 1, 9 do waited[i] = next_of(times(i), { most = 100 }).delay end
    assert.same({ 1, 2, 4, 8, 16, 32, 60, 60, 60 }, waited)
    assert.equal(600, next_of(times(5), { most = 100, delay = 600 }).delay)
  end)

  it("waits for nothing after an attempt that got further, unless it was told to", function()
    local history = times(1)
    history[2] = attempt { began = 5, reached = 10 }
    assert.equal(0, restarts.next(history, { most = 3 }).delay)
    assert.equal(2, restarts.next(history, { most = 3, delay = 2 }).delay)
    local waited = {}
    for i = 1, 3 do
      history[2 + i] = attempt { began = 10, reached = 10 }
      waited[i] = restarts.next(history, { most = 100 }).delay
    end
    assert.same({ 1, 2, 4 }, waited)
  end)
end)

describe("a place for a rank", function()
  local worlds = { { ranks = 2, sets = { "parallel.data.size=2" } }, { ranks = 1, sets = {} } }

  it("is gone when the same rank fails first twice in a row: the largest world that fits comes next", function()
    local plan = next_of(times(2), { worlds = worlds })
    assert.equal(2, plan.ranks)
    assert.equal(worlds[1], plan.smaller)
    local again = next_of({ attempt(), attempt(), attempt { ranks = 2 } }, { worlds = worlds })
    assert.equal(2, again.ranks)
    assert.is_nil(again.smaller)
    local smaller = next_of({ attempt(), attempt(), attempt { ranks = 2 }, attempt { ranks = 2 } },
      { worlds = worlds, most = 9 })
    assert.equal(1, smaller.ranks)
  end)

  it("is not gone after one failure, those of two ranks, or one that got further", function()
    local stays = { times(1), { attempt { rank = 1 }, attempt { rank = 2 } },
      { attempt(), attempt { reached = 5 } } }
    for _, history in ipairs(stays) do assert.equal(4, next_of(history, { worlds = worlds }).ranks) end
  end)

  it("is gone when the ranks do not come to their first step twice in a row", function()
    local function unborn()
      local a = attempt { status = 1, text = "mpirun could not start 4 ranks" }
      a.began, a.rank = nil, nil
      return a
    end
    local early = { attempt { status = 6, text = "killed" }, unborn(), attempt { status = 7, rank = 3 } }
    early[3].began = nil
    assert.equal(2, next_of(early, { worlds = worlds }).ranks)
  end)

  it("is not given up where no smaller world fits", function()
    assert.equal(4, next_of(times(2), { worlds = {} }).ranks)
    assert.equal(4, next_of(times(2)).ranks)
  end)
end)
