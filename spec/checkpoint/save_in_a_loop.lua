-- save_in_a_loop.lua - a child process for crash_spec.lua: ganymede run save_in_a_loop.lua, with the folder, the
-- first step and the number of saves in the environment. Every element of a checkpoint is its step.
local checkpoint = require "ganymede.checkpoint"
local gm = require "ganymede"

local folder, first = os.getenv "SPEC_FOLDER", tonumber(os.getenv "SPEC_FIRST")
local elements = tonumber(os.getenv "SPEC_ELEMENTS")
for step = first, first + tonumber(os.getenv "SPEC_SAVES") - 1 do
  gm.scope(function()
    local tensors = {}
    for i = 1, 4 do tensors[i] = { name = "t" .. i, tensor = gm.full({ elements, 2 }, step):permute(2, 1) } end
    checkpoint.save(folder, { tensors = tensors, meta = { step = step } }, { keep_last = 2 })
  end)
  io.stdout:write(step, "\n")
  io.stdout:flush()
end
