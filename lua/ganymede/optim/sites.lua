--- By which random words are drawn where a parameter or its moments are rounded by chance (host/optim/chance.c): its
-- name, which is the same on all ranks. The trap: a PipelineSharedModuleWrapper may share a parameter under the names
-- of its stages, and its copies must stay equal.
-- @module ganymede.optim.sites
local sites = {}

--- Gives each of a model's parameters, a list of { name, tensor }, that stages share so the field `site` -> the list.
function sites.add(model, list)
  local shared = {}
  for _, p in ipairs(model:declared()) do
    if p.entry.shared_at and not p.entry.alias and p.entry.tensor then
      shared[p.entry.tensor] = ("shared %d.%d"):format(unpack(p.entry.shared_at))
    end
  end
  for _, p in ipairs(list) do p.site = shared[p.tensor] end
  return list
end

return sites
