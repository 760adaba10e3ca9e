--- A file that a run adds to while it goes on. What a full disk refuses waits in memory until there is room.
--
--     local file = WaitingFile { path = "runs/x/metrics.jsonl", what = "lines", of = "metrics", most = 100000 }
--     file:write(text)      -- whole or not at all
--     file:close()
--
-- what: of what the texts are, for warnings; of: of what they are, where the file's path would not do; most: as many
-- texts wait at most, or most_bytes: as many bytes. Warnings say when texts wait, and at the end how many were lost.
-- @module ganymede.observe.waiting_file
local core = require "ganymede.core"
local log = require "ganymede.base.log"

local WaitingFile = {}
WaitingFile.__index = WaitingFile

local function new(_, spec)
  return setmetatable({ path = spec.path, what = spec.what, of = spec.of or spec.path, most = spec.most or math.huge,
    most_bytes = spec.most_bytes or math.huge, file = core.append_open(spec.path), first = 1, last = 0, bytes = 0,
    lost = 0 }, WaitingFile)
end

local function count(self) return self.last - self.first + 1 end

-- Writes what waits, oldest first. Returns nil, or the reason why the system refuses.
local function flush(self)
  while self.first <= self.last do
    local text = self[self.first]
    local ok, why = self.file:write(text)
    if not ok then return why end
    self[self.first], self.first, self.bytes = nil, self.first + 1, self.bytes - #text
  end
end

local function add(self, text)
  if count(self) >= self.most or self.bytes + #text > self.most_bytes then
    self.lost = self.lost + 1
    return
  end
  self.last, self.bytes = self.last + 1, self.bytes + #text
  self[self.last] = text
end

--- Adds a text.
function WaitingFile:write(text)
  add(self, text)
  local why = flush(self)
  if why and not self.said then
    log.warn("%s; training goes on, its %s wait in memory", why, self.what)
  elseif self.said and not why then
    log.info("%s can be written again", self.path)
  end
  self.said = why
end

--- Whether nothing waits.
function WaitingFile:is_written() return count(self) == 0 end

--- Closes the file, and warns if texts could not be written.
function WaitingFile:close()
  local why = flush(self)
  self.file:close()
  local lost = count(self) + self.lost
  if lost == 0 then return end
  log.warn("%d %s of %s were lost: %s", lost, self.what, self.of, why or self.path .. " was full for too long")
end

return setmetatable(WaitingFile, { __call = new })
