--- The ways in which a run makes its matrix products on GPUs (the setting time_products; kernels/choices.h).
--
--     false    a fixed rule decides
--     true     each rank times each kind of product when it first comes, and the fastest way is taken
--     FILE     the choices of an earlier run: its products.json. Nothing is timed
--
-- A rank that has timed a kind goes on with the rule until all ranks have agreed (join): copies of a value on several
-- ranks must be made in the same way. For each kind, the lowest rank that has timed it decides. One rank alone takes
-- what is fastest at once.
--
-- The choices go into the run's folder (products.json, for people and for other runs) and into each checkpoint, so that
-- a run that is resumed makes its products as before. They are good for one kind of GPU and one version of the library.
-- The trap: kinds that come for the first time after a checkpoint are timed anew by a run that is resumed from it.
-- @module ganymede.job.products
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local ranks = require "ganymede.job.ranks"

local products = { FILE = "products.json" }

local KIND, FORMAT = "ganymede products", 1

local timing = "none"
local folder, kept -- where products.json goes; how many choices it has

-- ---------------------------------------------------------------- as plain values

local function tried_ways(choice)
  local list = {}
  for i, t in ipairs(choice.tried) do list[i] = { way = t.way, seconds = t.seconds } end
  return #list > 0 and json.array(list) or nil
end

-- The choices that count, sorted by kind. with_tried: also what else was timed, which differs from rank to rank.
local function counting(with_tried)
  local list = {}
  for _, c in ipairs(core.choices()) do
    if c.counts then
      list[#list + 1] = { kind = c.kind, way = c.way, variant = c.variant, seconds = c.seconds,
        tried = with_tried and tried_ways(c) or nil }
    end
  end
  table.sort(list, function(a, b) return a.kind < b.kind end)
  return json.array(list)
end

local function take(choices)
  for _, c in ipairs(choices) do core.choices_take(c.kind, c.way, c.variant, c.seconds) end
end

local function document(with_tried)
  return { what = KIND, format = FORMAT, good_for = core.choices_about(), device = core.device().description,
    choices = counting(with_tried) }
end

-- Says what is wrong with a document; nil: nothing.
local function wrong(doc)
  if type(doc) ~= "table" or doc.what ~= KIND then return "it is no list of ways to make products" end
  if doc.format ~= FORMAT then
    return ("its format is %s, and this program knows %d"):format(tostring(doc.format), FORMAT)
  end
  if type(doc.good_for) ~= "string" or type(doc.choices) ~= "table" then return "good_for or choices are missing" end
  for i, c in ipairs(doc.choices) do
    if type(c) ~= "table" or type(c.kind) ~= "string" or type(c.way) ~= "string" or type(c.variant) ~= "string"
      or type(c.seconds) ~= "number" then
      return ("entry %d of choices lacks kind, way, variant or seconds"):format(i)
    end
  end
end

-- ---------------------------------------------------------------- the setting

local function of_file(path)
  local ok, doc = failure.try(json.of_file, path)
  if not ok then failure(2, "time_products: %s", failure.text(doc)) end
  local why = wrong(doc)
  if why then failure(2, "time_products: %s: %s", path, why) end
  local here = core.choices_about()
  if doc.good_for ~= here then
    failure(2, "time_products: %s is good for %s, and here is %s; time_products = true times anew", path, doc.good_for,
      here)
  end
  return doc.choices
end

-- Ranks that take over each other's choices must have the same kind of GPU and the same library.
local function refuse_mixture()
  local all = ranks.texts(core.choices_about())
  for i, about in ipairs(all) do
    if about ~= all[1] then
      ranks.fail(2, "time_products: all ranks must have the same kind of GPU and the same cuBLASLt: rank 0 has %s, "
        .. "rank %d has %s; leave time_products out", all[1], i - 1, about)
    end
  end
end

--- Applies the setting. All ranks call it, before the first product. rehearsal: nothing runs, and nothing is said.
function products.begin(setting, rehearsal)
  timing, folder, kept = "none", nil, 0
  if setting == true then timing = core.world() > 1 and "together" or "alone" end
  local effect = core.time_products(timing)
  if not setting or rehearsal then return end
  if not effect then
    timing = "none"
    log.info("time_products has no effect here: this run is on %s", core.device().name)
    return
  end
  if core.world() > 1 then refuse_mixture() end
  if setting ~= true then take(of_file(setting)) end
end

-- ---------------------------------------------------------------- agreeing

--- Returns whether this rank has timed kinds about which the ranks have not agreed. Not collective.
function products.waiting() return timing == "together" and core.choices_waiting() > 0 end

--- From here on all ranks make the kinds that any of them has timed in the same way. Collective; nothing happens where
-- nothing is timed, or on one rank.
function products.join()
  if timing ~= "together" then return end
  local own, decided = {}, {}
  for _, c in ipairs(core.choices()) do
    if not c.counts then own[#own + 1] = { kind = c.kind, way = c.way, variant = c.variant, seconds = c.seconds } end
  end
  for _, text in ipairs(ranks.texts(json.encode(json.array(own)))) do
    for _, c in ipairs(json.decode(text, "choices of another rank")) do
      if not decided[c.kind] then take { c } end
      decided[c.kind] = true
    end
  end
end

-- ---------------------------------------------------------------- keeping

--- Names the run's folder, for products.json; nil: there is none.
function products.write_into(path) folder = path end

--- Writes products.json on rank 0, if there are more choices than at the last time. Not collective.
function products.keep()
  if timing == "none" or not folder or core.rank() > 0 then return end
  local waiting, n = core.choices_waiting()
  if n - waiting == kept then return end
  kept = n - waiting
  local ok, why = failure.try(core.write_whole, folder .. "/" .. products.FILE,
    json.encode(document(true), { indent = true }) .. "\n")
  if not ok then log.warn("the ways to make products are not kept: %s", failure.text(why)) end
end

--- Returns the choices for a checkpoint, the same on all ranks; nil where nothing is chosen by time.
function products.state() return timing ~= "none" and document(false) or nil end

--- Takes the choices of a checkpoint, if this run times products. Those of another kind of GPU or another library are
-- left, and timed anew, which is said. Raises an error for a state that is none.
function products.load(state)
  if timing == "none" or state == nil then return end
  local why = wrong(state)
  if why then error("products: " .. why, 0) end
  local here = core.choices_about()
  if state.good_for == here then return take(state.choices) end
  if ranks.is_first() then
    log.info("products are timed anew: those of the checkpoint are good for %s, and here is %s", state.good_for, here)
  end
end

return products
