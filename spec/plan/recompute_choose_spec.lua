--- recompute.memory: the search for modules that run again, with a rehearsal that the spec plays.
local operations = require "ganymede.plan.recompute.operations"
local recompute = require "ganymede.plan.recompute"

-- A model of n blocks between an embedding and a head: its chain.
local function model(n)
  local chain = { { forward = 1, backward = 1, output = 100, kept = 100, fixed = true } }
  for i = 1, n do
    chain[i + 1] = { forward = 10, backward = 20, output = 100, kept = 1600, backward_extra = 300,
      path = ("blocks.%d"):format(i) }
  end
  chain[n + 2] = { forward = 5, backward = 10, output = 4, kept = 2000, backward_extra = 500, fixed = true }
  return chain
end

-- What a rehearsal says: the chain's own count, times `factor`, beside what is held anyway. notes: peaks by patterns.
local function rehearsal(chain, live, factor, notes)
  return function(patterns)
    local regions = {}
    for i, stage in ipairs(chain) do
      for _, pattern in ipairs(patterns) do
        if stage.path and stage.path:find(pattern) then regions[#regions + 1] = { first = i, last = i } end
      end
    end
    assert.equal(#patterns, #regions)
    local peak = live + math.floor(factor * operations.simulate(chain, operations.of(regions, #chain)).peak)
    notes[#notes + 1] = { patterns = #patterns, peak = peak }
    return peak
  end
end

local function choose(n, memory, factor)
  local chain, live, notes = model(n), 5000, {}
  local rehearse = rehearsal(chain, live, factor or 1, notes)
  local found, why = recompute.choose({ chain = chain, live = live, peak = rehearse {} }, rehearse, memory)
  return found, why, notes, rehearse
end

describe("recompute.memory", function()
  it("chooses nothing where everything fits", function()
    local found = choose(10, 30000)
    assert.same({ {}, {} }, { found.patterns, found.paths })
    assert.equal(found.whole, found.time)
    assert.matches("^nothing runs again: a step needs [%d.]+ KiB of 29.3 KiB$", recompute.said(found, 30000))
  end)

  it("chooses as few modules as fit, and names them", function()
    local found, _, notes = choose(10, 16000)
    assert.is_true(found.peak <= 16000)
    assert.is_true(found.peak + 1500 > 16000, "one block less would not fit")
    assert.equal(found.whole + 10 * #found.patterns, found.time)
    assert.is_true(#notes <= 9)
    assert.equal(("blocks.5-10 run again in backward: a step needs %.1f KiB of 15.6 KiB, and %.1f %% more "
      .. "operations"):format(found.peak / 1024, 6000 / found.whole), recompute.said(found, 16000))
  end)

  for _, factor in ipairs { 0.8, 1.2 } do
    it(("follows the rehearsal where that says %g times what the chain says"):format(factor), function()
      for memory = 13000, 21000, 1000 do
        local found, why, notes, rehearse = choose(10, memory, factor)
        if found then
          assert.is_true(found.peak <= memory)
          assert.equal(found.peak, rehearse(found.patterns))
          assert.is_true(found.peak + 1600 * factor + 1 > memory or #found.patterns == 0)
        else
          assert.equal(why.least - memory, why.missing)
          assert.is_true(why.missing > 0)
        end
        assert.is_true(#notes <= 11)
      end
    end)
  end

  it("says what is missing where no choice fits", function()
    local found, why = choose(10, 7000)
    assert.is_nil(found)
    local _, _, _, rehearse = choose(10, 30000)
    local all = {}
    for i = 1, 10 do all[i] = ("^blocks%%.%d$"):format(i) end
    assert.same({ least = rehearse(all), missing = rehearse(all) - 7000 }, why)
  end)

  it("makes patterns that match one module each", function()
    local found = choose(12, 12000)
    for i, path in ipairs(found.paths) do assert.is_truthy(path:find(found.patterns[i])) end
    assert.is_nil(("blocks.11"):find "^blocks%.1$")
  end)
end)
