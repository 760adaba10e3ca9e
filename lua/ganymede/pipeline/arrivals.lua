--- Says what would arrive at the border of a pipeline stage on a device without data, where nothing is sent.
--
--     arrivals.describe      -- (stage, pieces, micro-batch, part) -> list of tensors, text; nil outside a rehearsal
--
-- A rehearsal sets it (ganymede.plan.borders), and the schedule of a pipeline calls it.
-- @module ganymede.pipeline.arrivals
return {}
