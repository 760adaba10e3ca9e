-- report.lua - the results of run.sh, from what its stages left: one document (results.json) and a table.
--
--     ganymede run spec/bench/gpu/report.lua              writes results.json beside them, prints the table
--     GM_BENCH_JUDGE=ranks ganymede run ...               a stage's own judgement: profile, ranks or curves
--
-- What was not measured is left out of the table or named with its reason, never filled in.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local common = require "spec.bench.gpu.common"

local work = os.getenv "GM_BENCH_WORK" or "."
local say = common.say

local function lines_of(name)
  local list, file = {}, io.open(work .. "/" .. name)
  if not file then return list end
  for line in file:lines() do list[#list + 1] = line end
  file:close()
  return list
end

-- ---------------------------------------------------------------- judgements of stages

-- Largest relative difference of two lists of losses, and where.
local function largest(a, b)
  local worst, at = 0, 0
  for i = 1, math.min(#a, #b) do
    local difference = math.abs(a[i] - b[i]) / math.abs(a[i])
    if difference ~= difference then return math.huge, i end
    if difference > worst then worst, at = difference, i end
  end
  return worst, at
end

-- Steps of several ranks one by one and as graphs: the same bits, and one launch a step.
local function judge_graphs(result)
  local plain, graphs = common.read "ranks-graphs-false", common.read "ranks-graphs-true"
  if not plain or not graphs then return nil end
  local worst, at = largest(plain.loss, graphs.loss)
  local launches = graphs.ranks[1].device_calls.graphs
  result.graphs = { ranks = #graphs.ranks, largest_difference = worst, step = at, launches = launches,
    seconds = graphs.seconds, seconds_one_by_one = plain.seconds }
  say("%d ranks with a GPU each: %.3f s as graphs (%d launches), %.3f s one by one, losses differ by %.2g at most",
    #graphs.ranks, graphs.seconds, launches, plain.seconds, worst)
  if worst > 0 or #plain.loss ~= #graphs.loss or launches < 1 then
    return "steps of several ranks as graphs have not the bits of those that run one by one"
  end
end

local function judge_ranks()
  local one, result, wrong = common.read "ranks-1", { worlds = {} }, nil
  for _, n in ipairs { 2, 4, 8 } do
    local many = common.read("ranks-" .. n)
    if many then
      local worst, at = largest(one.loss, many.loss)
      local pinned = many.ranks[1].pinned_bytes
      result.worlds[tostring(n)] = { largest_difference = worst, step = at, seconds = many.seconds,
        pinned_bytes = pinned }
      -- f32 sums in another order, over a few steps of Adam
      if worst >= 1e-3 or #many.loss ~= #one.loss then wrong = n end
      say("%d ranks: losses differ by %.2g at most (step %d), %.3f s, one rank %.3f s", n, worst, at, many.seconds,
        one.seconds)
    end
  end
  local unequal = judge_graphs(result)
  common.write("ranks", result)
  if unequal then error(unequal, 0) end
  if wrong then error(("the losses of %d ranks are not those of one"):format(wrong), 0) end
end

-- Means of ten losses each.
local function smooth(losses)
  local out, width = {}, common.size(10, 2)
  for i = width, #losses, width do
    local sum = 0
    for k = i - width + 1, i do sum = sum + losses[k] end
    out[#out + 1] = sum / width
  end
  return out
end

local function judge_curves()
  local half, full, other = common.read "curve-bf16-1", common.read "curve-f32-1", common.read "curve-f32-2"
  local a, b, c = smooth(half.loss), smooth(full.loss), smooth(other.loss)
  local result = { bf16 = half.loss, f32 = full.loss, f32_other_data = other.loss,
    difference = (largest(b, a)), noise = (largest(b, c)), last_bf16 = a[#a], last_f32 = b[#b] }
  common.write("curves", result)
  say("loss at the end: bf16 %.4f, f32 %.4f; largest difference of means %.3g, by other data %.3g", a[#a], b[#b],
    result.difference, result.noise)
  if result.difference > 2 * result.noise then
    error("the loss in bf16 is further from f32 than other data moves it", 0)
  end
end

local function show_profile()
  local document = common.read "profile"
  for i, line in ipairs(require("ganymede.observe.profile").table(document)) do
    if i <= 22 then say("%s", line) end
  end
end

-- ---------------------------------------------------------------- the document and the table

-- "123 passed, 4 failed" of a stage of specs, all its runs together; nil where none ended
local function counts_of(stage)
  local passed, failed, runs = 0, 0, 0
  for _, line in ipairs(lines_of("log/" .. stage)) do
    local p, f = line:match "^(%d+) passed, (%d+) failed"
    if p then passed, failed, runs = passed + tonumber(p), failed + tonumber(f), runs + 1 end
  end
  return runs > 0 and ("%d passed, %d failed"):format(passed, failed) or nil
end

local function stages()
  local list = {}
  for _, line in ipairs(lines_of "stages") do
    local name, seconds, status = line:match "^(%S+) (%d+) (%S+)$"
    list[#list + 1] = { name = name, seconds = tonumber(seconds), status = tonumber(status) or status }
  end
  return list
end

-- Those of a toy run have batches of 4 and 8.
local gpt_names = { "gpt-32", "gpt-64", "gpt-64-chunk", "gpt-64-timed", "gpt-4", "gpt-8", "gpt-8-chunk", "gpt-8-timed" }

local function gpt_rows(results)
  for _, name in ipairs(gpt_names) do
    local r = results[name]
    if r then
      local calls = r.calls
      say("GPT-2 124M bf16, %d x %d%s: %.0f tokens/s, %.4g ms a step, %.4g TFLOP/s = %.1f %% of 989, %s of products",
        r.batch, r.length, r.variant, r.tokens_per_second, 1e3 * r.seconds, r.tflops,
        100 * r.of_spec,
        r.of_products and ("%.1f %%"):format(100 * r.of_products) or "unknown share")
      say("  a step: %s launches, %s of libraries, %s graphs, %s copies, %s waits, %s allocations; %.2f GiB at most",
        calls.launches or "?", calls.libraries or "?", calls.graphs or "?", calls.copies or "?", calls.waits or "?",
        calls.allocations or "?", r.peak_bytes / 2 ^ 30)
      say("  %s", r.joules_per_token and ("%.4g mJ a token (GPU)"):format(1e3 * r.joules_per_token)
        or "no joules: " .. tostring(r.joules_reason))
      for _, mode in ipairs { "autocast", "weights" } do
        local p = r.peers[mode]
        if p and p.seconds then
          say("  PyTorch %-8s %.0f tokens/s, %.2f GiB%s; ours is %.3f times as fast (median of windows in turn)", mode,
            p.tokens_per_second, p.peak_bytes / 2 ^ 30,
            p.joules_per_token and (", %.4g mJ a token"):format(1e3 * p.joules_per_token) or "", p.ratio)
        elseif p then
          say("  PyTorch %s: %s", mode, tostring(p.reason))
        end
      end
    end
  end
end

-- What failed first, then what is known of the bits.
local function show_smoke(smoke)
  for _, line in ipairs(smoke.products) do
    if line.failed then say("FAILED product %s: %s", line.label, line.failed) end
  end
  for _, how in ipairs { "default", "deterministic" } do
    local counts, said = smoke.bits[how], {}
    if type(counts) == "string" then
      say("FAILED attention twice, %s: %s", how, counts)
    elseif counts then
      for _, name in ipairs { "o", "lse", "dq", "dk", "dv" } do
        if counts[name] > 0 then said[#said + 1] = ("%s in %g elements"):format(name, counts[name]) end
      end
      say("attention twice, %s: %s", how, #said == 0 and "the same bits" or "differs: " .. table.concat(said, ", "))
    end
  end
end

local function report()
  local results = { version = 1, toy = common.toy, stages = stages(), sanitize = lines_of "sanitize" }
  for _, name in ipairs { "doctor", "smoke", "rates", "profile", "attention", "float8", "images", "kernels", "long",
                          "ranks", "curves" } do
    results[name] = common.read(name)
  end
  for _, name in ipairs(gpt_names) do results[name] = common.read(name) end
  results.suite, results.layers = counts_of "suite", counts_of "layers"
  results.ops = counts_of "smoke"
  common.write("results", results)
  if results.smoke then show_smoke(results.smoke) end
  local rates = results.rates
  if rates then
    say("%s: bf16 products %.4g TFLOP/s%s, f32 %.4g, TF32 %.4g, copy %.4g GB/s%s", rates.device, rates.product_tflops,
      rates.peer_product_tflops and (" (PyTorch %.4g)"):format(rates.peer_product_tflops) or "", rates.f32_tflops,
      rates.tf32_tflops, rates.copy_gbs,
      rates.peer_copy_gbs and (" (PyTorch %.4g)"):format(rates.peer_copy_gbs) or "")
  end
  gpt_rows(results)
  for _, row in ipairs(results.float8 and results.float8.rows or {}) do
    say("8 bits, width %5d: products %.4g TFLOP/s (bf16 %.4g), codes %.4g GB/s, layer %.4g, with delayed scales %.4g "
      .. "(bf16 %.4g): ratio %.2f", row.width, row.product, row.product_bf16, row.encode_gbs, row.layer,
      row.layer_delayed, row.layer_bf16, row.ratio)
    say("  scales of blocks: %s", row.blocks_reason or ("products %.4g, codes %.4g GB/s, layer %.4g"):format(
      row.product_blocks, row.encode_blocks_gbs, row.layer_blocks))
  end
  local images = results.images
  if images then
    local side = images.side
    say("ResNet-18 bf16, %d x %d x %d: %.4g ms a step; %s", images.batch, side, side, 1e3 * images.seconds,
      images.ratio and ("PyTorch %.4g ms: ours is %.3f times as fast"):format(1e3 * images.peer_seconds, images.ratio)
      or "PyTorch: " .. tostring(images.peer_reason))
  end
  for _, row in ipairs(results.attention and results.attention.rows or {}) do
    say("attention s %5d, d %3d, %-7s: %.4g forward, %.4g backward, %.4g TFLOP/s both; %s", row.length, row.head_size,
      row.kind, row.forward, row.backward, row.both,
      row.ratio and ("PyTorch %.4g, %.4g, %.4g: ours %.3f times"):format(row.peer_forward, row.peer_backward,
        row.peer_both, row.ratio) or "PyTorch: " .. tostring(row.peer_reason))
  end
  local kernels = results.kernels
  if kernels then
    local below = 0
    for _, row in ipairs(kernels.rows) do below = below + (row.of_copy < 0.85 and 1 or 0) end
    say("memory-bound ops: %d of %d below 85 %% of the copy; the worst:", below, #kernels.rows)
    for i = 1, math.min(10, #kernels.rows) do
      local row = kernels.rows[i]
      say("  %5.1f %%  %8.4g GB/s  %s %s", 100 * row.of_copy, row.gbs, row.op, row.dtype)
    end
  end
  if results.long then
    local g = results.long.growth
    say("%d steps: %+d bytes on the device, %+d allocations, %+d resident, %+d open files", results.long.steps, g.live,
      g.allocations or 0, g.resident, g.files)
  end
  for _, n in ipairs { "2", "4", "8" } do
    local world = results.ranks and results.ranks.worlds[n]
    if world then say("%s ranks on the device: losses within %.2g of one rank's", n, world.largest_difference) end
  end
  local graphs = results.ranks and results.ranks.graphs
  if graphs then
    say("%d ranks with a GPU each: %.3f s as graphs, %.3f s one by one", graphs.ranks, graphs.seconds,
      graphs.seconds_one_by_one)
  end
  if results.curves then
    say("loss in bf16 within %.3g of f32 (means of ten); other data moves it by %.3g", results.curves.difference,
      results.curves.noise)
  end
  for _, name in ipairs { "ops", "suite", "layers" } do
    if results[name] then say("%s: %s", name, results[name]) end
  end
  for _, line in ipairs(results.sanitize) do say("sanitizer: %s", line) end
  for _, s in ipairs(results.stages) do
    if s.status ~= 0 then say("STAGE %s: %s after %d s", s.name, s.status == 124 and "out of time"
      or s.status == "left-out" and "left out" or "status " .. s.status, s.seconds) end
  end
end

local judgements = { ranks = judge_ranks, curves = judge_curves, profile = show_profile }
local judge = judgements[os.getenv "GM_BENCH_JUDGE" or ""] or report
judge()
