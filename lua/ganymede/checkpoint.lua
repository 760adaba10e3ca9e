--- Checkpoints: saved whole or not at all, verified when opened (host/checkpoint/checkpoint.h).
--
--     local path = checkpoint.save("runs/x/checkpoints", { tensors = { { name =, tensor = } },
--                                   meta = { step = 1200, ... } }, { keep_last = 3 })
--     local ck = checkpoint.open(checkpoint.latest("runs/x/checkpoints"))
--     ck:read_into("head.weight", model.head.weight)
--     ck:close()
--
-- meta is anything JSON can hold (ganymede.json says what that is); its `step` names the checkpoint.
-- Damaged files raise failure(5); what the system refuses (disk full, no permission) failure(1) when
-- saving, after which older checkpoints are as they were.
-- @module ganymede.checkpoint
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local json = require "ganymede.json"
local log = require "ganymede.log"
local options = require "ganymede.options"

local checkpoint = {}

local function checked(status, first, message, kind, ...)
  if first == nil and message ~= nil then failure(kind == "corrupt" and 5 or status, "%s", message) end
  return first, message, kind, ...
end

-- ---------------------------------------------------------------- saving

local save_options = {
  keep_last = { type = "integer", min = 1, optional = true, doc = "steps that stay, this one included; default: all" },
}

local function step_of(state)
  local step = type(state.meta) == "table" and state.meta.step
  if type(step) ~= "number" or step < 0 or step ~= math.floor(step) then
    error("checkpoint.save: meta.step must be a whole number, not " .. tostring(step), 3)
  end
  return step
end

--- Saves state = { tensors = list of { name =, tensor = } or { name, tensor }, meta = table } as a new
-- folder in dir -> its path.
function checkpoint.save(dir, state, opt)
  opt = options.check("checkpoint.save", save_options, opt, 2)
  local step = step_of(state)
  local names, tensors = {}, {}
  for i, entry in ipairs(state.tensors) do names[i], tensors[i] = entry.name or entry[1], entry.tensor or entry[2] end
  local meta = json.encode(state.meta)
  return (checked(1, core.checkpoint_save(dir, step, names, tensors, meta, opt.keep_last or 0)))
end

-- ---------------------------------------------------------------- finding

--- Checkpoints in dir, oldest first: list of { step =, path = }. Complete by name, not verified.
function checkpoint.list(dir)
  local steps, paths = checked(2, core.checkpoint_list(dir))
  local list = {}
  for i, step in ipairs(steps) do list[i] = { step = step, path = paths[i] } end
  return list
end

--- true, or nil and what is wrong: all checksums, all geometry.
function checkpoint.verify(path)
  local handle, message = core.checkpoint_open(path)
  if not handle then return nil, message end
  core.checkpoint_close(handle)
  return true
end

--- The newest checkpoint in dir that is whole, or nil. Damaged ones are skipped, and said: say(line) is
-- called for each, by default a warning in the log of rank 0.
function checkpoint.latest(dir, say)
  say = say or function(line)
    if core.rank() == 0 then log.warn("%s", line) end
  end
  local list = checkpoint.list(dir)
  for i = #list, 1, -1 do
    local ok, message = checkpoint.verify(list[i].path)
    if ok then return list[i].path end
    say(("checkpoint of step %d is damaged, trying the one before: %s"):format(list[i].step, message))
  end
  return nil
end

-- ---------------------------------------------------------------- opening

local Checkpoint = {}
Checkpoint.__index = Checkpoint

--- Opens and verifies. Fields: path, meta, world (ranks that saved it).
function checkpoint.open(path)
  local handle = checked(2, core.checkpoint_open(path))
  local text, world = core.checkpoint_meta(handle)
  return setmetatable({ handle = handle, path = path, meta = json.decode(text, path .. ": meta"), world = world },
    Checkpoint)
end

--- Names of the tensors, sorted.
function Checkpoint:names() return core.checkpoint_names(self.handle) end

function Checkpoint:has(name) return core.checkpoint_info(self.handle, name) ~= nil end

--- { name, dtype, shape (global), bytes, boxes } or nil.
function Checkpoint:info(name) return core.checkpoint_info(self.handle, name) end

--- Fills tensor with the stored one of that name; shape and dtype must be equal. opt.cast: convert the
-- dtype; opt.offset: read the box of tensor's shape that begins there (from 1 in each dimension).
function Checkpoint:read_into(name, tensor, opt)
  opt = options.check("read_into", {
    cast = { type = "boolean", default = false, doc = "convert to the tensor's dtype?" },
    offset = { type = "table", optional = true, doc = "where the box begins, from 1" },
  }, opt, 2)
  local offset
  if opt.offset then
    offset = {}
    for i, at in ipairs(opt.offset) do offset[i] = at - 1 end
  end
  checked(2, core.checkpoint_read(self.handle, name, tensor, opt.cast, offset))
  return tensor
end

--- Closes the files; what was read stays.
function Checkpoint:close() core.checkpoint_close(self.handle) end

return checkpoint
