--- Pipelines: where a model can be cut, into which parts, and what a rank holds and runs of it.
--
--     local pipeline = require "ganymede.pipeline"
--     pipeline.partition   consecutive parts of a list of sections           pipeline.sections   of a model
--     pipeline.stage       one rank's parts, presence and sharing            pipeline.packing    what crosses a border
--     pipeline.build       gm.build_pipeline_model and its kind              pipeline.shared     ties made by hand
--
-- The order of the passes is ganymede.schedules.pipeline; what carries it out is host/pipeline/executor.h.
-- @module ganymede.pipeline
local pipeline = {}
for _, name in ipairs { "partition", "sections", "stage", "packing", "build", "shared" } do
  pipeline[name] = require("ganymede.pipeline." .. name)
end
return pipeline
