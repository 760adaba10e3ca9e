--- Finds the newest step that is whole in the memory of the machines of a job, and reads it: after a failure.
--
--     local found, why = recover.find(memory)          -- collective -> { step, ... }; nil and why there is none
--     recover.restore(trainer, memory, found)          -- collective
--
-- memory: of ganymede.checkpoint.neighbours. The ranks may be others than those that saved, and fewer, and machines may
-- be gone or new. Each machine tells what it has: parts and copies are the same to it. A step is whole if the parts of
-- all ranks of one save are there, on whatever machine, and their checksums are right. The newest one is read: its
-- parts become a checkpoint (core.apart_join) in a folder step-N.read on each machine, which has the files that this
-- machine has. What its ranks read of others travels through the comm, once to a machine.
-- The trap: what is decided here must follow from what all ranks know, or their messages do not match.
-- @module ganymede.checkpoint.recover
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local neighbours = require "ganymede.checkpoint.neighbours"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local snapshot = require "ganymede.checkpoint.snapshot"

local recover = {}

local function share(text) return neighbours.counted(ranks.texts, text) end

-- ---------------------------------------------------------------- what there is

-- What lies on this machine: list of { step, rank, world, token, digest, bytes }, or { step, rank, why } of what is
-- damaged. Data is not read.
local function listed(folder)
  local out = {}
  for _, name in ipairs(core.list_folder(folder)) do
    local step = tonumber(name:match "^step%-(%d+)$")
    for _, file in ipairs(step and core.list_folder(folder .. "/" .. name) or {}) do
      local rank = tonumber(file:match "^rank%-(%d+)%.json$")
      if rank then
        local part, why = core.apart_look(folder .. "/" .. name, rank, false)
        part = part or { why = why }
        part.step, part.rank = step, rank
        out[#out + 1] = part
      end
    end
  end
  return out
end

local function say_damaged(entry, part)
  if not ranks.is_first() then return end
  log.warn("--memory-checkpoint: the part of rank %d of step %d in the memory of %s is damaged, and is left out: %s",
    part.rank, part.step, entry.name, part.why)
end

-- Adds a part to the save that it belongs to. by: the saves, by what distinguishes them.
local function add_part(list, by, part, m)
  local key = ("%d %s %s %d"):format(part.step, part.token, part.digest, part.world)
  if not by[key] then
    by[key] = { step = part.step, world = part.world, token = part.token, digest = part.digest, parts = {} }
    list[#list + 1] = by[key]
  end
  local parts = by[key].parts
  parts[part.rank] = parts[part.rank] or { bytes = part.bytes, on = {} }
  table.insert(parts[part.rank].on, m)
end

-- What all machines have, as saves: list of { step, world, token, digest, parts = { [rank] = { bytes, on = list of
-- numbers of machines } } }, the newest first.
local function saves_of(memory)
  local texts = share(memory.place == 0 and json.encode(json.array(listed(memory.folder))) or "[]")
  local list, by = {}, {}
  for m, entry in ipairs(memory.machines) do
    for _, part in ipairs(json.decode(texts[entry.ranks[1] + 1], "parts in memory")) do
      if part.why then say_damaged(entry, part) else add_part(list, by, part, m) end
    end
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then return a.step > b.step end
    return a.token < b.token
  end)
  return list
end

-- The ranks of a save of which there is no part.
local function lacking(save)
  local out = {}
  for rank = 0, save.world - 1 do
    local part = save.parts[rank]
    if not part or #part.on == 0 then out[#out + 1] = rank end
  end
  return out
end

local function step_lacks(save)
  local list = lacking(save)
  return ("step %d lacks the part%s of rank%s %s"):format(save.step, #list > 1 and "s" or "", #list > 1 and "s" or "",
    table.concat(list, ", "))
end

-- ---------------------------------------------------------------- whether it is right

local function remove_value(list, value)
  for i = #list, 1, -1 do
    if list[i] == value then table.remove(list, i) end
  end
end

-- The ranks of a save whose part on this machine is damaged, of this rank's share of what there is to verify.
local function damaged_here(memory, save)
  local path, out, at = neighbours.step(memory.folder, save.step), {}, 0
  for _, rank in ipairs(options.sorted_keys(save.parts)) do
    for _, m in ipairs(save.parts[rank].on) do
      if memory.machines[m] == memory.mine then
        if at % #memory.mine.ranks == memory.place then
          local part, why = core.apart_look(path, rank, true)
          if not part or part.token ~= save.token then
            out[#out + 1] = { rank = rank, step = save.step, why = why or "it has changed" }
          end
        end
        at = at + 1
      end
    end
  end
  return out
end

-- Verifies the checksums of a save, on all machines at once, and leaves out what is damaged.
local function verify(memory, save)
  local texts = share(json.encode(json.array(damaged_here(memory, save))))
  for m, entry in ipairs(memory.machines) do
    for _, reader in ipairs(entry.ranks) do
      for _, bad in ipairs(json.decode(texts[reader + 1], "damaged parts")) do
        remove_value(save.parts[bad.rank].on, m)
        say_damaged(entry, bad)
      end
    end
  end
end

--- The newest step that is whole: { step, world, parts, ... }; nil, why there is none. Collective.
function recover.find(memory)
  local why = "nothing of this run lies there"
  for i, save in ipairs(saves_of(memory)) do
    local whole = #lacking(save) == 0
    if whole then
      verify(memory, save)
      whole = #lacking(save) == 0
    end
    if whole then return save end
    if i == 1 then why = step_lacks(save) end
  end
  return nil, why
end

-- ---------------------------------------------------------------- reading it

-- The rank that speaks for a machine about an old rank's part: they take turns.
local function speaker(memory, part, rank)
  local there = memory.machines[part.on[1]].ranks
  return there[rank % #there + 1]
end

local function is_here(memory, part)
  for _, m in ipairs(part.on) do
    if memory.machines[m] == memory.mine then return true end
  end
  return false
end

-- The indexes of all parts, by rank: those which this rank speaks for are read here.
local function exchange_indexes(memory, save)
  local mine = {}
  for rank = 0, save.world - 1 do
    if speaker(memory, save.parts[rank], rank) == core.rank() then
      local file = assert(io.open(neighbours.file(neighbours.step(memory.folder, save.step), rank, "json"), "rb"))
      mine[#mine + 1] = rank .. "\n" .. file:read "*a"
      file:close()
    end
  end
  local out = {}
  for _, text in ipairs(share(json.encode(json.array(mine)))) do
    for _, entry in ipairs(json.decode(text, "indexes")) do
      local rank, index = entry:match "^(%d+)\n(.*)$"
      out[tonumber(rank)] = index
    end
  end
  return out
end

-- Makes the folder from which this machine reads.
local function lay_out(memory, save, path, indexes)
  local from = neighbours.step(memory.folder, save.step)
  core.apart_remove(path)
  core.make_folders(path)
  for rank = 0, save.world - 1 do
    if is_here(memory, save.parts[rank]) then
      assert(core.apart_link(neighbours.file(from, rank, "safetensors"), neighbours.file(path, rank, "safetensors")))
    end
    core.write_whole(neighbours.file(path, rank, "json"), indexes[rank])
  end
  assert(core.apart_join(path, save.world))
end

-- Who sends whose part to whom: list of { rank (that saved), from, to }, the same on all ranks.
local function transfers(memory, save, texts)
  local list, has = {}, {}
  for m, entry in ipairs(memory.machines) do
    for _, reader in ipairs(entry.ranks) do
      for word in texts[reader + 1]:gmatch "%d+" do
        local rank, key = tonumber(word), m .. " " .. word
        if not has[key] then
          has[key] = true
          list[#list + 1] = { rank = rank, from = speaker(memory, save.parts[rank], rank), to = reader }
        end
      end
    end
  end
  return list
end

-- Opens the files of this rank's transfers.
local function open_files(list, save, path)
  for _, t in ipairs(list) do
    local name = neighbours.file(path, t.rank, "safetensors")
    if t.to == core.rank() then t.tensor = assert(core.apart_file(name, save.parts[t.rank].bytes)) end
    if t.from == core.rank() then t.tensor = assert(core.apart_file(name)) end
  end
end

local function carry(list, path)
  local everybody, pending = neighbours.group(), {}
  for _, t in ipairs(list) do
    if t.to == core.rank() then pending[#pending + 1] = core.comm_receive(t.tensor, everybody, t.from, true) end
  end
  for _, t in ipairs(list) do
    if t.from == core.rank() then pending[#pending + 1] = core.comm_send(t.tensor, everybody, t.to, true) end
  end
  for _, p in ipairs(pending) do p:wait() end
  for _, t in ipairs(list) do
    t.tensor = nil
    if t.to == core.rank() then assert(core.apart_look(path, t.rank, true)) end
  end
end

-- Brings the files here that the ranks of this machine need and do not have -> how many came.
local function fetch(memory, save, path, needed)
  local missing = {}
  for rank in pairs(needed) do
    if not is_here(memory, save.parts[rank]) then missing[#missing + 1] = rank end
  end
  table.sort(missing)
  local list = transfers(memory, save, share(table.concat(missing, " ")))
  checkpoint.agree(pcall(open_files, list, save, path))
  checkpoint.agree(pcall(neighbours.counted, carry, list, path))
  return #list
end

--- Puts the run into the trainer as that step has left it. found: of recover.find. Returns how many parts travelled
-- from one machine to another. Collective.
function recover.restore(trainer, memory, found)
  local path, came = neighbours.step(memory.folder, found.step) .. ".read", 0
  local indexes = exchange_indexes(memory, found)
  checkpoint.agree(pcall(function()
    if memory.place == 0 then lay_out(memory, found, path, indexes) end
  end))
  snapshot.restore(trainer, path, function(needed) came = fetch(memory, found, path, needed) end)
  share "" -- all have read
  if memory.place == 0 then core.apart_remove(path) end
  return came
end

return recover
