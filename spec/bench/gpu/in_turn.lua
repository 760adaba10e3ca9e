--- Training steps of a recipe in turn with the peer's: windows of steps with nothing between but the peer's windows.
--
--     hooks = { require("spec.bench.gpu.in_turn").hook { warm =, rounds =, each =, peers =, question =, report = } }
--
-- warm: steps before the first window; rounds: windows; each: steps in one. peers: the modes of the peer, words in one
-- string. question(trainer, mode, steps): the line that peer.py is asked. report(trainer, result, last): called after
-- each window with what is known so far: seconds, windows (seconds, joules by NVML, what the host asked of the device,
-- each for a step), peers (by mode; ratios are of neighbouring windows); last is true behind the last window.
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local hooks = require "ganymede.hooks.base"
local energy = require "ganymede.observe.energy"
local json = require "ganymede.base.json"

local in_turn = {}

local function open_window(self) -- of work that begins here, the device idle
  core.synchronize()
  self.meter, self.calls, self.began = energy.start(), core.device_counts(), core.now()
end

local function close_window(self)
  core.synchronize()
  local each = self.how.each
  local seconds, calls, window = core.now() - self.began, core.device_counts() or {}, { calls = {} }
  local report = self.meter:report()
  window.seconds, window.gpu_joules, window.gpu_reason = seconds / each, report.gpu_joules, report.gpu_reason
  for _, name in ipairs { "launches", "libraries", "graphs", "copies", "waits", "allocations" } do
    -- less the wait that closes the window itself
    window.calls[name] = calls[name] and (calls[name] - self.calls[name] - (name == "waits" and 1 or 0)) / each
  end
  table.insert(self.windows, window)
end

-- One window of each mode of the peer, -> what it says of a step, by mode. The first one compiles.
local function ask_peers(self, trainer, steps)
  local list = {}
  for mode in self.how.peers:gmatch "%S+" do
    local meter = energy.start()
    local answer, why = nil, self.no_peer
    if self.peer then answer, why = self.peer:ask(self.how.question(trainer, mode, steps)) end
    local report = meter:report()
    list[mode] = answer and { seconds = answer.seconds / steps, peak_bytes = answer.peak_bytes,
      gpu_joules = report.gpu_joules } or { reason = why }
  end
  return list
end

local function median_of(windows, field)
  local list = {}
  for _, w in ipairs(windows) do table.insert(list, w[field]) end
  return common.median(list)
end

-- A mode of the peer beside our windows; first: its first answer.
local function compared(self, mode, first)
  local ratios, list, used = {}, {}, {}
  for i, answers in ipairs(self.answers) do
    local p = answers[mode]
    if p.seconds then
      table.insert(list, p.seconds)
      table.insert(ratios, p.seconds / self.windows[i].seconds)
      table.insert(used, p.gpu_joules)
    end
  end
  local seconds, joules = common.median(list), common.median(used)
  if not seconds then return { reason = first.reason } end
  return { seconds = seconds, ratio = common.median(ratios), peak_bytes = first.peak_bytes,
    joules = joules and joules / self.how.each }
end

local function summary(self, trainer)
  local joules = median_of(self.windows, "gpu_joules")
  local result = { seconds = median_of(self.windows, "seconds"), windows = json.array(self.windows),
    calls = self.windows[#self.windows].calls, joules = joules and joules / self.how.each,
    joules_reason = self.windows[1].gpu_reason, peak_bytes = core.memory().peak,
    reserved_bytes = core.memory().reserved, loss = json.array(trainer.losses), peers = {} }
  for mode, first in pairs(self.answers[1] or {}) do result.peers[mode] = compared(self, mode, first) end
  return result
end

local InTurn = hooks.class("InTurn", nil, { needs_output = false })

function InTurn:before_train(trainer)
  self.windows, self.answers = {}, {}
  if self.how.peers == "" then return end
  self.peer, self.no_peer = require("spec.bench.gpu.peer").start()
  ask_peers(self, trainer, 1) -- compiles and warms up, before ours does
end

function InTurn:after_train_iter(trainer)
  local how = self.how
  local over = trainer.step - how.warm
  if over < 0 or over % how.each ~= 0 then return end
  if over > 0 then
    close_window(self)
    table.insert(self.answers, ask_peers(self, trainer, how.each))
    how.report(trainer, summary(self, trainer), over == how.rounds * how.each)
  end
  open_window(self)
end

function InTurn:after_train() if self.peer then self.peer:close() end end

--- The hook, as the head of this file describes it.
function in_turn.hook(how)
  local hook = InTurn {}
  hook.how = how
  return hook
end

return in_turn
