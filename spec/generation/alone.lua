--- What one rank alone writes, for specs of generation on several: every rank is that one for a while.
--
--     local lines = alone.lines(make, opt)          -- of gm.generate on the ranks as they are
--     local want = alone.want(mesh, make, opt)      -- the same on one rank
--
-- make(): a new model; opt: of gm.generate. A line has the tokens of a prompt, and why it ended.
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local tables = require "spec.support.tables"

local alone = {}

function alone.lines(make, opt)
  core.set_seed(3)
  local lines = {}
  for i, row in ipairs(gm.generate(make(), opt)) do lines[i] = table.concat(row.tokens, " ") .. " " .. row.ended end
  return lines
end

--- mesh: what the ranks are afterwards, with a name.
function alone.want(mesh, make, opt)
  against.install { data = core.world() }
  local lines = alone.lines(make, opt)
  against.install(tables.without(mesh, "name"))
  return lines
end

return alone
