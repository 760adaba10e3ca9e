--- recompute = { memory = "4G" }: asks a rehearsal what runs again in backward (ganymede.plan.regions).
--
--     local setting, said = regions.setting(config.recompute, { recipe = "r.lua", set = { ... }, seed = 3 })
--
-- A process of its own measures and chooses, for rank 0, whose blocks are the largest, and in a pipeline for the first
-- rank of each stage; all ranks take its choice. A rank of a rehearsal asks for its own stage. The trap:
-- what a program gives gm.fit has no file that another process could read. Its engine chooses
-- (ganymede.train.chosen_regions).
-- @module ganymede.train.regions
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local rehearsal = require "ganymede.job.rehearsal"

local regions = {}

local function asked(source, rank)
  local found, failed = rehearsal { recipe = source.recipe, set = source.set, seed = source.seed,
    ranks = core.world(), rank = rank, regions = true }
  if not found then return { code = failed.code, text = failed.text } end
  return found.regions
end

--- given: the setting. source: recipe (its path), set (of the command line), seed; nil in a program -> what `recompute`
-- takes (nil: nothing runs again), and lines about it. Collective.
function regions.setting(given, source)
  if type(given) ~= "table" or given.memory == nil then return given end
  if not source or not source.recipe then return given end -- ganymede.train.chosen_regions does it
  local found
  -- A rank of a rehearsal hears nobody, so each asks.
  if core.world() > 1 and core.comm_transport() ~= "meta" then
    found = json.decode(ranks.from_first(function() return json.encode(asked(source)) end), "regions")
  else
    found = asked(source, core.world() > 1 and core.rank() or nil)
  end
  if found.text then ranks.fail(found.code, "%s", found.text) end
  return found.setting or nil, found.said
end

return regions
