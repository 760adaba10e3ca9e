--- Shows the progress of a run: one changing line with a bar on a terminal, elsewhere a line from time to time.
--
--     local progress = Progress { steps = 469 }
--     progress { step = 12, epoch = 1, loss = 2.1, accuracy = 0.3, samples = 1536, lr = 1e-3 }
--     progress:close()
--
-- Rates are measured over about the last 10 seconds; the first step, which allocates, does not count. Of several ranks
-- only rank 0 shows anything.
-- The trap: `samples` counts from the beginning of the run, not from the last call.
local core = require "ganymede.core"
local log = require "ganymede.base.log"

local Progress = {}
Progress.__index = Progress

local TERMINAL_SECONDS, PLAIN_SECONDS, WINDOW = 0.1, 10, 10
local COLUMNS, BAR_MOST, BAR_LEAST = 80, 30, 8 -- of a terminal that does not say, and of the bar

--- Makes a progress display. opt: steps (of the whole run, or nil), out (file, default: standard output), terminal
-- (whether out is a terminal; default: it is found out), columns (of the terminal; default: as it says), clock
-- (default: core.now).
local function new(_, opt)
  opt = opt or {}
  local self = setmetatable({ steps = opt.steps, out = opt.out or io.stdout, clock = opt.clock or core.now,
    window = {}, shown_at = -math.huge, line = "", silent = core.rank() > 0 }, Progress)
  self.terminal = opt.terminal
  if self.terminal == nil then self.terminal = core.is_terminal(1) end
  self.columns = opt.columns
  log.before = function() self:wipe() end
  return self
end

--- Returns seconds as text: 0:01:23.
function Progress.duration(seconds)
  local s = math.floor(math.max(seconds, 0) + 0.5)
  return ("%d:%02d:%02d"):format(math.floor(s / 3600), math.floor(s / 60) % 60, s % 60)
end

-- Returns samples and steps per second over the last seconds; nil while they are unknown.
local function rates(self, now, event)
  local window = self.window
  local last = window[#window]
  if not last or now - last.at >= WINDOW / 100 then -- fast steps do not make it long
    window[#window + 1] = { at = now, samples = event.samples or 0, step = event.step }
  end
  while #window > 2 and now - window[2].at >= WINDOW do table.remove(window, 1) end
  local first = window[1]
  if now <= first.at then return nil, nil end
  return ((event.samples or 0) - first.samples) / (now - first.at), (event.step - first.step) / (now - first.at)
end

local function number(x, digits)
  if x ~= x or math.abs(x) == math.huge then return tostring(x) end
  return ("%." .. digits .. "f"):format(x)
end

local spared = { "lr", "epoch", "accuracy" } -- what a narrow terminal does without, the first first

--- Returns the text for an event and its rates. less: how many of `spared` are left out; nil: none.
function Progress:text(event, samples_per_second, steps_per_second, less)
  local steps, left_out = event.steps or self.steps, {}
  for i = 1, less or 0 do left_out[spared[i]] = true end
  local parts = { steps and ("step %d/%d"):format(event.step, steps) or ("step %d"):format(event.step) }
  if event.epoch and not left_out.epoch then parts[#parts + 1] = "epoch " .. event.epoch end
  if event.loss then parts[#parts + 1] = "loss " .. number(event.loss, 4) end
  if event.accuracy and not left_out.accuracy then parts[#parts + 1] = "accuracy " .. number(event.accuracy, 4) end
  if event.lr and not left_out.lr then parts[#parts + 1] = ("lr %.3g"):format(event.lr) end
  if samples_per_second then parts[#parts + 1] = ("%.0f samples/s"):format(samples_per_second) end
  if steps and steps_per_second and steps_per_second > 0 then
    parts[#parts + 1] = "ETA " .. self.duration((steps - event.step) / steps_per_second)
  end
  return table.concat(parts, "  ")
end

-- Returns the text for a terminal: with a bar if the steps are known and there is room, if need be without what can be
-- spared. It is never longer than a line, because a line that is broken cannot be changed.
local function on_terminal(self, event, samples, rate)
  local room = (self.columns or core.terminal_columns() or COLUMNS) - 1
  local steps = event.steps or self.steps
  for less = 0, steps and steps > 0 and #spared or -1 do
    local text = self:text(event, samples, rate, less)
    local width = math.min(BAR_MOST, room - #text - 10) -- [] 100 % and blanks
    if width >= BAR_LEAST then
      local share = math.min(1, event.step / steps)
      local full = math.floor(share * width)
      return ("[%s%s] %3d %%  %s"):format(("#"):rep(full), ("."):rep(width - full), math.floor(100 * share), text)
    end
  end
  return self.last:sub(1, math.max(room, 1))
end

--- Clears the changing line, so that something else can be written.
function Progress:wipe()
  if self.line == "" then return end
  self.out:write("\r", (" "):rep(#self.line), "\r")
  log.told(self.out:flush())
  self.line = ""
end

--- Shows the position of the run. It is cheap enough to be called after every step.
function Progress:update(event)
  if self.silent then return end
  local now = self.clock()
  local samples, steps = rates(self, now, event)
  self.last, self.at = self:text(event, samples, steps), { event, samples, steps }
  local final = event.step == (event.steps or self.steps)
  if not final and now - self.shown_at < (self.terminal and TERMINAL_SECONDS or PLAIN_SECONDS) then return end
  self.shown_at, self.shown = now, self.last
  if not self.terminal then
    self.out:write(self.last, "\n")
    log.told(self.out:flush())
    return
  end
  local line = on_terminal(self, event, samples, steps)
  self.out:write("\r", line, (" "):rep(#self.line - #line))
  log.told(self.out:flush())
  self.line = line
end

--- Ends the display; the last line stays.
function Progress:close()
  if self.closed then return end
  self.closed = true
  log.before = false
  if self.line ~= "" then
    local line = on_terminal(self, unpack(self.at, 1, 3))
    self.out:write("\r", line, (" "):rep(#self.line - #line), "\n")
  elseif not self.terminal and self.last and self.last ~= self.shown then
    self.out:write(self.last, "\n")
  end
  log.told(self.out:flush())
  self.line = ""
end

Progress.__call = Progress.update

return setmetatable(Progress, { __call = new })
