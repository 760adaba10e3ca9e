--- Messages for a person, on standard error: "ganymede: ..."; and the lines of a run, on standard output.
--
-- GM_LOG chooses: 0 errors only, 1 warnings too, 2 (default) what was chosen for the user too, 3 details and
-- tracebacks. While a progress line stands on the terminal it is wiped first (log.before). Of several ranks, rank 0
-- speaks for all in what was chosen and in details; warnings and errors say whose they are: "ganymede: rank 2: ...".
local core = require "ganymede.core"
local missing = require "ganymede.base.missing"

local log = { level = tonumber(os.getenv "GM_LOG" or "") or 2 }

--- A function called before each message; the progress line sets it. false: none.
log.before = false

local function write(prefix, fmt, ...)
  local text = select("#", ...) > 0 and fmt:format(...) or fmt
  if log.before then log.before() end
  io.stdout:flush()
  io.stderr:write("ganymede: " .. prefix .. text .. "\n") -- one write, which no other rank's can divide
  io.stderr:flush()
end

-- "rank 2: " where there are several
local function whose() return core.world() > 1 and ("rank %d: "):format(core.rank()) or "" end

function log.error(fmt, ...) write(whose(), fmt, ...) end

function log.warn(fmt, ...)
  if log.level >= 1 then write((core.rank() > 0 and whose() or "") .. "warning: ", fmt, ...) end
end

--- Why standard output could not be written; false: it could, or its reader has left.
log.output_error = false

local EPIPE = 32

--- Takes what a write to standard output gave; that it failed is said once.
function log.told(ok, why, code)
  if ok or log.output_error or code == EPIPE then return end
  log.output_error = (why:gsub("^.*: ", ""))
  log.warn("standard output cannot be written: %s; the run goes on", log.output_error)
end

--- A line of the run itself, on standard output: how training goes, what an evaluation found.
function log.result(text)
  if log.before then log.before() end
  log.told(io.stdout:write(text, "\n"))
  log.told(io.stdout:flush())
end

function log.info(fmt, ...)
  if log.level >= 2 and core.rank() == 0 then write("", fmt, ...) end
end

function log.debug(fmt, ...)
  if log.level >= 3 and core.rank() == 0 then write("", fmt, ...) end
end

return missing.guard("log", setmetatable(log, { __call = function(_, ...) log.info(...) end }))
