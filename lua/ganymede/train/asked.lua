--- What a rehearsal of the recipe decides for a run: in a process of its own, for all ranks.
--
--     local found = asked("regions", { recipe = "r.lua", set = { ... }, seed = 3 })    -- of `check --regions`
--
-- Rank 0 asks, and all ranks take its answer. A rank of a rehearsal hears nobody, so each asks for itself. Collective.
-- A question that fails ends the run on every rank with its status and its words.
-- @module ganymede.train.asked
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local rehearsal = require "ganymede.job.rehearsal"

local function ask(question, source, rank)
  local found, failed = rehearsal { recipe = source.recipe, set = source.set, seed = source.seed,
    ranks = core.world(), rank = rank, device = core.device().apart and "cuda" or nil, [question] = true }
  if not found then return { code = failed.code, text = failed.text } end
  return found[question]
end

--- question: "regions" or "placement". source: recipe (its path), set (of the command line), seed.
return function(question, source)
  local found
  if core.world() > 1 and core.comm_transport() ~= "meta" then
    found = json.decode(ranks.from_first(function() return json.encode(ask(question, source)) end), question)
  else
    found = ask(question, source, core.world() > 1 and core.rank() or nil)
  end
  if found.text then ranks.fail(found.code, "%s", found.text) end
  return found
end
