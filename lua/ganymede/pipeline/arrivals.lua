--- What arrives at the border of a pipeline stage where nothing is sent: on devices without data.
--
--     arrivals.describe      -- (stage, pieces, micro-batch, part) -> list of tensors, text; nil: nobody can tell
--
-- A rehearsal sets it (ganymede.plan.borders), and a pipeline's schedule asks it.
-- @module ganymede.pipeline.arrivals
return {}
