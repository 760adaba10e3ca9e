-- schedules.lua - draws pipeline schedules and says what each costs; trains nothing.
--
--     ganymede run spec/pipeline/schedules.lua --set stages=4 --set micro_batches=8
--     ganymede run spec/pipeline/schedules.lua --set 'schedules={ "1f1b", "zb-h1" }' --set micro_batches=32
--     ganymede run spec/pipeline/schedules.lua --set 'costs={ backward_input = 1.1, transfer = 0.1 }'
--     ganymede run spec/pipeline/schedules.lua --set pictures=true      # rewrites docs/pictures/schedules_*.svg
--
-- Costs are of one micro-batch in one chunk: forward, backward_input, backward_weight, transfer; 1, 1, 1 and 0 unless
-- given. spec/pipeline/draw_spec.lua compares docs/pictures with what is drawn here.
local gm = require "ganymede"
local report = require "ganymede.schedules.report"
local pictures = dofile(GANYMEDE_ROOT .. "/spec/pipeline/pictures.lua")

local config = gm.launch {
  schedules = { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" }, stages = 4, micro_batches = 8, chunks = 2,
  costs = {}, width = 120, pictures = false, parallel = {},
}

print(report { schedules = config.schedules, stages = config.stages, micro_batches = config.micro_batches,
  chunks = config.chunks, costs = config.costs, width = config.width }.text)
for _, picture in ipairs(config.pictures and pictures or {}) do
  local file = assert(io.open(GANYMEDE_ROOT .. "/" .. picture.path, "w"))
  file:write(picture.draw())
  file:close()
  print("wrote " .. picture.path)
end
