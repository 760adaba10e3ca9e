--- Pipeline schedules of a user's own: registered, given options, put through the same checker as the built-in ones.
local failure = require "ganymede.base.failure"
local geometry = require "ganymede.job.geometry"
local pipeline = require "ganymede.schedules.pipeline"
local registry = require "ganymede.base.registry"
local reference = require "spec.pipeline.reference"

local function with_schedule(name, definition, body)
  registry.pipeline_schedules:register(name, definition)
  finally(function()
    registry.pipeline_schedules.classes[name] = nil
    table.remove(registry.pipeline_schedules.order)
  end)
  return body()
end

-- GPipe in groups: `group` micro-batches go forward, then come back, the last one first.
local groups = {
  doc = "GPipe in groups of micro-batches",
  options = { group = { type = "integer", min = 1, default = 2, doc = "micro-batches that go together" } },
  order = function(stages, micro_batches, _, opt)
    local actions = {}
    for stage = 1, stages do
      local list = {}
      for first = 1, micro_batches, opt.group do
        local last = math.min(micro_batches, first + opt.group - 1)
        for i = first, last do list[#list + 1] = { "forward", i, 1 } end
        for i = last, first, -1 do list[#list + 1] = { "backward", i, 1 } end
      end
      actions[stage] = list
    end
    return actions
  end,
}

describe("a user's pipeline schedule", function()
  it("that is interrupted while it orders is not the user's mistake", function()
    local stop = failure.new(130, "stopped by Ctrl-C")
    local slow = { name = "slow", order = function() error(stop, 0) end }
    local _, err = pcall(pipeline.build, slow, { stages = 2, micro_batches = 2 })
    assert.equal(stop, err)
  end)

  it("is built, proved and simulated like any other", function()
    with_schedule("groups", groups, function()
      local schedule = pipeline.build("groups", { stages = 3, micro_batches = 7, options = { group = 3 } })
      assert.is_true(reference.execute(schedule, true, 1))
      assert.is_true(reference.execute(schedule, false, 1))
      local s = pipeline.simulate(schedule)
      assert.same({ 3, 3, 3 }, s.live)
      -- Groups of 3, 3 and 1 empty the pipeline, each in its own time of (size + p - 1) passes both ways, but a rank
      -- may begin the next group while the last gradients go down.
      assert.is_true(s.bubble > 2 / 7 and s.time <= 3 * (5 + 5 + 3), tostring(s.time))
      assert.same({ 2, 2, 2 }, pipeline.simulate(pipeline.build("groups", { stages = 3, micro_batches = 7 })).live)
    end)
  end)

  it("may say where parts lie, and may be no registered one", function()
    local back = { name = "back to front", chunks = { default = 1, min = 1, max = 1 },
      order = function(stages, micro_batches)
        local actions = groups.order(stages, micro_batches, 1, { group = micro_batches })
        local parts = {}
        for rank = 1, stages do parts[rank] = { stages + 1 - rank } end
        return actions, parts
      end }
    local schedule = pipeline.build(back, { stages = 3, micro_batches = 4 })
    assert.same({ { 3 }, { 2 }, { 1 } }, schedule.parts)
    assert.same({ "send", "activation", 1, 1, 1 }, schedule.actions[3][2])
    assert.is_true(reference.execute(schedule, true, 2))
  end)

  it("is refused by the checker at the caller's line when it is wrong", function()
    local function broken(change)
      local definition = { name = "mine", order = function(...)
        local actions = groups.order(...)
        return change(actions) or actions
      end, options = groups.options }
      local ok, why = pcall(function() pipeline.build(definition, { stages = 2, micro_batches = 4 }) end)
      assert.is_false(ok)
      return (why:gsub("^.-spec/", "spec/"))
    end
    assert.matches("^spec/pipeline/own_schedule_spec.lua:%d+: the schedule cannot run: mine: rank 1: has no backward",
      broken(function(actions) table.remove(actions[2]) end))
    assert.matches("rank 0, action 1 %(recompute of micro%-batch 1, chunk 1%): there is no such kind of action",
      broken(function(actions) actions[1][1] = { "recompute", 1, 1 } end))
    assert.matches("rank 0, action 1 %(send activation .*%): an order has no transfers",
      broken(function(actions) table.insert(actions[1], 1, { "send", "activation", 1, 1, 1 }) end))
    assert.matches("rank 0, action 3 %(backward of micro%-batch 2, chunk 1%): waits for ever, for the gradient",
      broken(function(actions)
        local list = actions[2] -- rank 1 first wants all forward passes
        for i, action in ipairs { list[1], list[2], list[5], list[6], list[3], list[4], list[7], list[8] } do
          list[i] = action
        end
      end))
    assert.matches("actions must have one list for each of the 2 ranks", broken(function() return {} end))
  end)

  it("refuses by error(text, 0) and options that it does not have", function()
    with_schedule("even", { order = function(_, m)
      if m % 2 == 1 then error(("%d micro-batches are odd"):format(m), 0) end
      return groups.order(1, m, 1, { group = 2 })
    end }, function()
      assert.same({ { 1 } }, pipeline.build("even", { stages = 1, micro_batches = 4 }).parts)
      assert.error_matches(function() pipeline.build("even", { stages = 1, micro_batches = 3 }) end,
        "^even: 3 micro%-batches are odd")
      assert.error_matches(function()
        pipeline.build("even", { stages = 1, micro_batches = 4, options = { groop = 2 } })
      end, "^even has no option 'groop'")
    end)
  end)

  it("must be a table with an order", function()
    assert.error_matches(function() registry.pipeline_schedules:register("f", function() end) end,
      "'f' must be a table with a function `order`")
    assert.error_matches(function() registry.pipeline_schedules:register("1f1b", groups) end, "registered already")
    assert.same({ "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v" }, registry.pipeline_schedules:names())
  end)

  it("can lie along a V or in loops with any number of chunks", function()
    assert.same({ { 1, 6, 7 }, { 2, 5, 8 }, { 3, 4, 9 } }, geometry.v_shaped(3, 3))
    assert.same({ { 1, 4, 7 }, { 2, 5, 8 }, { 3, 6, 9 } }, geometry.looped(3, 3))
  end)
end)
