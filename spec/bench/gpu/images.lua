-- images.lua - training steps of ResNet-18 (He et al. 2016) on 128 images of 224 x 224 in bf16, in turn with PyTorch's
-- (peer.py: channels last, autocast). One batch that stays on the device, f32 masters, AdamW, steps one by one. Then
-- what each op of a step costs.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

gm.launch { seed = 1, dtype = "bf16" }
local batch, side = common.size(128, 2), common.size(224, 32)
local rounds, each = common.size(5, 1), common.size(10, 1)

local engine = gm.initialize {
  model = gm.models.ResNet { depth = 18, classes = 1000 },
  optimizer = { type = "AdamW", lr = 1e-3 },
  criterion = { type = "CrossEntropyLoss" },
}
local x = gm.normal({ batch, 3, side, side }, { seed = 1, dtype = "bf16" }):keep()
local y = gm.uniform({ batch }, { low = 0, high = 1000, seed = 2 }):to("i64"):keep()

local function step()
  engine:zero_grad()
  engine:backward(engine:criterion(engine(x), y))
  engine:step()
end

local peer, why = require("spec.bench.gpu.peer").start()
local question = ("resnet %d %d %d"):format(batch, side, each)
if peer then peer:ask(question) end -- warms up
local result, ratios, ours, theirs = { batch = batch, side = side }, {}, {}, {}
for i = 1, rounds do
  ours[i] = common.seconds(step, 1, each)
  local answer
  if peer then answer, why = peer:ask(question) end
  if answer then
    table.insert(theirs, answer.seconds / each)
    table.insert(ratios, theirs[#theirs] / ours[i])
  end
end
result.seconds, result.peer_seconds, result.ratio = common.median(ours), common.median(theirs), common.median(ratios)
result.peer_reason = #ratios == 0 and (why or "the peer did not answer") or nil
common.say("ResNet-18, %d x %d x %d, bf16: %.4g ms a step; %s", batch, side, side, 1e3 * result.seconds,
  result.ratio and ("PyTorch %.4g, ratio %.3f"):format(1e3 * result.peer_seconds, result.ratio) or result.peer_reason)
common.write("images", result)
if peer then peer:close() end

core.profile_start()
for _ = 1, each do gm.scope(step) end
local ops, sums = core.profile_stop(), {}
for _, op in ipairs(ops) do
  local sum = sums[op.op] or { op = op.op, seconds = 0, calls = 0 }
  sums[op.op], sum.seconds, sum.calls = sum, sum.seconds + op.seconds / each, sum.calls + op.calls / each
end
local kinds = {}
for _, sum in pairs(sums) do table.insert(kinds, sum) end
table.sort(kinds, function(a, b) return a.seconds > b.seconds end)
result.kinds = json.array(kinds)
for _, sum in ipairs(kinds) do
  if sum.seconds > 5e-5 then common.say("  %8.4f ms  %5.1f calls  all %s", 1e3 * sum.seconds, sum.calls, sum.op) end
end
table.sort(ops, function(a, b) return a.seconds > b.seconds end)
result.ops = json.array {}
for i = 1, math.min(20, #ops) do
  local op = ops[i]
  result.ops[i] = { op = op.op, about = op.about, seconds = op.seconds / each, calls = op.calls / each }
  common.say("  %8.4f ms  %5.1f calls  %s %s", 1e3 * op.seconds / each, op.calls / each, op.op, op.about)
end
common.write("images", result)
