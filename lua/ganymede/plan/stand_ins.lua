--- Rehearses some ranks of a world so that each rank has one that stands for it.
--
--     local found = stand_ins { recipe = "r.lua", ranks = 64, path = function(i) ... end }
--     found.roles[i]       { rank, found (ganymede.job.rehearsal), path (its step file) }
--     found.of[rank + 1]   the place of the role of each rank; found.mesh; found.rehearsed: the number of rehearsals
--
-- Along `pipeline` and `sequence` ranks differ, and every coordinate is rehearsed. Of each other axis some places are
-- rehearsed beside the first: the second, one in the middle, the last; at the first stage and at the last one. If their
-- steps are alike (core.steps_alike: ops, memory, operations between ranks, of messages the distance), the first stands
-- for all; if those but the first are, the second stands for all but the first. If neither, and ranks send along the
-- axis from or to certain places, every place is rehearsed. If they do not, the first, one between and the last are, if
-- the second and the middle one are alike, and else every place. Axes are tried one by one. The rank at the last places
-- of all of them is compared, too. If it differs, the first, one between and the last of each axis are rehearsed, in
-- all combinations, or every place if ranks send along it. What is left as an assumption: that ranks do not differ in
-- another way at places that are not rehearsed.
-- @module ganymede.plan.stand_ins
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local rehearsal = require "ganymede.job.rehearsal"
local representatives = require "ganymede.plan.representatives"

local differing = { pipeline = true, sequence = true }

local Study = {}
Study.__index = Study

-- ---------------------------------------------------------------- rehearsals, some at a time

-- Takes a rehearsal that was made before.
function Study:take(rank)
  local known = self.given.store and self.given.store:take(self.given.mesh, rank)
  if known then self.by_rank[rank], self.taken = known, self.taken + 1 end
  return known ~= nil
end

function Study:start(rank)
  local place = #self.list + 1
  local entry = { rank = rank, path = self.given.path(place) }
  self.list[place], self.by_rank[rank] = entry, entry
  local given = self.given
  entry.finish = rehearsal.start { recipe = given.recipe, ranks = given.ranks, rank = rank, set = given.set,
    seed = given.seed, step_file = entry.path, device = self.device }
end

local function finish(entry, given)
  if not entry.finish then return end
  local found, failed = entry.finish()
  entry.finish, entry.found = nil, found
  if not found then failure(failed.code, "as rank %d: %s", entry.rank, failed.text) end
  if given and given.store then given.store:put(given.mesh, entry.rank, found, entry.path) end
end

