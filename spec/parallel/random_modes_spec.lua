--- Features drawn at random, together: models, optimizers, rates, adapters, frozen parameters, averages, norms,
-- accumulation, recomputation, offload, ZeRO, and meshes (spec/parallel/drawn.lua, drawn_meshes.lua). Each draw trains
-- on one mesh, is saved, and goes on on another. Losses, test loss, weights, moments and averages are those of one rank
-- that nobody stopped.
--
-- Draws are the same in each run. More of them, which go over three meshes of up to 8 ranks:
-- GANYMEDE_SPEC_DRAWS=200 ./ganymede spec spec/parallel/random_modes_spec.lua
--
-- In f64 only the order of sums differs, 1e-16 an addition: losses agree to 1e-9. In 550 legs of such runs weights and
-- moments differed by 2e-12 of the largest at most, so 1e-9 holds with room.
-- sanitizers: no, numbers of several ranks are compared; the specs of each feature look at the same code
local drawn = require "spec.parallel.drawn"
local job = require "spec.parallel.job"
local meshes = require "spec.parallel.drawn_meshes"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

local DRAWS, LIMIT = tonumber(os.getenv "GANYMEDE_SPEC_DRAWS") or 8, 1e-9
local MANY = DRAWS > 8
local LEGS, RANKS = MANY and 3 or 2, MANY and 8 or 4

local function weights_of(folder, step) return ("%s/run/checkpoints/step-%08d"):format(folder, step) end

-- Trains to step `to` in a folder, from what is there if `again` -> the document of --stats.
local function leg(folder, text, ranks, set, to, again)
  return job.run_in(folder, text, ranks, { steps = to, set = set,
    flags = { "--out", "run", again and "--resume" or nil, again and "auto" or nil } })
end

local near
function near(what, want, got)
  if type(want) == "table" then
    for key, value in pairs(want) do near(what .. " " .. key, value, got[key]) end
    return
  end
  local share = want == got and 0 or math.abs(got - want) / math.abs(want)
  assert.is_true(share <= LIMIT, ("%s differs by %g"):format(what, share))
end

-- The steps with which the legs of a draw end.
local function ends_of(draws)
  local list, at = {}, 0
  for i = 1, LEGS do
    at = at + draws.any(2)
    list[i] = at
  end
  return list
end

-- said: lines that tell what is run, which grow.
local function compare(draws, said, stays, wanders)
  local text, about = drawn.recipe(draws)
  local ends, from = ends_of(draws), 0
  said[1] = text
  local whole = leg(stays, text, 1, {}, ends[LEGS])
  for i, to in ipairs(ends) do
    local ranks, set = meshes.drawn(draws, about, RANKS)
    said[#said + 1] = ("to step %d: -n %d %s"):format(to, ranks, table.concat(set, " "))
    local stats = leg(wanders, text, ranks, set, to, i > 1)
    for k = 1, to - from do near("a loss", whole.loss[from + k], stats.loss[k]) end
    if i == LEGS then near("of the test, the", whole.metrics.test, stats.metrics.test) end
    local share, name = stored.difference(weights_of(wanders, to), weights_of(stays, to), true)
    assert.is_true(share <= LIMIT, ("%s differs by %g"):format(tostring(name), share))
    from = to
  end
end

local function check(number)
  local stays, wanders, said = shell.temporary_folder(), shell.temporary_folder(), {}
  local ok, why = pcall(compare, drawn.of(number), said, stays, wanders)
  shell.remove(stays)
  shell.remove(wanders)
  if not ok then error(("%s\n%s"):format(tostring(why), table.concat(said, "\n")), 0) end
end

describe("features drawn at random #ranks", function()
  for number = 1, DRAWS do
    it("train together as on one rank: draw " .. number, function() check(number) end)
  end
end)
