-- save_in_a_loop.lua - a child process for crash_spec.lua: ganymede run save_in_a_loop.lua, with the folder, the
-- first step and the number of saves in the environment. Every element of a checkpoint is its step. With
-- SPEC_BACKGROUND a save is finished, and its step printed, when the next one has been computed; the tensors are
-- overwritten while it is under way.
local checkpoint = require "ganymede.checkpoint"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"

local folder, first = os.getenv "SPEC_FOLDER", tonumber(os.getenv "SPEC_FIRST")
local elements, background = tonumber(os.getenv "SPEC_ELEMENTS"), os.getenv "SPEC_BACKGROUND" == "1"

local tensors = {}
for i = 1, 4 do tensors[i] = { name = "t" .. i, tensor = gm.zeros({ elements, 2 }):permute(2, 1) } end

local saving
local function finish()
  if not saving then return end
  local path, message = saving:finish()
  if not path then failure(1, "%s", message) end
  io.stdout:write(saving.step, "\n")
  io.stdout:flush()
end

for step = first, first + tonumber(os.getenv "SPEC_SAVES") - 1 do
  for _, entry in ipairs(tensors) do entry.tensor:fill_(step) end
  finish()
  saving = checkpoint.start(folder, { tensors = tensors, meta = { step = step } },
    { keep_last = 2, background = background })
  if not background then finish() saving = nil end
end
finish()
