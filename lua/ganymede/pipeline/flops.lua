--- The floating point operations of each section of a recipe's model, which parallel.pipeline.split = "flops" balances.
--
--     local weights = flops.weights { recipe = "r.lua", set = { ... }, seed = 3 }     -- a list, a number for each
-- section
--
-- A process of its own counts them with shapes alone (check --sections): the forward pass of one micro-batch of the
-- training data through the whole model, on one rank, whatever the ranks of this job are. So `run` and `check` of a
-- recipe, and all its ranks, cut the model at the same places. The trap: settings that exist only in memory (gm.fit in
-- a program) have no file that another process could read; give the number of sections of each part there.
-- @module ganymede.pipeline.flops
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local rehearsal = require "ganymede.job.rehearsal"

local flops = {}

local function rehearsed(source)
  local sets = { unpack(source.set or {}) }
  sets[#sets + 1] = "parallel={}"
  local found, failed = rehearsal { recipe = source.recipe, set = sets, seed = source.seed, sections = true }
  if not found then failure(failed.code, "parallel.pipeline.split = \"flops\": %s", failed.text) end
  local weights = {}
  for i, section in ipairs(found.sections) do weights[i] = math.max(section.flops, 1) end
  return weights
end

--- Returns the list of operations, one number for each section. source: recipe (its path), set (of the command line),
-- seed; nil in a program. Collective.
function flops.weights(source)
  if not source or not source.recipe then
    failure(2, "parallel.pipeline.split: \"flops\" needs a recipe that returns a table; in code use \"uniform\", "
      .. "\"parameters\", or a list with the number of sections of each part, such as { 4, 3 }")
  end
  -- A rank of a rehearsal receives nothing from others, so it counts by itself.
  if core.world() > 1 and core.comm_transport() ~= "meta" then
    local text = ranks.from_first(function() return json.encode(rehearsed(source)) end)
    return json.decode(text, "flops of sections")
  end
  return rehearsed(source)
end

return flops
