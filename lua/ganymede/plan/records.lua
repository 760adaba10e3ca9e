--- Records of ranks that settings have in common which differ in the order of the axes alone: the ranks at the same
-- coordinates do the same.
--
--     local store = records.new()
--     store:put(mesh, rank, found, path)              -- a rehearsal; the file is the store's from now on
--     local entry = store:take(mesh, rank)            -- { rank, found, path } of the rank of another mesh; nil
--     store.kinds, store.count                        -- of ganymede.plan.stand_ins, once known; how many records
--     store:forget_copies(); store:close()
--
-- A record names its rank, its mesh and groups of axes, so for another order it is copied with other names. mesh: a
-- list of { name, size }. The trap: places in groups of several axes are those of the mesh that was rehearsed; only
-- roots of such groups other than the first rank would tell, and the runtime has none.
-- @module ganymede.plan.records
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local files = require "ganymede.base.machine"

local Store = {}
Store.__index = Store

-- The coordinates of a rank, by the names of the axes.
local function place_of(mesh, rank)
  local words = {}
  for i = #mesh, 1, -1 do
    words[#words + 1] = ("%s %d"):format(mesh[i].name, rank % mesh[i].size)
    rank = math.floor(rank / mesh[i].size)
  end
  table.sort(words)
  return table.concat(words, " ")
end

local function names_of(mesh)
  local names = {}
  for i, axis in ipairs(mesh) do names[i] = axis.name end
  return table.concat(names, " ")
end

local function copied(found, mesh, rank)
  local out, stride = {}, 1
  for key, value in pairs(found) do out[key] = value end
  out.mesh = {}
  for i = #mesh, 1, -1 do
    out.mesh[i] = { name = mesh[i].name, size = mesh[i].size, coordinate = math.floor(rank / stride) % mesh[i].size }
    stride = stride * mesh[i].size
  end
  return out
end

--- Returns where a new record may be written; the file belongs to the store.
function Store:new_path()
  local path = os.tmpname()
  self.files[path] = true
  return path
end

--- Keeps a rehearsal of a rank: of `found` what a simulation asks for. path: of new_path.
function Store:put(mesh, rank, found, path)
  local brief = { totals = found.totals, mesh = found.mesh, settings = found.settings, dtype = found.dtype }
  self.by[place_of(mesh, rank)] = { rank = rank, names = names_of(mesh), found = brief, path = path }
  self.count = self.count + 1
end

-- A group of several axes is named in the order of the mesh.
local function renamed(text, mesh)
  local place, names = {}, {}
  for i, axis in ipairs(mesh) do place[axis.name] = i end
  for name in text:gmatch "[^.]+" do
    if not place[name] then return text end
    names[#names + 1] = name
  end
  table.sort(names, function(a, b) return place[a] < place[b] end)
  return table.concat(names, ".")
end

-- Writes the record of a rank as that of another mesh.
local function write(from, to, mesh, rank)
  local text = files.read(from) or failure(1, "a record of a search is gone: %s", from)
  local head, rest = text:match "^(.-\n)(live .*)$"
  rest = rest:gsub("\nt ([%w_.]+)", function(name) return "\nt " .. renamed(name, mesh) end)
  local lines = { (head:match "^[^\n]*"), "rank " .. rank }
  for _, axis in ipairs(mesh) do lines[#lines + 1] = ("axis %s %d"):format(axis.name, axis.size) end
  core.write_whole(to, table.concat(lines, "\n") .. "\n" .. rest)
end

--- Returns the rehearsal of the rank of this mesh, as { rank, found, path }; nil: it was not rehearsed.
function Store:take(mesh, rank)
  local entry = self.by[place_of(mesh, rank)]
  if not entry then return nil end
  if entry.names == names_of(mesh) then return { rank = rank, found = entry.found, path = entry.path } end
  local path = os.tmpname()
  self.copies[path] = true
  write(entry.path, path, mesh, rank)
  return { rank = rank, found = copied(entry.found, mesh, rank), path = path }
end

--- Removes what `take` has copied.
function Store:forget_copies()
  for path in pairs(self.copies) do os.remove(path) end
  self.copies = {}
end

--- Removes all files.
function Store:close()
  self:forget_copies()
  for path in pairs(self.files) do os.remove(path) end
  self.files, self.by, self.count, self.kinds = {}, {}, 0, nil
end

return { new = function() return setmetatable({ files = {}, copies = {}, by = {}, count = 0 }, Store) end }
