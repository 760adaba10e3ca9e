--- Cells: what the passes of a piece of a batch take, from one rehearsal for all settings that share them.
--
--     local list = cells.open { recipe = , set = , seed = , machine = , facts = }
--     local cell = list:get(family)                            -- false: it cannot be rehearsed
--     local sections = cells.sections(cell, mesh, machine)     -- as ganymede.plan.search.passes takes them
--     local bytes = cell.saved[section]                        -- what it holds for backward
--     list:known_without(family)                               -- the cell without recomputation, or nil
--     list:expect(family); list:close()                        -- begins a rehearsal that will be asked for
--
-- The ops and operations of a pass of a section are a function of how its layers are cut (tensor, sequence, experts),
-- of the samples of a piece on a rank, and of what runs again. Neither the number of data ranks nor that of stages nor
-- the number of pieces changes them. So one piece is rehearsed as the first rank of a world without data ranks and
-- stages. Where the links of a setting make its operations slow or fast, the mesh says. Sums of gradients, updates and
-- messages between stages are not in a cell.
-- A model whose blocks are equal is rehearsed with two of them (facts.short), and the others count as the second.
-- The trap: the first piece of a batch writes gradients to which later ones add, so a cell is a lower bound.
-- @module ganymede.plan.search.cells
local bounds = require "ganymede.plan.search.bounds"
local core = require "ganymede.core"
local parallel = require "ganymede.job.parallel"
local rates = require "ganymede.plan.search.rates"
local rehearsal = require "ganymede.job.rehearsal"
local setting = require "ganymede.plan.search.setting"

local cells = {}

-- ---------------------------------------------------------------- from a record