--- Rehearses the ranks of a list that have not been yet, as many at a time as there are processors.
function Study:rehearse(ranks)
  local wanted, running = {}, {}
  for _, rank in ipairs(ranks) do
    if not self.by_rank[rank] and not self:take(rank) then
      wanted[#wanted + 1] = rank
      self.by_rank[rank] = { rank = rank }
    end
  end
  failure.protect(function()
    for _, entry in ipairs(running) do pcall(finish, entry) end
  end, function()
    for _, rank in ipairs(wanted) do
      if #running >= core.processors() then finish(table.remove(running, 1), self.given) end
      self:start(rank)
      running[#running + 1] = self.by_rank[rank]
    end
    while #running > 0 do finish(table.remove(running, 1), self.given) end
  end)
end

-- ---------------------------------------------------------------- comparisons

-- Returns the rank at these coordinates (by name; others are those of `at`).
function Study:rank(at, changed)
  local rank = 0
  for _, axis in ipairs(self.mesh) do rank = rank * axis.size + (changed[axis.name] or at[axis.name] or 0) end
  return rank
end

-- Returns the coordinates of the ranks at which axes are compared: the first, and that of the last stage.
function Study:corners()
  local last, differs = {}, false
  for _, axis in ipairs(self.mesh) do
    if differing[axis.name] and axis.size > 1 then last[axis.name], differs = axis.size - 1, true end
  end
  return differs and { {}, last } or { {} }
end

local function samples(axis)
  local out, seen = {}, {}
  for _, at in ipairs { 1, math.floor(axis.size / 2), axis.size - 1 } do
    if at > 0 and at < axis.size and not seen[at] then out[#out + 1], seen[at] = at, true end
  end
  return out
end

function Study:alike(a, b)
  return core.steps_alike(self.by_rank[a].path, self.by_rank[b].path)
end

-- Does each of these places of an axis do what another does, at every corner?
function Study:places_alike(axis, places, as)
  for _, corner in ipairs(self:corners()) do
    for _, at in ipairs(places) do
      if not self:alike(self:rank(corner, { [axis.name] = as }), self:rank(corner, { [axis.name] = at })) then
        return false
      end
    end
  end
  return true
end

function Study:has_places(axis)
  for _, corner in ipairs(self:corners()) do
    if core.step_has_places(self.by_rank[self:rank(corner, {})].path, axis.name) then return true end
  end
  return false
end

-- Returns how an axis whose ranks are not alike is represented: "second", true (every place), nil (first, between,
-- last).
function Study:differs(axis)
  if axis.size > 2 and self:places_alike(axis, samples(axis), 1) then return "second" end
  if axis.size <= 3 or self:has_places(axis) then return true end
  if not self:places_alike(axis, { math.floor(axis.size / 2) }, 1) then return true end
  return nil
end

-- Is the rank at the last places of these axes alike the one that stands for it, at every corner?
function Study:far_alike(kinds)
  local far, stands = {}, {}
  for _, axis in ipairs(self.mesh) do
    local few = ({ first = 0, second = 1 })[kinds[axis.name]]
    if few then far[axis.name], stands[axis.name] = axis.size - 1, few end
  end
  if not next(far) then return true end
  local ranks = {}
  for _, corner in ipairs(self:corners()) do
    ranks[#ranks + 1], ranks[#ranks + 2] = self:rank(corner, far), self:rank(corner, stands)
  end
  self:rehearse(ranks)
  for i = 1, #ranks, 2 do
    if not self:alike(ranks[i], ranks[i + 1]) then return false end
  end
  return true
end

-- Returns { [axis] = true, "first", "second" or nil }, as ganymede.plan.representatives takes it.
function Study:kinds()
  local ranks, kinds = {}, {}
  for _, corner in ipairs(self:corners()) do
    ranks[#ranks + 1] = self:rank(corner, {})
    for _, axis in ipairs(self.mesh) do
      for _, at in ipairs(differing[axis.name] and {} or samples(axis)) do
        ranks[#ranks + 1] = self:rank(corner, { [axis.name] = at })
      end
    end
  end
  self:rehearse(ranks)
  for _, axis in ipairs(self.mesh) do
    if differing[axis.name] then kinds[axis.name] = true
    elseif self:places_alike(axis, samples(axis), 0) then kinds[axis.name] = "first"
    else kinds[axis.name] = self:differs(axis) end
  end
  if self:far_alike(kinds) then return kinds end
  for _, axis in ipairs(self.mesh) do -- every place of short axes, first, between and last of others
    if not differing[axis.name] then kinds[axis.name] = (axis.size <= 3 or self:has_places(axis)) or nil end
  end
  return kinds
end

--- given: recipe, ranks, set, seed, device (of the machine: "gpu" has memory of its own, so what is offloaded goes to
-- its host, and losses are cut into the pieces that a GPU takes), path (a function of a number: where the step file of
-- a rehearsal is to be), store and mesh (ganymede.plan.records: what is in it is not rehearsed again, and the rest is
-- put there; its `path` is the store's).
return function(given)
  local study = setmetatable({ given = given, list = {}, by_rank = {}, taken = 0 }, Study)
  study.device = rehearsal.device_of(given.device)
  study:rehearse { 0 }
  study.mesh = study.by_rank[0].found.mesh
  local kinds = given.store and given.store.kinds or study:kinds()
  if given.store then given.store.kinds = kinds end
  local roles, ranks = representatives.list(study.mesh, kinds), {}
  for i, role in ipairs(roles) do ranks[i] = role.rank end
  study:rehearse(ranks)
  for i, role in ipairs(roles) do roles[i] = study.by_rank[role.rank] end
  return { roles = roles, of = representatives.of(study.mesh, kinds), mesh = study.mesh,
    rehearsed = #study.list + study.taken }
end
