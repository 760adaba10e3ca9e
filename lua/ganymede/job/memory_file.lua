--- RUN/memory.json: by what the checkpoints of a run in the memory of machines are known, { id, step, folder }.
--
--     memory_file.write("runs/x", id, 12)
--     memory_file.read "runs/x"            -- { id, step, folder }; nil: there is none, or it is no such file
--
-- id: 16 hexadecimal digits, part of the names of what lies in memory; step: the newest that was whole there, 0: none;
-- folder: RUN itself. In a copy of the folder the file counts for nothing: what lies in memory is not the copy's.
-- Rank 0 of a run writes it (ganymede.train.neighbour_memory), and the script of `ganymede slurm` reads it.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local readable = require "ganymede.base.readable"

local memory_file = {}

local function path_of(folder) return folder .. "/memory.json" end

local function name_of(folder) return readable(core.real_path(folder) or folder) end

function memory_file.write(folder, id, step)
  core.write_whole(path_of(folder), json.encode { id = id, step = step, folder = name_of(folder) } .. "\n")
end

function memory_file.read(folder)
  local text = machine.read(path_of(folder))
  local ok, known = pcall(json.decode, text or "null", path_of(folder))
  if ok and type(known) == "table" and type(known.id) == "string" and known.id:find "^%x+$"
    and type(known.step) == "number" and known.folder == name_of(folder) then return known end
end

return memory_file
