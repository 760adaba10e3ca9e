-- race.lua - every legal setting of N ranks, measured: what the plan's choice costs against the best of all.
--
--     ganymede run spec/bench/plan/race.lua --set ranks=8 --set out=race --set of=moe          minutes
--     ganymede run spec/bench/plan/race.lua --set ranks=8 --set out=race --set of=gpt          half an hour
--
-- Settings are too many to measure each of them well, and most are far from the best. So they race (successive
-- halving: Jamieson and Talwalkar 2016). In the first heat each runs a few steps. Those within a factor of the fastest
-- run more steps in the next heat, and so on. In the finals each runs in several rounds, in turns with the plan's first
-- choice, which takes part in every heat, whatever it takes. Their medians in the finals say the regret.
--
-- Heats are run in ranks that stay from one setting to the next, and a setting whose first step takes SLOW times the
-- fastest so far ends with it. Each run of the finals has ranks of its own.
--
-- A reference runs before every tenth setting. The median of the five nearest references, divided by that over the
-- whole heat, is the pace of the machine, by which a time is divided. One reference alone may be twice as slow as its
-- neighbours. The machine must be idle.
--
-- Its own settings: heats (a list of { steps, within }), rounds (of the finals, 5), finalists (at most, 12). steps.lua
-- has the others. Results are lines of out/MODEL-race.jsonl.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local failure = require "ganymede.base.failure"
local fits = require "ganymede.plan.fits"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local steps = require "steps"

local config = gm.launch { ranks = 8, out = "race", of = "gpt,vit,bert,moe", rounds = 5, finalists = 12, keep = {},
  heats = { { steps = 3, within = 1.6 }, { steps = 8, within = 1.15 } }, platform = "" }

local SLOW = 3

local bench = steps.new { out = config.out, timed = 8, platform = config.platform }

-- The settings in an order that has nothing to do with what they are: by a hash of their words.
local function shuffled(list)
  for _, one in ipairs(list) do
    one.hash = 2166136261
    for at = 1, #one.words do one.hash = bit.bxor(one.hash, one.words:byte(at)) * 403 % 4294967296 end
  end
  table.sort(list, function(a, b)
    if a.hash ~= b.hash then return a.hash < b.hash end
    return a.words < b.words
  end)
  return list
end

local Race = {}
Race.__index = Race

local function open(name)
  local self = setmetatable({ name = name, path = ("%s/%s-race.jsonl"):format(config.out, name), known = {} }, Race)
  json.each_line(self.path, function(row) self:remember(row) end)
  return self
end

function Race:remember(row)
  local of = self.known[row.heat] or { at = {}, references = {} }
  self.known[row.heat] = of
  if row.reference then of.references[#of.references + 1] = row.reference end
  of.at[row.words or ""] = row
  row.since = #of.references
end

-- Runs a setting in a heat, unless it has run there: `seconds`, or `why` it was refused.
function Race:run(heat, one, count)
  local of = self.known[heat]
  if of and of.at[one.words] then return end
  if not of or (self.lately or 10) >= 10 then
    self:add { heat = heat, reference = bench:reference(config.ranks) }
    self.lately = 0
  end
  self.lately = self.lately + 1
  local seconds, why
  if count then
    seconds, why = bench:run_next(self.name, config.ranks, one.sets, count, SLOW * (self.fastest or 0))
    self.fastest = math.min(seconds or math.huge, self.fastest or math.huge)
  else seconds, why = bench:run(self.name, config.ranks, one.sets) end
  self:add { heat = heat, words = one.words, seconds = seconds, why = why }
end

function Race:add(row)
  steps.add_result(self.path, row)
  self:remember(row)
end

-- Of those from `first` to `last` that there are.
local function median(list, first, last)
  local part = {}
  for i = math.max(first, 1), math.min(last, #list) do part[#part + 1] = list[i] end
  return fits.median(part)
end

-- Seconds of a setting in a heat, as if the machine had gone at its median pace; nil: refused.
function Race:seconds(heat, words)
  local of = self.known[heat]
  local row = of.at[words]
  if not row.seconds then return nil end
  local all = of.references
  return row.seconds * median(all, 1, #all) / median(all, row.since - 2, row.since + 2)
end

-- Those of the list that come into the next heat, the fastest first.
function Race:best(heat, list, within)
  local out = {}
  for _, one in ipairs(list) do
    one.seconds = self:seconds(heat, one.words)
    if one.seconds then out[#out + 1] = one end
  end
  table.sort(out, function(a, b) return a.seconds < b.seconds end)
  local fast = {}
  for _, one in ipairs(out) do
    if one.first or one.seconds <= within * out[1].seconds then fast[#fast + 1] = one end
  end
  return fast, #out
end

function Race:heat(number, list)
  local heat = config.heats[number]
  for i, one in ipairs(list) do
    self:run(number, one, heat.steps)
    if i % 100 == 0 then print(("%s, heat %d: %d of %d"):format(self.name, number, i, #list)) end
  end
  local fast, ran = self:best(number, list, heat.within)
  print(("%s, heat %d: %d settings, of which %d ran %d steps; %d are within %g times the fastest (%.2f ms)"):format(
    self.name, number, #list, ran, heat.steps, #fast, heat.within, 1e3 * (fast[1] and fast[1].seconds or 0)))
  return fast
end

function Race:finals(list)
  local last = {}
  for i, one in ipairs(list) do
    if i <= config.finalists or one.first then last[#last + 1] = one end
  end
  for round = 1, config.rounds do
    for _, one in ipairs(last) do self:run("final " .. round, one, nil) end
  end
  for _, one in ipairs(last) do
    local times = {}
    for round = 1, config.rounds do times[round] = self:seconds("final " .. round, one.words) end
    one.seconds, one.times = fits.median(times), times
  end
  table.sort(last, function(a, b) return a.seconds < b.seconds end)
  return last
end

local function report(name, last)
  local choice
  for place, one in ipairs(last) do
    if one.first then choice = one end
    local low, high = math.min(unpack(one.times)), math.max(unpack(one.times))
    print(("  %2d %9.2f ms (%.2f to %.2f)%s  %s"):format(place, 1e3 * one.seconds, 1e3 * low, 1e3 * high,
      one.first and "  THE PLAN'S" or "", one.words))
  end
  print(("%s: %s"):format(name, steps.regret(last[1].seconds, choice.seconds)))
end

local function race_of(name)
  local plan = bench:plan(name, config.ranks, config.keep, 8)
  local list = shuffled(bench:settings(name, config.ranks, keep.parse(config.keep)))
  for _, one in ipairs(list) do one.first = one.words == plan[1].words end
  local race = open(name)
  for number in ipairs(config.heats) do list = race:heat(number, list) end
  bench:close()
  report(name, race:finals(list))
end

-- Ranks that stay wait for this process, and its end would wait for theirs.
failure.protect(function() bench:close() end, function()
  for name in steps.each(config.of) do race_of(name) end
end)
