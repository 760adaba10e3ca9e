--- Cells: what the passes of a piece of a batch take, from one rehearsal for all settings that share them.
--
--     local list = cells.open { recipe = , set = , seed = , machine = , facts = }
--     local cell = list:get(family)                            -- false: it cannot be rehearsed
--     local sections = cells.sections(cell, mesh, machine)     -- as ganymede.plan.search.passes takes them
--     local bytes = cell.saved[section]                        -- what it holds for backward
--     local sums = cells.sums(cell, mesh, machine)             -- of all sections together
--     local anchor, part = list:anchor(bunch, most)            -- a cell that many bunches have in common, or nil
--     list.anchors                                             -- the numbers for `most`, one after the other
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
local of_rows = { exchange = true, all_to_all_rows = true } -- of tokens that travel to their experts and back

-- The axes of an operation of layers: among ranks with the same samples, or among those that share experts; nil: it is
-- another, or a message.
local function axes_of(e)
  if not e.group or e.group == "" or e.group:find("@", 1, true) or e.name == "send" or e.name == "receive" then
    return nil
  end
  local names = parallel.axis_names(e.group)
  for _, name in ipairs(names) do
    if copies[name] and not (name == "expert" and of_rows[e.name]) then return nil end
  end
  return names
end

-- Adds an op to the events of passes, or to the last of them if that is ops of the same section and kind.
local function add_op(out, seconds, part, at, kind)
  local last = out[#out]
  if last and last.seconds and last.part == part and last.at == at and last.kind == kind then
    last.seconds, last.n = last.seconds + seconds, last.n + 1
  else
    out[#out + 1] = { seconds = seconds, n = 1, part = part, at = at, kind = kind }
  end
end

-- The sections whose blocks run again as a whole.
local function regions_of(events, find)
  local region = {}
  for _, e in ipairs(events) do
    local at = e.again and e.path and find(e.path)
    if at then region[at] = true end
  end
  return region
end

-- The events of the passes of a step (core.step_read): { seconds, n, part, at, kind } of n ops, at: a section, 0:
-- before the first one, nil: unknown; { begins, axes, name, bytes, at, kind }; { waits }. What follows on the last
-- section in forward is the loss, which belongs to it. Backward begins with the first op whose name ends with _grad. A
-- loss may make gradients before that, in forward or behind it, so of its products a third counts as forward (`part`),
-- and all else as the latest pass of the same piece.
-- blocks: whether whole blocks run again; such a section goes back as a whole, in the first half (docs/memory.md).
local function condensed(step, find, n_sections, m, blocks)
  local events, out, backward, axes, here = step.events, {}, false, {}, 0
  local region = blocks and regions_of(events, find) or {}
  for i = 1, step.last_of_passes do
    local e = events[i]
    local at = e.path and find(e.path)
    here = at or here
    if e.kind == "op" then
      backward = backward or e.name:find "_grad$" ~= nil
      if not at and not backward and (here == 0 or here == n_sections) then at = here end
      local kind = not backward and "forward" or e.name:find "weight_grad$" and not region[at] and "weight" or "input"
      local part = at == n_sections and not backward and (e.products > 0 and 1 / 3 or 0) or 1
      add_op(out, rates.op(m, e), part, at, kind)
    elseif e.kind == "begin" then
      axes[e.id] = axes_of(e)
      if not at and not backward and here == n_sections then at = here end
      out[#out + 1] = axes[e.id] and { begins = e.id, axes = axes[e.id], name = e.name, bytes = e.bytes, at = at,
        kind = backward and "input" or "forward", part = at == n_sections and not backward and 0 or 1 } or nil
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
  local events = condensed(step, find, #sections, m, recompute == "block")
  local out = { events = events, others = {}, sections = #sections, map = map, saved = {}, by_place = {}, like = {} }
  for i, at in ipairs(map) do out.saved[i] = saved[at] end
  return out
end

-- ---------------------------------------------------------------- on a mesh

local places = setmetatable({}, { __mode = "k" }) -- mesh -> what strides_of says. Many settings have one mesh

local function strides_of(mesh)
  local words, stride = {}, 1
  for i = #mesh, 1, -1 do
    local axis = mesh[i]
    if axis.name == "expert" or not copies[axis.name] and axis.name ~= "pipeline" then
      words[#words + 1] = ("%s %d %d"):format(axis.name, axis.size, stride)
    end
    stride = stride * axis.size
  end
  return table.concat(words, " ")
end

--- Returns where the axes of layers lie on a mesh, as a text: for equal ones all cells say the same.
function cells.place(mesh)
  places[mesh] = places[mesh] or strides_of(mesh)
  return places[mesh]
end

local function zeros(n)
  local list = {}
  for i = 0, n do list[i] = 0 end
  return list
end

-- Seconds by section; [0]: of what stands before the first one.
local function nothing(n)
  return { forward = zeros(n), input = zeros(n), weight = zeros(n), work = zeros(n) }
end

local function add_to(lists, e, seconds)
  local part = e.part or 1
  lists[e.kind][e.at] = lists[e.kind][e.at] + seconds * part
  if part < 1 then lists.weight[e.at] = lists.weight[e.at] + seconds * (1 - part) end
end

-- One of the lists of events of a cell -> seconds, and those of the host that launches it.
local function walk(cell, events, mesh, m)
  local out, host, clock, begun = nothing(cell.sections), nothing(cell.sections), 0, {}
  local op, between = rates.launches(m)
  local function add(e, seconds, launches, works)
    clock = clock + seconds
    if not e.at then return end
    add_to(out, e, seconds)
    add_to(host, e, launches)
    out.work[e.at] = out.work[e.at] + (works and seconds or 0)
  end
  for _, e in ipairs(events) do
    if e.begins then
      begun[e.begins] = { event = e, clock = clock } -- it moves while the rank still pays for its begin
      add(e, m.begin, between, false)
    elseif e.waits then
      local b = begun[e.waits]
      begun[e.waits] = nil
      if b then
        local seconds = rates.least(m, b.event.name, bounds.members(mesh, b.event.axes), b.event.bytes)
        add(b.event, m.host_moves and seconds or math.max(0, b.clock + seconds - clock), 0, m.host_moves)
      end
    else
      add(e, e.seconds, (e.n or 1) * op, true)
    end
  end
  return out, host
end

-- Makes the work of the first rank that of a mean one of those that were rehearsed.
local function add_works(cell, work, mesh, m)
  local others = cell.others or {}
  for _, events in ipairs(others) do
    local more = walk(cell, events, mesh, m).work
    for i = 0, #work do work[i] = work[i] + more[i] end
  end
  for i = 0, #work do work[i] = work[i] / (1 + #others) end
end

-- What the sections of a whole model take, by that of those that were rehearsed.
local function mapped(cell, own)
  local out = { forward = {}, input = {}, weight = {}, work = {}, before = own.forward[0] }
  for kind, list in pairs(own) do
    for i, at in ipairs(cell.map) do out[kind][i] = list[at] end
  end
  return out
end

-- The lists of axes along which operations of a cell go, each once.
local function groups_of(cell)
  if cell.groups then return cell.groups end
  local seen, list = {}, {}
  local function add(events)
    for _, e in ipairs(events) do
      local key = e.axes and table.concat(e.axes, ".")
      if key and not seen[key] then seen[key], list[#list + 1] = true, e.axes end
    end
  end
  add(cell.events)
  for _, events in ipairs(cell.others or {}) do add(events) end
  cell.groups = list
  return list
end

-- What is kept of a cell for meshes on which its operations take as long as on this one: { key, sums, sections }.
local function at_place(cell, mesh, m)
  local place, words = cells.place(mesh), {}
  if cell.by_place[place] then return cell.by_place[place] end
  for i, axes in ipairs(groups_of(cell)) do words[i] = rates.place(m, bounds.members(mesh, axes)) end
  local key = table.concat(words, ", ")
  cell.like[key] = cell.like[key] or { key = key }
  cell.by_place[place] = cell.like[key]
  return cell.like[key]
end

--- Returns a text that is equal for meshes on which the operations of a cell take equally long.
function cells.key(cell, mesh, m) return at_place(cell, mesh, m).key end

-- The seconds of all sections of a whole model together.
local function total_of(cell, own)
  local sum = 0
  for _, at in ipairs(cell.map) do sum = sum + own.forward[at] + own.input[at] + own.weight[at] end
  return sum
end

-- What a rank of a mesh does for a piece, and its host; nil: the host does not bind.
local function walked(cell, mesh, m)
  local own, host = walk(cell, cell.events, mesh, m)
  add_works(cell, own.work, mesh, m)
  return own, m.host_launch and host or nil
end

--- Returns the seconds of all sections together for a piece on a rank of a mesh, at least: { before, passes, work = as
-- cells.sections says, but of all sections in one, host_before, host }; the last two are 0 where no host binds.
function cells.sums(cell, mesh, m)
  local known = at_place(cell, mesh, m)
  if not known.sums then
    local own, host = walked(cell, mesh, m)
    local work = { [0] = own.work[0], 0 }
    for _, at in ipairs(cell.map) do work[1] = work[1] + own.work[at] end
    known.sums = { before = own.forward[0], passes = total_of(cell, own), work = work,
      host_before = host and host.forward[0] or 0, host = host and total_of(cell, host) or 0 }
  end
  return known.sums
end

--- Returns the seconds of the passes of each section for a piece on a rank of a mesh, at least, and the text of
-- cells.key. `work`: what of them the rank's cores do, where the host moves what is sent;
-- [0]: before the first one. `before`: what each rank does for a piece before its first pass. `host`: the same of the
-- host that launches all this, with `between`, the seconds of a launch of a message; nil: it does not bind. `latency`:
-- of a message between stages.
function cells.sections(cell, mesh, m)
  local known = at_place(cell, mesh, m)
  if not known.sections then
    local own, host = walked(cell, mesh, m)
    local out = mapped(cell, own)
    out.work[0] = own.work[0]
    out.host = host and mapped(cell, host)
    if out.host then out.host.between = m.host_launch.between end
    out.latency = rates.least_latency(m)
    known.sections = out
  end
  return known.sections, known.key
end

-- ---------------------------------------------------------------- rehearsals

local Cells = {}
Cells.__index = Cells

-- The samples of a piece on a rank. Where they are uneven, ranks have equally many all the same, some of them padding.
-- s.of_piece: those of an anchor.
local function samples_of(s, facts)
  return s.of_piece or math.ceil(facts.samples / s.accumulation / s.micro / setting.batch_ways(s))
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

-- The ranks that are rehearsed. Where ranks share cores, what all of them work counts. The last rank of a grid adds no
-- bias and works least, and causal rows give each place of a ring other work.
local function ranks_of(s, m)
  if not rates.shares_cores(m) then return { 0 } end
  local list, last = {}, s.tensor.size > 1 and s.tensor.mode ~= "1d" and s.tensor.size - 1 or 0
  for place = 0, s.sequence.mode == "ring" and s.sequence.size - 1 or 0 do
    list[place + 1] = place * s.tensor.size + last
  end
  return list
end

function Cells:begin(s)
  local facts, given = self.facts, self.given
  local own, of, ranks = alone(s, facts)
  local set, running = { unpack(given.set or {}) }, {}
  for _, text in ipairs(setting.sets(own, of)) do set[#set + 1] = text end
  for _, text in ipairs(facts.short and facts.short.sets or {}) do set[#set + 1] = text end
  self.started = self.started + 1
  for i, rank in ipairs(ranks_of(s, self.machine)) do
    local path = os.tmpname()
    running[i] = { path = path, finish = rehearsal.start { recipe = given.recipe, ranks = ranks, rank = rank, set = set,
      seed = given.seed, step_file = path, device = rehearsal.device_of(self.machine.device) } }
  end
  return { running = running, recompute = s.recompute }
end

local function identity(n)
  local map = {}
  for i = 1, n do map[i] = i end
  return map
end

-- Waits for a rehearsal -> what it found and its step; nil: it was refused.
local function finish(one)
  local found, failed = one.finish()
  local step = found and core.step_read(one.path)
  os.remove(one.path)
  if not found and (failed.code == 130 or failed.code == 143) then error(failed.text, 0) end
  return found, step
end

-- Waits for the rehearsals of a cell -> the cell, or false.
function Cells:finish(entry)
  local facts, cell = self.facts, nil
  local short = facts.short or { sections = facts.section_list, map = identity(#facts.section_list) }
  for i, one in ipairs(entry.running) do
    local found, step = finish(one)
    if not found then cell = false end
    local own = cell ~= false and cell_of(found, step, short.sections, short.map, self.machine, entry.recompute)
    if i == 1 then cell = own
    elseif cell then cell.others[i - 1] = own.events end
  end
  return cell
end

--- Begins the rehearsal of a cell that will be asked for, beside others. At most as many run as there are processors.
function Cells:expect(s)
  local key = self.facts.section_list and key_of(s, self.facts)
  if not key or self.known[key] ~= nil or self.running[key] or self.n_running >= core.processors() then return end
  self.running[key], self.n_running = self:begin(s), self.n_running + 1
end

local MANY, FAR, NEAR = 256, 1024, 8 -- samples

-- The samples that anchors have at most, where those of a piece are fewer: the first stand for the most cells. A step
-- of few samples has few sizes of pieces, which one anchor serves.
local function anchors_of(facts) return facts.samples >= MANY and { FAR, NEAR } or { NEAR } end

--- Returns what stands for the cells of many bunches, as a setting that get and expect take: one without recomputation,
-- which only adds to the passes, and with 2, 4, 8, ... times the samples of a piece, at most `most` in all. And the
-- part of its seconds that a piece takes at least. For twice the samples no op or operation takes more than twice as
-- long, where no rate falls with the size. nil: there is none but the cell of s itself, or that is known.
function Cells:anchor(s, most)
  if not self.facts.section_list or self.known[key_of(s, self.facts)] then return nil end
  local own = samples_of(s, self.facts)
  local samples, recompute = own, self.facts.floors.none and "none" or s.recompute
  while self.rises and 2 * samples <= most do samples = 2 * samples end
  if samples == own and recompute == s.recompute then return nil end
  local out = { data = s.expert, expert = s.expert, tensor = s.tensor, sequence = s.sequence, micro = 1,
    accumulation = 1, recompute = recompute, of_piece = samples }
  return out, own / samples
end

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
    for _, one in ipairs(entry.running) do
      pcall(one.finish)
      os.remove(one.path)
    end
  end
  self.running = {}
end

--- Opens the cells of a search. given: recipe, set, seed; machine: of ganymede.plan.machine.
function cells.open(given, facts, machine)
  return setmetatable({ given = given, facts = facts, machine = machine, known = {}, running = {}, n_running = 0,
    rises = rates.rise(machine), anchors = anchors_of(facts), started = 0, asked = 0 }, Cells)
end

return cells
