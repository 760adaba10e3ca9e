-- The pictures of schedules in docs/pictures: what each shows, so that they can be drawn again and compared.
local pipeline = require "ganymede.schedules.pipeline"
local svg = require "ganymede.schedules.draw_svg"

local pictures = {}
for i, name in ipairs { "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" } do
  pictures[i] = {
    path = ("docs/pictures/schedules_%s.svg"):format((name:gsub("-", "_"))),
    draw = function() return svg(pipeline.build(name, { stages = 4, micro_batches = 8 })) end,
  }
end
return pictures
