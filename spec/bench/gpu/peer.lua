--- The peer: peer.py as a process beside this one, asked line by line, so that both can be timed in turn.
--
--     local peer, why = require("spec.bench.gpu.peer").start()      nil and why there is none
--     peer:ask("gpt autocast 32 10")                                -> a table, or nil and what it said
--     peer:close()
--
-- While it waits for a line it does nothing; what it holds on the device it holds until "drop" or close.
local ffi = require "ffi"
local json = require "ganymede.base.json"

ffi.cdef "void (*signal(int number, void (*handler)(int)))(int);"
local SIGPIPE, SIG_IGN = 13, 1

local Peer = {}
Peer.__index = Peer

local module = {}

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- nil and why: no Python, no PyTorch, no GPU in it.
function module.start()
  local python = os.getenv "GM_BENCH_PYTHON" or ""
  if python == "" then return nil, "there is no Python with PyTorch here" end
  local pipe = os.tmpname()
  os.remove(pipe)
  ffi.C.signal(SIGPIPE, ffi.cast("void (*)(int)", SIG_IGN)) -- a peer that dies is an answer, not our end
  if os.execute("mkfifo " .. quote(pipe)) ~= 0 then return nil, "cannot make a pipe" end
  local script = GANYMEDE_ROOT .. "/spec/bench/gpu/peer.py"
  local path = os.getenv "GM_BENCH_PEER_LIBRARIES" or "" -- not those that were put before it for us
  local answers = io.popen(("%s; exec %s -u %s <%s"):format(path == "" and "unset LD_LIBRARY_PATH"
    or "export LD_LIBRARY_PATH=" .. quote(path), quote(python), quote(script), quote(pipe)), "r")
  local self = setmetatable({ pipe = pipe, answers = answers, questions = io.open(pipe, "w") }, Peer)
  local about, why = self:ask "about"
  if not about then
    self:close()
    return nil, why
  end
  self.about = about
  return self
end

function Peer:ask(line)
  self.questions:write(line, "\n")
  self.questions:flush()
  local text = self.answers:read "*l"
  if not text then return nil, "the peer has ended" end
  local answer = json.decode(text, "the peer's answer")
  if answer.error then return nil, answer.error end
  return answer
end

function Peer:close()
  self.questions:close()
  self.answers:close()
  os.remove(self.pipe)
end

return module
