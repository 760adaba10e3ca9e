--- Training in pipelines that must be equal, for specs: models of eight sections and a run in stages against serial.
--
--     pipelines.check { model = "gpt", order = "zb-h1", parallel = "{pipeline=2}", mesh = { pipeline = 2 } }
--
-- Batches have 10 samples in 4 pieces of 3, 3, 2 and 2, the last batch of an epoch of GPT and BERT has fewer; dropout
-- is of every kind, norms are clipped in every step. What a mean over a batch decides (capacities, losses of routers)
-- is decided a piece at a time, so the mixture of experts is compared with a serial run of the same pieces; all others
-- with one that knows no pieces. Only the order of sums differs: limits and their reasons are those of equality.lua.
local assert = require "luassert"
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"
local tables = require "spec.support.tables"

local pipelines = {}

-- The recipes of equality.lua, changed: 6 blocks, what is in front and behind, are 8 sections, as many as 4 stages of 2
-- chunks need. Texts begin 150 tokens apart: fewer batches, the last one of an epoch short.
local function recipe(model, ...)
  return job.changed(equality.recipes[model], { "depth = 2", "depth = 6" },
    { "clip_grad_norm = 0.5", 'clip_grad_norm = 0.5, num_microbatches = 4, schedule = { type = "PipelineSchedule" }' },
    ...)
end

local length, stride, epochs = { "sequence_length = 31", "sequence_length = 30" }, { "stride = 31", "stride = 150" },
  { "epochs = 2", "epochs = 4" }

pipelines.recipes = {
  gpt = recipe("gpt", length, stride, epochs, { "vocabulary = 2051", "vocabulary = 261" }),
  bert = recipe("bert", length, stride, epochs),
  vit = recipe "vit",
  -- experts in every second block, so in every half of the model
  moe = recipe("moe", length, stride, epochs, { "experts = 3", "experts = 4, shared = 1" },
    { 'type = "SigmoidRouter", k = 2', 'type = "TopKRouter", k = 2, noise = "normal", balance = 0.1' }),
}

local STEPS = { f64 = job.steps(50), f32 = 10 }
local LIMIT = { f64 = 1e-9, f32 = 1e-5 }

--- A run of a case -> the document of --stats. without: `parallel` instead of the case's, on `ranks`.
function pipelines.run(case, steps, without)
  local set = { "dtype=" .. (case.dtype or "f64"), "parallel=" .. (without and without.parallel or case.parallel) }
  if not without and case.order then
    set[#set + 1] = ('schedule={type="PipelineSchedule",order="%s"}'):format(case.order)
  end
  local text = not without and case.recipe or pipelines.recipes[case.model]
  return job.run(text, without and without.ranks or pipelines.ranks(case),
    { steps = steps, flags = { "--no-eval" }, set = tables.joined(set, without and without.set or {}, case.set or {}) })
end

--- Ranks of a case: the product of its mesh.
function pipelines.ranks(case)
  local n = 1
  for _, size in pairs(case.mesh) do n = n * size end
  return n
end

local references = {}

--- STEPS steps on one rank, without pieces where the model allows it; run once for each (model, dtype, set).
function pipelines.serial(case)
  local dtype = case.dtype or "f64"
  local plain = case.model ~= "moe" and not case.same_pieces
  local set = plain and { "num_microbatches=1", "schedule=NonPipelineSchedule" } or {}
  local key = table.concat(tables.joined({ case.model, dtype }, set, case.set or {}), " ")
  references[key] = references[key]
    or pipelines.run(case, STEPS[dtype], { parallel = "{data=1}", ranks = 1, set = set })
  return references[key]
end

--- Bytes of a kind that all ranks hold, copies along data counted once.
function pipelines.held(stats, kind)
  local sum = 0
  for _, rank in ipairs(stats.ranks) do sum = sum + rank[kind] end
  return sum / (stats.mesh.data or 1)
end

-- Numbers that the head shares with the table of tokens. They lie on the first stage and on the last: one more copy.
local copies = { gpt = 261 * 24, moe = 261 * 24, bert = 261 * 24, vit = 0 }

-- Stages hold their parts and no more: together the parameters of the model, and what is tied once more. In a tensor
-- mode these are those of a run of the same mode without stages.
local function check_bytes(case, stats, reference)
  local width = case.dtype == "f32" and 4 or 8
  local whole = case.without and pipelines.run(case, 1, case.without) or reference
  local is_v = case.order == "zb-v" -- its first part and its last are on one stage
  local extra = (case.copies or is_v and 0 or copies[case.model]) * width
  assert.equal(pipelines.held(whole, "parameter_bytes") + extra, pipelines.held(stats, "parameter_bytes"))
  local most = case.share or ({ [2] = 0.68, [3] = 0.55, [4] = 0.5 })[case.mesh.pipeline]
  for _, rank in ipairs(stats.ranks) do
    for _, kind in ipairs { "parameter_bytes", "gradient_bytes", "optimizer_bytes" } do
      local share = rank[kind] / reference.ranks[1][kind]
      assert.is_true(share <= most, ("%s: %.3f of the serial ones"):format(kind, share))
    end
  end
end

-- Every rank sends or receives at a border, forward and backward; all axes carry something.
local function check_traffic(case, stats)
  for _, phase in ipairs { "forward", "backward" } do
    assert.is_true(job.traffic(stats, { op = "send", axes = "pipeline", phase = phase }) > 0)
  end
  for axis in pairs(case.mesh) do
    local sum = 0
    for _, rank in ipairs(stats.ranks) do sum = sum + equality.sent_along(rank, axis) end
    assert.is_true(sum > 0, "nothing sent along " .. axis)
  end
end

--- STEPS of a case are those of one rank -> the run, the reference.
-- case: model, parallel, mesh, and perhaps order, dtype, set ("key=value" for both runs), same_pieces (compare with a
-- serial run of the same pieces), recipe (text; what is compared with the model's), without ({ parallel, ranks }: the
-- same without stages, whose bytes count), share, copies.
function pipelines.check(case)
  local dtype = case.dtype or "f64"
  local reference, stats = pipelines.serial(case), pipelines.run(case, STEPS[dtype])
  assert.equal(STEPS[dtype], #stats.loss)
  local worst, at = job.largest_difference(reference, stats, STEPS[dtype])
  if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then
    print(("  %-4s %-48s %-11s %s: %.2g"):format(case.model, case.parallel, case.order or "", dtype, worst))
  end
  assert.is_true(worst <= LIMIT[dtype], ("differs by %g in step %d"):format(worst, at))
  assert.is_true(stats.loss[#stats.loss] ~= stats.loss[1])
  assert.same(case.mesh, stats.mesh)
  assert.equal(pipelines.ranks(case), #stats.ranks)
  assert.equal(reference.global_batch, stats.global_batch)
  check_bytes(case, stats, reference)
  check_traffic(case, stats)
  return stats, reference
end

--- An example, made by busted's `it`, for each case; tag: of all.
function pipelines.examples(it, list, tag)
  for _, case in ipairs(list) do
    local words = { case.model .. " on " .. case.parallel }
    words[#words + 1] = case.order
    words[#words + 1] = case.dtype
    words = tables.joined(words, case.set or {}, tag and { "#" .. tag } or {})
    it(table.concat(words, ", "), function()
      local stats, reference = pipelines.check(case)
      if case.looks then case.looks(stats, reference) end
    end)
  end
end

return pipelines
