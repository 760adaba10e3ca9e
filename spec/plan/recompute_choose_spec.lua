--- recompute.memory: the search for what runs again, with a rehearsal that the spec plays.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local operations = require "ganymede.recompute.operations"
local recompute = require "ganymede.recompute"
local section_regions = require "ganymede.nn.section_regions"

-- A model of n blocks between an embedding and a head: its chain.
local function model(n)
  local chain = { { forward = 1, backward = 1, input = 0, kept = 100, name = "tokens" }, beside = 50 }
  for i = 1, n do
    chain[i + 1] = { forward = 10, backward = 20, input = 100, kept = 1500, backward_extra = 300,
      name = ("blocks.%d"):format(i) }
  end
  chain[n + 2] = { forward = 5, backward = 10, input = 100, kept = 2000, gradient = 4, backward_extra = 500,
    fixed = true, name = "head" }
  return chain
end

-- The regions of single modules that match patterns.
local function matching(chain, patterns)
  local regions = {}
  for i, stage in ipairs(chain) do
    for _, pattern in ipairs(patterns) do
      if stage.name:find(pattern) then regions[#regions + 1] = { first = i, last = i, inside = {} } end
    end
  end
  assert.equal(#patterns, #regions)
  return regions
end

-- What a rehearsal says: the chain's own count, times `factor`, beside what is held anyway. notes: peaks by setting.
local function rehearsal(chain, live, factor, notes)
  return function(setting)
    local regions = {}
    if setting and setting.sections then regions = assert(section_regions.parse(setting.sections))
    elseif setting then regions = matching(chain, setting) end
    local took = operations.simulate(chain, operations.of(regions, #chain))
    local peak = live + chain.beside + math.floor(factor * took.peak)
    notes[#notes + 1] = { setting = setting, peak = peak }
    return peak, took.time
  end
end

local function choose(n, memory, factor, change)
  local chain, live, notes = model(n), 5000, {}
  if change then change(chain) end
  local rehearse = rehearsal(chain, live, factor or 1, notes)
  local peak, flops = rehearse(false)
  local found, why = recompute.choose({ chain = chain, live = live, peak = peak, flops = flops }, rehearse, memory)
  return found, why, notes, rehearse, chain
end

describe("recompute.memory", function()
  it("chooses nothing where everything fits", function()
    local found, _, _, _, chain = choose(10, 30000)
    assert.is_false(found.setting)
    assert.equal(found.whole, found.flops)
    assert.matches("^nothing runs again: a step needs [%d.]+ KiB of 29.3 KiB$", recompute.said(chain, found, 30000))
  end)

  it("chooses what costs least, predicts its peak, and names it", function()
    local found, _, notes, rehearse, chain = choose(10, 16000)
    assert.is_true(found.peak <= 16000)
    assert.equal(found.peak, found.predicted)
    assert.equal(found.peak, (rehearse(found.setting)))
    -- A step where nothing runs again needs 22,654; a block that does keeps 100 in place of 1,500. So five do.
    assert.equal(22654, notes[1].peak)
    assert.equal(found.whole + 50, found.flops)
    assert.is_true(#notes <= 10)
    local said = recompute.said(chain, found, 16000)
    assert.truthy(said:find(("(sections = %q)"):format(found.setting.sections), 1, true), said)
    assert.truthy(said:find(("a step needs %.1f KiB of 15.6 KiB, and %.1f %% more operations"):format(found.peak / 1024,
      100 * (found.flops / found.whole - 1)), 1, true), said)
  end)

  it("says which sections, in a row and as one", function()
    local text = "2, 3, 5-8, 5-6, 10"
    local found = { setting = { sections = text }, peak = 1024, flops = 11, whole = 10,
      regions = section_regions.parse(text) }
    assert.equal("blocks.1-2, blocks.4-7 as one with regions inside, blocks.9 run again in backward (sections = "
      .. "\"2, 3, 5-8, 5-6, 10\"): a step needs 1.0 KiB of 2.0 KiB, and 10.0 % more operations",
      recompute.said(model(10), found, 2048))
  end)

  for _, factor in ipairs { 0.8, 1.2 } do
    it(("follows the rehearsal where that says %g times what the chain says"):format(factor), function()
      for memory = 11000, 21000, 1000 do
        local found, why, notes, rehearse = choose(10, memory, factor)
        if found then
          assert.is_true(found.peak <= memory)
          assert.equal(found.peak, (rehearse(found.setting)))
          assert.is_true(found.peak + 1500 * factor + 1 > memory or not found.setting)
        else
          assert.equal(why.least - memory, why.missing)
          assert.is_true(why.missing > 0)
        end
        assert.is_true(#notes <= 11)
      end
    end)
  end

  it("says what is missing where no choice fits", function()
    local found, why, notes = choose(10, 7000)
    assert.is_nil(found)
    assert.equal(why.least - 7000, why.missing)
    assert.equal(notes[#notes].peak, why.least)
    assert.is_truthy((choose(10, why.least)))
  end)

  it("numbers sections as the model does where a chain is a part of it", function()
    local found = choose(10, 16000, 1, function(chain)
      for i, stage in ipairs(chain) do stage.section = i end
    end)
    local shifted
    local chain = model(10)
    for i, stage in ipairs(chain) do stage.section = i + 20 end
    recompute.choose({ chain = chain, live = 5000, peak = 2 ^ 40, flops = 1 }, function(setting)
      shifted = shifted or setting
      return 0, 1
    end, 16000)
    local list, other = section_regions.parse(found.setting.sections), section_regions.parse(shifted.sections)
    assert.equal(list[1].first + 20, other[1].first)
    assert.equal(list[1].last + 20, other[1].last)
  end)

  it("makes patterns that match one module each for a model without sections", function()
    local found = choose(12, 15000, 1, function(chain) chain.modules = true end)
    assert.is_true(#found.setting > 0)
    for i, pattern in ipairs(found.setting) do
      assert.is_truthy(("blocks.%d"):format(i + 12 - #found.setting):find(pattern))
    end
    assert.is_nil(("blocks.11"):find "^blocks%.1$")
  end)
end)

describe("regions as text", function()
  it("are nested as one contains the other, in any order", function()
    local list = section_regions.parse "11, 2-4, 2-9, 6 - 7"
    assert.same({ { first = 2, last = 9, inside = { { first = 2, last = 4, inside = {} },
      { first = 6, last = 7, inside = {} } } }, { first = 11, last = 11, inside = {} } }, list)
    assert.equal("2-9, 2-4, 6-7, 11", section_regions.text(list))
    assert.same(list, section_regions.parse(section_regions.text(list)))
  end)

  it("are refused where they are none", function()
    for text, words in pairs { ["2-9, 4-11"] = "2-9 and 4-11 overlap", ["3-5, 3-5"] = "3-5 and 3-5 are the same",
      ["a-b"] = "'a-b' is no span", ["5-3"] = "a span goes up", ["0-3"] = "a span goes up", [""] = "is empty" } do
      local list, why = section_regions.parse(text)
      assert.is_nil(list)
      assert.truthy(why:find(words, 1, true), why)
    end
  end)
end)
