--- Layer-wise rates (Clark et al. 2020, ELECTRA, arXiv:2003.10555; Bao et al. 2022, BEiT): the sections of a model have
-- rates that fall from its head to its first layer, each by the same factor. Of n sections (the embeddings, each block,
-- norm and head), section i has decay^(n - i), as in BEiT.
-- @module ganymede.optim.layer_decay
local sections = require "ganymede.nn.sections"

local layer_decay = {}

-- The sections of a model; refuses what has none.
local function sections_of(owner, given)
  if type(given) ~= "table" or not rawget(given, "_module") then
    error(owner .. ": layer_decay needs a model, whose sections it counts; got a list of parameters", 0)
  end
  local list, why = sections.of(given)
  if not list then error(("%s: layer_decay counts the sections of the model: %s"):format(owner, why), 0) end
  return list
end

--- Factors of the rate: { [name of a parameter] = number }. A tied parameter belongs to the first section that reads
-- it.
function layer_decay.factors(owner, given, decay)
  local list, factor = sections_of(owner, given), {}
  for i, section in ipairs(list) do
    for _, m in ipairs(section.modules) do
      for _, p in ipairs(m:declared()) do
        local path = m:path()
        local name = p.entry.alias or (path == "" and p.name or path .. "." .. p.name)
        factor[name] = decay ^ (#list - i)
      end
    end
  end
  return factor
end

return layer_decay
