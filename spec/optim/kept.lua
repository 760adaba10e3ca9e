--- What an optimizer keeps, for specs.
local kept = {}

--- Its states by kind and name of the parameter: { exp_avg = { [name] = tensor }, ... }.
function kept.states(optimizer)
  local out = {}
  for _, entry in ipairs(optimizer:state()) do
    local kind, name = entry.name:match "^([^/]+)/(.+)$"
    out[kind] = out[kind] or {}
    out[kind][name] = entry.tensor
  end
  return out
end

--- The names of the parameters that have a state of a kind, in order.
function kept.names(set)
  local list = {}
  for name in pairs(set or {}) do list[#list + 1] = name end
  table.sort(list)
  return list
end

return kept
