--- Features drawn at random, together: models, optimizers, adapters, frozen parameters, averages, norms, accumulation,
-- recomputation, offload, ZeRO, and meshes of 2 to 4 ranks. Each draw trains on one mesh, is saved, and goes on on
-- another. Losses, test loss, weights, moments and averages are those of one rank that nobody stopped.
--
-- Draws are the same in each run. More of them: GANYMEDE_SPEC_DRAWS=200 ./ganymede spec
-- spec/parallel/random_modes_spec.lua
--
-- A vocabulary of 13, sequences of 7, batches of 5 and last batches of 1 divide by no mesh. In f64 only the order of
-- sums differs, 1e-16 an addition: losses agree to 1e-9. In 550 legs of such runs weights and moments differed by 2e-12
-- of the largest at most, so 1e-9 holds with room. Queries and keys have no bias: the gradient of a bias of keys is
-- rounding, which some optimizers make large.
-- sanitizers: no, numbers of several ranks are compared; the specs of each feature look at the same code
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

local DRAWS, LEG, LIMIT = tonumber(os.getenv "GANYMEDE_SPEC_DRAWS") or 8, 2, 1e-9

-- Whole numbers from 1 to `to`, the same in each run: a linear congruence modulo 2^31 (Park and Miller's, 16807).
local state
local function any(to)
  state = state * 16807 % 2147483647
  return math.floor(state / 2147483647 * to) + 1
end
local function one(list) return list[any(#list)] end

-- ---------------------------------------------------------------- what is trained

local texts = [[{ type = "Synthetic", kind = "tokens", length = %d, sequence_length = 7, vocab_size = 13,
    split = "%s" }]]
local pictures = [[{ type = "Synthetic", length = %d, shape = { 1, 8, 8 }, classes = 3, split = "%s" }]]
local experts = "moe = { experts = 3, every = 2, router = { type = 'TopKRouter', k = 2, z = 0.01 } },"

-- A function each -> the model, its data, and whether it has experts.
local models = {
  function()
    local moe = any(3) == 1
    return ([[type = "GPT", vocabulary = 13, sequence_length = 7, width = 12, depth = 4, heads = 4, bias = false, %s
      tied = %s, dropout = 0.1, head_chunk = %d]]):format(moe and experts or "", one { "true", "false" }, one { 0, 3 }),
      texts, moe
  end,
  function()
    return ([[type = "Llama", vocabulary = 13, sequence_length = 7, width = 12, depth = 4, heads = 4, kv_heads = 2,
      head_size = 4, hidden = 10, tied = %s, dropout = 0.1, rotary = { base = 1000 }, qk_norm = %s]]):format(
      one { "true", "false" }, one { "true", "false" }), texts
  end,
  function()
    return ([[type = "VisionTransformer", image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 12,
      depth = 4, heads = 4, qkv_bias = false, drop_path = 0.1, pool = "%s"]]):format(one { "cls", "mean" }), pictures
  end,
}

local optimizers = {
  "type = 'SGD', lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01",
  "type = 'AdamW', lr = 0.01, amsgrad = true, layer_decay = 0.8",
  "type = 'LAMB', lr = 0.02, weight_decay = 0.1, groups = { { match = 'weight$', weight_decay = 0.01 } }",
  "type = 'Adagrad', lr = 0.02, initial_accumulator_value = 0.1", "type = 'RMSprop', lr = 0.003, momentum = 0.5",
  "type = 'Adafactor', lr = 0.02", "type = 'CAME', lr = 0.003",
  "type = 'Muon', lr = 0.02, split_qkv = true, adamw = { lr = 3e-3 }",
}

-- A recipe; and what decides which meshes it may have.
local function drawn()
  local model, data, has_experts = one(models)()
  local optimizer = one(optimizers)
  local text = ([[return { name = "drawn", seed = 5, dtype = "f64", epochs = 9, test_interval = 99,
  model = { %s }, optimizer = { %s }, loss = { type = "CrossEntropyLoss" },
  data = { train = %s, test = %s, batch_size = 5, test_batch_size = 3 }, gradient_accumulation = %d,
  %s %s num_microbatches = 2, schedule = { type = "PipelineSchedule" },
  hooks = { { type = "LossHook" }%s }, checkpoint = { interval = %d, keep_last = 9 } }]]):format(model, optimizer,
    data:format(11, "train"), data:format(7, "test"), any(2),
    one { "", "clip_grad_norm = 0.1,", "clip_grad_norm = 0.5, norm_type = 1,",
          "clip_grad_norm = 0.02, norm_type = 1/0," },
    one { "", "", "lora = { rank = 2, dropout = 0.1 },", "lora = { rank = 2, dora = true, train = 'norm' },",
          "freeze = { '^blocks%.1' },", "freeze = { 'norm' }," },
    one { "", ", { type = 'EMA', decay = 0.7 }" }, LEG)
  local own_states = optimizer:find "Muon" or optimizer:find "Adafactor" or optimizer:find "CAME"
  return text, { experts = has_experts, own_states = own_states }
end

-- ---------------------------------------------------------------- where

local plain = { { 3, "data=3" }, { 4, "data={size=4,shard=2}" }, { 4, "tensor={size=4,mode='2d'}" },
  { 4, "data=2,tensor={size=2,mode='1d',sequence=true}" }, { 3, "sequence=3" }, { 4, "data=2,sequence=2" },
  { 4, "data=2,sequence={size=2,mode='ulysses'}" }, { 2, "tensor={size=2,mode='2.5d',depth=2}" } }
local staged = { { 2, "pipeline=2", "1f1b" }, { 4, "data=2,pipeline=2", "zb-h1" },
  { 2, "pipeline={size=2,chunks=2}", "zb-v" }, { 4, "pipeline={size=2,chunks=2},data=2", "interleaved" },
  { 4, "pipeline=2,tensor={size=2,mode='1d'}", "zb-h2" }, { 4, "pipeline=2,sequence=2", "gpipe" } }
local shared = { { 2, "expert=2" }, { 4, "data=4,expert=2" }, { 4, "pipeline=2,data=2,expert=2", "1f1b" } }

-- Ranks and settings of a leg.
local function mesh(about)
  local chosen = one(about.experts and one { plain, staged, shared } or one { plain, staged })
  local zero = any(4) - 1
  local set = { "parallel={" .. chosen[2] .. "}", zero == 3 and "zero={stage=3,whole_below=0}" or "zero=" .. zero,
    chosen[3] and ("schedule={type='PipelineSchedule',order='%s'}"):format(chosen[3]) or nil }
  local function disk(kinds) return ("offload={%s,disk='%s',least=1}"):format(kinds, os.getenv "TMPDIR" or "/tmp") end
  local kinds = { "parameters='disk'", "activations='disk'", not about.own_states and "optimizer='disk'" or nil }
  local regions = { "block", "attention", "{sections='1, 2'}" }
  if any(3) == 1 then set[#set + 1] = "recompute=" .. one(regions) end
  if any(3) == 1 then set[#set + 1] = disk(one(kinds)) end
  return chosen[1], set
end

-- ---------------------------------------------------------------- both

local function weights_of(folder, step) return ("%s/run/checkpoints/step-%08d"):format(folder, step) end

-- Trains to step `to` in a folder, from what is there if `again` -> the document of --stats.
local function leg(folder, text, ranks, set, to, again)
  return job.run_in(folder, text, ranks, { steps = to, set = set,
    flags = { "--out", "run", again and "--resume" or nil, again and "auto" or nil } })
end

local function near(what, want, got)
  local share = math.abs(got - want) / math.abs(want)
  assert.is_true(share <= LIMIT, ("%s differs by %g"):format(what, share))
end

local function check(number)
  state = 4321
  for _ = 1, 50 * number do any(2) end -- each draw by itself, also where -f leaves others out
  local text, about = drawn()
  local stays, wanders, said = shell.temporary_folder(), shell.temporary_folder(), { text }
  local ok, why = pcall(function()
    local whole = leg(stays, text, 1, {}, 2 * LEG)
    for i = 1, 2 do
      local ranks, set = mesh(about)
      said[#said + 1] = ("-n %d %s"):format(ranks, table.concat(set, " "))
      local stats = leg(wanders, text, ranks, set, i * LEG, i > 1)
      for k = 1, LEG do near("a loss", whole.loss[(i - 1) * LEG + k], stats.loss[k]) end
      if i == 2 then near("the test loss", whole.metrics.test.loss, stats.metrics.test.loss) end
      local share, name = stored.difference(weights_of(wanders, i * LEG), weights_of(stays, i * LEG), true)
      assert.is_true(share <= LIMIT, ("%s differs by %g"):format(tostring(name), share))
    end
  end)
  shell.remove(stays)
  shell.remove(wanders)
  if not ok then error(("%s\n%s"):format(tostring(why), table.concat(said, "\n")), 0) end
end

describe("features drawn at random #ranks", function()
  for number = 1, DRAWS do
    it("train together as on one rank: draw " .. number, function() check(number) end)
  end
end)
