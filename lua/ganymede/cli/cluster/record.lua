--- The folder of a cluster of jobs: events.jsonl, cluster.json, and a folder of each job, which is that of its run.
--
--     local record = Record(path, { id, policy, nodes })
--     record:write("start", job, { ranks = 2 })
--     record.events           -- those that a process before this one has written, oldest first
--
-- Each event is a line of JSON: t (seconds since the cluster began, also over restarts of the scheduler), event, job,
-- and what the event says. What is in the file decides where a scheduler that was killed goes on. The folder belongs to
-- one scheduler at a time (.lock).
-- @module ganymede.cli.cluster.record
local core = require "ganymede.core"
local document = require "ganymede.observe.document"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local runs_folder = require "ganymede.job.runs_folder"
local WaitingFile = require "ganymede.observe.waiting_file"

local Record = {}
Record.__index = Record

-- The events of a file, without a line that is incomplete.
local function read(path)
  local events = {}
  json.each_line(path, function(event)
    if type(event.event) == "string" and type(event.t) == "number" then events[#events + 1] = event end
  end)
  return events
end

-- Whether the last line was written whole; what follows must begin a line of its own.
local function ends_whole(path)
  local handle = io.open(path, "rb")
  if not handle then return true end
  local size = handle:seek "end"
  local last = size > 0 and handle:seek("set", size - 1) and handle:read(1) or "\n"
  handle:close()
  return last == "\n"
end

--- Opens a folder, and makes it if there is none. That of other jobs is refused. about: id, and what `begin` says.
local function open(_, path, about)
  failure.about(path, core.make_folders, path)
  local held = runs_folder.hold(path)
  local ok, self = pcall(function()
    local before = document(path .. "/cluster.json")
    if before and before.id ~= about.id then
      failure(2, "%s holds other jobs: the file, its nodes or a recipe has changed since; give another --out", path)
    end
    if not before and #core.list_folder(path) > 0 then -- .lock is not listed
      failure(2, "%s is not empty and holds no cluster; give another --out", path)
    end
    local name = path .. "/events.jsonl"
    local events = read(name)
    local whole = ends_whole(name)
    local made = setmetatable({ path = path, held = held, id = about.id, events = events, continues = #events > 0 },
      Record)
    if not before then made:save {} end -- before any other file: by it the folder is known as ours
    made.file = WaitingFile { path = name, what = "events" }
    if not whole then made.file:write "\n" end
    return made
  end)
  if not ok then
    held:close()
    error(self, 0)
  end
  local first = self.events[1]
  self.wall = first and first.wall or core.wall()
  self.offset = core.wall() - self.wall - core.now()
  self:write(self.continues and "continue" or "begin", nil, about)
  return self
end

--- Seconds since the cluster began.
function Record:now() return core.now() + self.offset end

--- The folder of a job's run.
function Record:of(name) return self.path .. "/" .. name end

--- Adds an event. job: its name or nil; more: what it says.
function Record:write(event, job, more)
  local line = { t = math.floor(self:now() * 1000 + 0.5) / 1000, event = event, job = job }
  if event == "begin" then line.wall = self.wall end
  for key, value in pairs(more or {}) do line[key] = value end
  self.file:write(json.encode(line) .. "\n")
end

--- All events until now.
function Record:all() return read(self.path .. "/events.jsonl") end

--- Writes cluster.json, whole: which cluster this is, and what has come of it.
function Record:save(results)
  results.id = self.id
  core.write_whole(self.path .. "/cluster.json", json.encode(results, { indent = true }) .. "\n")
end

function Record:close()
  if self.held then
    self.file:close()
    self.held:close()
  end
  self.held = nil
end

return setmetatable(Record, { __call = open })
