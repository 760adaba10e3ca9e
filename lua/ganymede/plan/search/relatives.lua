--- What settings have in common, as keys: equal keys, equal passes, ops or records of ranks.
--
--     relatives.passes(s), relatives.ops(s), relatives.records(s), relatives.ends(s, stage)
--     relatives.kinds(s, samples)
--
-- @module ganymede.plan.search.relatives
local setting = require "ganymede.plan.search.setting"

local relatives = {}

-- Orders of one backward pass have the ops and operations of a rank in common, and so have those that split it.
local alike = { ["1f1b"] = "whole", gpipe = "whole", interleaved = "whole", ["zb-h1"] = "split", ["zb-h2"] = "split" }

-- What settings have in common that differ in ZeRO, recomputation, and the order of passes and of axes alone. Those
-- with facts of their own (ganymede.plan.search.refine) have other samples in a step, so equal pieces may be larger.
local function share_of(s)
  local t, q, p = s.tensor, s.sequence, s.pipeline
  local split = type(p.split) == "table" and table.concat(p.split, "+") or p.split
  return table.concat({ s.data, s.expert, t.size, t.mode or "", t.depth or 0, tostring(t.sequence), q.size, q.mode,
    p.size, alike[p.schedule] or p.schedule, p.chunks, split, s.micro, s.accumulation,
    s.facts and s.facts.samples or "whole" }, " ")
end

--- Equal passes: settings that differ in ZeRO and recomputation, and in orders of passes that are alike.
function relatives.passes(s) return share_of(s) .. " " .. table.concat(s.order or {}, ".") end

--- Equal ops: settings that differ in orders of passes that are alike.
function relatives.ops(s) return table.concat({ relatives.passes(s), s.zero, s.recompute }, " ") end

--- Equal records of ranks: settings that differ in the order of the axes alone.
function relatives.records(s) return table.concat({ share_of(s), s.pipeline.schedule, s.zero, s.recompute }, " ") end

--- Equal operations before all passes and behind them, on the ranks of a stage: settings that differ in the number of
-- pieces, and in orders of passes that are alike.
function relatives.ends(s, stage)
  local t, q, p = s.tensor, s.sequence, s.pipeline
  local split = type(p.split) == "table" and table.concat(p.split, "+") or p.split
  return table.concat({ s.data, s.expert, t.size, t.mode or "", t.depth or 0, tostring(t.sequence), q.size, q.mode,
    p.size, alike[p.schedule] or p.schedule, p.chunks, split, s.accumulation > 1 and "several" or "one", s.zero,
    s.recompute, stage, table.concat(s.order or {}, ".") }, " ")
end

--- Equal answers to the question which ranks do the same (ganymede.plan.stand_ins): settings that differ in the number
-- of pieces and in what runs again, as far as all ranks have equally many samples of a piece. nil: they have not, and
-- the answer is this setting's own. samples: of a step.
function relatives.kinds(s, samples)
  if samples / (s.accumulation * s.micro) % setting.batch_ways(s) ~= 0 then return nil end
  local t, q, p = s.tensor, s.sequence, s.pipeline
  return table.concat({ s.data, s.expert, t.size, t.mode or "", t.depth or 0, tostring(t.sequence), q.size, q.mode,
    p.size, p.schedule, p.chunks, s.zero, s.accumulation > 1 and "several" or "one" }, " ")
end

return relatives