-- Returns a function: path of a module -> the section that it is in; nil: none.
local function section_finder(sections)
  local known = {}
  return function(path)
    if known[path] == nil then
      known[path] = false
      for i, section in ipairs(sections) do
        for name in section.name:gmatch "[^, ]+" do
          if path == name or path:sub(1, #name + 1) == name .. "." then known[path] = known[path] or i end
        end
      end
    end
    return known[path] or nil
  end
end

local copies = { data = true, shard = true, expert = true }

-- The axes of an operation of layers among ranks with the same samples; nil: it is another, or a message.
local function axes_of(e)
  if not e.group or e.group == "" or e.group:find("@", 1, true) or e.name == "send" or e.name == "receive" then
    return nil
  end
  local names = parallel.axis_names(e.group)
  for _, name in ipairs(names) do
    if copies[name] then return nil end
  end
  return names
end

-- Adds an op to the events of passes, or to the last of them if that is ops of the same section and kind: a layer of
-- many experts has many products.
local function add_op(out, seconds, part, at, kind)
  local last = out[#out]
  if last and last.seconds and last.part == part and last.at == at and last.kind == kind then
    last.seconds = last.seconds + seconds
  else
    out[#out + 1] = { seconds = seconds, part = part, at = at, kind = kind }
  end
end

-- The events of the passes: { seconds, part, at, kind } of ops, at: a section; { begins, axes, name, bytes, at, kind };
-- { waits }. Backward begins with the first op whose name ends with _grad. A loss may make gradients in forward, so of
-- the ops of the last section before that a third counts.
-- blocks: whether whole blocks run again; such a section goes back as a whole, in the first half (docs/memory.md).
local function condensed(events, find, n_sections, m, blocks)
  local out, backward, axes, region = {}, false, {}, {}
  for _, e in ipairs(blocks and events or {}) do
    local at = e.again and e.path and find(e.path)
    if at then region[at] = true end
  end
  for i = 1, rates.last_product(events) do
    local e = events[i]
    local at = e.path and find(e.path)
    if e.kind == "op" then
      backward = backward or e.name:find "_grad$" ~= nil
      local kind = not backward and "forward" or e.name:find "weight_grad$" and not region[at] and "weight" or "input"
      local part = at == n_sections and not backward and 1 / 3 or 1
      add_op(out, rates.op(m, e), part, at, kind)
    elseif e.kind == "begin" then
      axes[e.id] = axes_of(e)
      out[#out + 1] = axes[e.id] and { begins = e.id, axes = axes[e.id], name = e.name, bytes = e.bytes, at = at,
        kind = backward and "input" or "forward" } or nil
    elseif e.kind == "wait" and axes[e.id] then
      out[#out + 1] = { waits = e.id }
    end
  end
  return out
end

-- The bytes that each section holds for backward, of the rows of modules of a rehearsal.
local function saved_of(rows, find, n_sections)
  local out = {}
  for i = 1, n_sections do out[i] = 0 end
  for _, row in ipairs(rows) do
    local at = row.path ~= "" and find(row.path)
    if at then out[at] = out[at] + row.saved_bytes end
  end
  return out
end

-- The cell of a rehearsal. sections: those of the model that was rehearsed; map: of each section of the whole model,
-- the one that it is like.
local function cell_of(found, step, sections, map, m, recompute)
  local find = section_finder(sections)
  local saved = saved_of(found.modules, find, #sections)
  local events = condensed(step.events, find, #sections, m, recompute == "block")
  local out = { events = events, sections = #sections, map = map, saved = {},
    by_mesh = {} }
  for i, at in ipairs(map) do out.saved[i] = saved[at] end
  return out
end

-- ---------------------------------------------------------------- on a mesh

-- What makes operations of layers slow or fast on a mesh: where their axes lie.
local function strides_of(mesh)
  local words, stride = {}, 1
  for i = #mesh, 1, -1 do
    local axis = mesh[i]
    if not copies[axis.name] and axis.name ~= "pipeline" then
      words[#words + 1] = ("%s %d %d"):format(axis.name, axis.size, stride)
    end
    stride = stride * axis.size
  end
  return table.concat(words, " ")
end

local function walk(cell, mesh, m)
  local out, clock, begun = { forward = {}, input = {}, weight = {} }, 0, {}
  for i = 1, cell.sections do out.forward[i], out.input[i], out.weight[i] = 0, 0, 0 end
  local function add(e, seconds)
    clock = clock + seconds
    if e.at then out[e.kind][e.at] = out[e.kind][e.at] + seconds * (e.part or 1) end
  end
  for _, e in ipairs(cell.events) do
    if e.begins then
      begun[e.begins] = { event = e, clock = clock } -- it moves while the rank still pays for its begin
      add(e, m.begin)
    elseif e.waits then
      local b = begun[e.waits]
      begun[e.waits] = nil
      if b then
        local seconds = rates.least(m, b.event.name, bounds.members(mesh, b.event.axes), b.event.bytes)
        add(b.event, m.host_moves and seconds or math.max(0, b.clock + seconds - clock))
      end
    else
      add(e, e.seconds)
    end
  end
  return out
end

--- Returns the seconds of the passes of each section for a piece on a rank of a mesh, at least, and a text that is
-- equal for meshes on which they are.
function cells.sections(cell, mesh, m)
  local key = strides_of(mesh)
  if not cell.by_mesh[key] then
    local own, out = walk(cell, mesh, m), { forward = {}, input = {}, weight = {} }
    for kind, list in pairs(out) do
      for i, at in ipairs(cell.map) do list[i] = own[kind][at] end
    end
    cell.by_mesh[key] = out
  end
  return cell.by_mesh[key], key
end

-- ---------------------------------------------------------------- rehearsals

local Cells = {}
Cells.__index = Cells

-- The samples of a piece on a rank. Where they are uneven, ranks have equally many all the same, some of them padding.
local function samples_of(s, facts)
  return math.ceil(facts.samples / s.accumulation / s.micro / setting.batch_ways(s))
end

local function key_of(s, facts, recompute)
  local t, q = s.tensor, s.sequence
  return table.concat({ s.expert, t.size, t.mode or "", t.depth or 0, tostring(t.sequence), q.size, q.mode,
    samples_of(s, facts), recompute or s.recompute }, " ")
end

-- The setting that is rehearsed: one piece, without data ranks and stages.
local function alone(s, facts)
  local out = { data = s.expert, expert = s.expert, tensor = s.tensor, sequence = s.sequence, recompute = s.recompute,
    pipeline = { size = 1, schedule = "none", chunks = 1, split = "parameters" }, micro = 1, accumulation = 1,
    zero = 0 }
  local ranks = s.expert * s.tensor.size * s.sequence.size
  return out, { samples = samples_of(s, facts) * setting.batch_ways(out), own = facts.own,
    more = facts.more }, ranks
end

function Cells:begin(s)
  local facts, given = self.facts, self.given
  local own, of, ranks = alone(s, facts)
  local set = { unpack(given.set or {}) }
  for _, text in ipairs(setting.sets(own, of)) do set[#set + 1] = text end
  for _, text in ipairs(facts.short and facts.short.sets or {}) do set[#set + 1] = text end
  local path = os.tmpname()
  self.started = self.started + 1
  local finish = rehearsal.start { recipe = given.recipe, ranks = ranks, rank = 0, set = set, seed = given.seed,
    step_file = path, device = rehearsal.device_of(self.machine.device) }
  return { path = path, recompute = s.recompute, finish = finish }
end

local function identity(n)
  local map = {}
  for i = 1, n do map[i] = i end
  return map
end

-- Waits for a rehearsal -> the cell, or false.
function Cells:finish(entry)
  local found, failed = entry.finish()
  local facts = self.facts
  local step = found and core.step_read(entry.path)
  os.remove(entry.path)
  if not found and (failed.code == 130 or failed.code == 143) then error(failed.text, 0) end
  if not step then return false end
  local short = facts.short
  if short then return cell_of(found, step, short.sections, short.map, self.machine, entry.recompute) end
  return cell_of(found, step, facts.section_list, identity(#facts.section_list), self.machine, entry.recompute)
end

--- Begins the rehearsal of a cell that will be asked for, beside others. At most as many run as there are processors.
function Cells:expect(s)
  local key = self.facts.section_list and key_of(s, self.facts)
  if not key or self.known[key] ~= nil or self.running[key] or self.n_running >= core.processors() then return end
  self.running[key], self.n_running = self:begin(s), self.n_running + 1
end

--- Returns the cell of the same passes without recomputation, if it is known.
function Cells:known_without(s) return self.known[key_of(s, self.facts, "none")] or nil end

--- Returns the cell of a setting or a family; false: there is none, because the model says no sections or its rehearsal
-- is refused.
function Cells:get(s)
  if not self.facts.section_list then return false end
  local key = key_of(s, self.facts)
  if self.known[key] == nil then
    local entry = self.running[key] or self:begin(s)
    if self.running[key] then self.running[key], self.n_running = nil, self.n_running - 1 end
    self.known[key], self.asked = self:finish(entry), self.asked + 1
  end
  return self.known[key]
end

--- Waits for what still runs.
function Cells:close()
  for _, entry in pairs(self.running) do
    pcall(entry.finish)
    os.remove(entry.path)
  end
  self.running = {}
end

--- Opens the cells of a search. given: recipe, set, seed; machine: of ganymede.plan.machine.
function cells.open(given, facts, machine)
  return setmetatable({ given = given, facts = facts, machine = machine, known = {}, running = {}, n_running = 0,
    started = 0, asked = 0 }, Cells)
end

return cells
