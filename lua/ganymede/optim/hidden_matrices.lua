--- Which parameters are matrices of hidden layers: Muon and GaLore treat these in their own way, and all others as
-- AdamW does.
--
-- A hidden matrix is a parameter of two dimensions, or each expert's matrix in a stack of them. Tables, heads, the
-- embedding of patches, biases and norms are none: a layer's class says so in its field `matrices` (names of its
-- matrices; nil: what has two dimensions). The options `include` and `exclude` decide otherwise by name. A list of
-- tensors has no classes: there what has two dimensions is a matrix.
-- @module ganymede.optim.hidden_matrices
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"

local hidden = {}

--- Returns the options include and exclude. what: what becomes of a matrix, for the text of the first.
function hidden.options(what)
  return {
    include = { type = "list", default = {},
      doc = ("a list of Lua patterns over names of parameters: what they match is %s, whatever its layer"):format(
        what) },
    exclude = { type = "list", default = {},
      doc = "a list of Lua patterns over names of parameters: what they match is updated by AdamW" },
  }
end

--- Returns where each parameter of what was given to an optimizer was declared: a table by tensors, of what
-- Module:declared() has.
function hidden.declarations(given, into)
  into = into or {}
  if type(given) ~= "table" then return into end
  if type(rawget(given, "_module")) == "table" then
    for _, p in ipairs(given:declared()) do
      if p.entry.tensor and not p.tied then into[p.entry.tensor] = p end
    end
    return into
  end
  for _, group in ipairs(given) do
    if type(group) == "table" and not core.is_tensor(group) then hidden.declarations(group.params, into) end
  end
  return into
end

local function matches(patterns, name)
  for i, pattern in ipairs(patterns) do
    if name:find(pattern) then return i end
  end
end

-- Is it a matrix by the rule of its class?
local function by_class(item, declared)
  local matrices = declared and declared.module.matrices
  if not matrices then return item.tensor:dim() == 2 end
  return matrices[declared.entry.name] == true
end

local function check_patterns(owner, key, list)
  for i, pattern in ipairs(list) do
    if type(pattern) ~= "string" then
      error(("%s: %s[%d] must be a Lua pattern; got %s"):format(owner, key, i, options.literal(pattern)), 0)
    end
  end
end

-- Refuses patterns of include or exclude that no parameter has, on any stage. used: 1 or 0 for each pattern.
local function refuse_idle(owner, key, patterns, used)
  local _, stages = ranks.stage()
  if #patterns == 0 or (stages > 1 and not core.device().has_data) then return end
  if stages > 1 then used = ranks.sum(used) end
  for i, pattern in ipairs(patterns) do
    if used[i] == 0 then error(("%s: %s[%d] = %q matches no parameter"):format(owner, key, i, pattern), 0) end
  end
end

local function check_dimensions(owner, item)
  local n = item.tensor:dim()
  if n == 2 or n == 3 then return end
  error(("%s: include takes '%s', which has %d dimension%s; a matrix has two, a stack of matrices three"):format(owner,
    item.name, n, n == 1 and "" or "s"), 0)
end

-- The pattern that a name matches -> its place or nil; it is marked as used.
local function find(patterns, used, name)
  local place = matches(patterns, name)
  if place then used[place] = 1 end
  return place
end

local function zeros(list)
  local out = {}
  for i = 1, #list do out[i] = 0 end
  return out
end

--- Returns for each item of an optimizer whether it is a hidden matrix: a list of booleans. owner: the name of the
-- optimizer; declared: what hidden.declarations gives.
-- @error a pattern is no text or matches nothing; both lists match a parameter; include takes what is no matrix
function hidden.choose(owner, opt, items, declared)
  check_patterns(owner, "include", opt.include)
  check_patterns(owner, "exclude", opt.exclude)
  local out, included, excluded = {}, zeros(opt.include), zeros(opt.exclude)
  for i, item in ipairs(items) do
    local wanted, unwanted = find(opt.include, included, item.name), find(opt.exclude, excluded, item.name)
    if wanted and unwanted then error(("%s: include and exclude both match '%s'"):format(owner, item.name), 0) end
    if wanted then check_dimensions(owner, item) end
    out[i] = wanted ~= nil or (not unwanted and by_class(item, declared[item.tensor]))
  end
  refuse_idle(owner, "include", opt.include, included)
  refuse_idle(owner, "exclude", opt.exclude, excluded)
  return out
end

return hidden
