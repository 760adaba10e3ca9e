--- Jobs of several ranks that stay and train one recipe after the other, for specs that start many.
--
--     standing.run(4, folder, { "run", "recipe.lua", "--stats", "stats.json" }, seconds)   as `ganymede run -n 4` does
--
-- To start and end 4 ranks costs more than 20 small steps on them. The first call for a number of ranks starts them, as
-- `ganymede spec -n 4`; each further call has its command line run in these processes, with everything put back that
-- one run leaves behind (spec.support.fresh; accounts and counters begin at 0). When the spec file ends, they end. If a
-- run fails, its ranks are gone, the call raises what they said, and the next call starts others.
--
-- The traps: flags of the job itself (--checked, --trace) and the environment are those of the start; scratch memory
-- that an earlier run has needed is still there. What depends on these asks for a job of its own (spec.parallel.job).
--
-- The two sides speak through files in a folder: request-K (the current folder and the words, a line each; "end"),
-- done-K when rank 0 has run the K-th, ended (the status) when the ranks are gone, out and err.
local ffi = require "ffi"
local shell = require "spec.support.shell"
ffi.cdef "int usleep(unsigned microseconds);"

local standing = {}

local PAUSE = 4000 -- microseconds between two looks for a file

local function text_of(path)
  local file = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- Writes a file whole, so that who looks for it never sees a part.
local function put(path, text)
  shell.write(path .. ".part", text)
  assert(os.rename(path .. ".part", path))
end

-- ---------------------------------------------------------------- on the ranks

-- Waits for a file -> its text; nil when the process that started the ranks is gone.
local function wait_for(path, client)
  for look = 1, math.huge do
    local text = text_of(path)
    if text then return text end
    if look % 100 == 0 and not text_of(("/proc/%d/stat"):format(client)) then return nil end
    ffi.C.usleep(PAUSE)
  end
end

local function without(now, before)
  if type(now) == "number" then return now - (before or 0) end
  for name, value in pairs(now) do now[name] = without(value, before and before[name]) end
  return now
end

-- Runs fn with core.counters counting from 0: this process has counted runs before.
local function counted_anew(core, fn, ...)
  local counters, before = core.counters, core.counters()
  function core.counters() return without(counters(), before) end
  local ok, result = pcall(fn, ...)
  core.counters = counters
  if not ok then error(result, 0) end
  return result
end

--- What a rank does: runs each request. folder: of the files; client: the number of the process that asks.
function standing.serve(folder, client)
  local core, cli = require "ganymede.core", require "ganymede.cli"
  local lfs = require("spec.run").file_system()
  for k = 1, math.huge do
    local request = wait_for(("%s/request-%d"):format(folder, k), client)
    if not request or request == "end" then return end
    local words = {}
    for line in request:gmatch "[^\n]+" do words[#words + 1] = line end
    require("spec.support.fresh").restore()
    core.comm_reset_traffic()
    core.memory_reset_peak()
    assert(lfs.chdir(table.remove(words, 1)))
    local code = counted_anew(core, cli.main, words)
    assert(code == 0, "a run on standing ranks failed")
    if core.rank() == 0 then put(("%s/done-%d"):format(folder, k), "") end
  end
end

-- ---------------------------------------------------------------- on the side of the spec

local jobs = {} -- by number of ranks: { folder =, asked = requests so far }

local SERVE = [[
describe("standing ranks", function()
  it("run what they are asked", function() require("spec.parallel.standing").serve(%q, %d) end)
end)
]]

--- Writes what the ranks do into a folder -> the command line that starts them there. Who measures puts another
--- function here: as specs, ranks hold all that runs specs, which the collector of garbage looks at in each step.
function standing.command(ranks, folder, client)
  shell.write(folder .. "/serve_spec.lua", SERVE:format(folder, client))
  return ("%s -n %d --threads 1 --comm-timeout 120 serve_spec.lua"):format(shell.program "spec", ranks)
end

local function start(ranks)
  local job = { folder = shell.temporary_folder(), asked = 0 }
  local client = assert(text_of "/proc/self/stat"):match "^%d+"
  local command = "timeout -k 5 3600 " .. standing.command(ranks, job.folder, client)
  shell.write(job.folder .. "/start", ("cd %s || exit\n%s >out 2>err </dev/null\necho $? >ended\n"):format(
    shell.quote(job.folder), command))
  job.process = assert(io.popen(("exec sh %s/start"):format(job.folder))) -- a child: its time is counted with ours
  jobs[ranks] = job
  return job
end

local function ask(job, text)
  job.asked = job.asked + 1
  put(("%s/request-%d"):format(job.folder, job.asked), text)
end

-- Waits until the files of the job say that its last request is done, or that it has ended -> whether it is done.
local function settled(job, seconds)
  local done, ended = ("%s/done-%d"):format(job.folder, job.asked), job.folder .. "/ended"
  for _ = 1, seconds * 1e6 / PAUSE do
    if text_of(done) then return true end
    if text_of(ended) then return false end
    ffi.C.usleep(PAUSE)
  end
  return nil
end

--- Ends all jobs; spec.support.shell calls it when a spec file ends.
function standing.stop()
  for ranks, job in pairs(jobs) do
    jobs[ranks] = nil
    if text_of(job.folder .. "/ended") == nil then
      ask(job, "end")
      settled(job, 60)
    end
    job.process:close()
    shell.remove(job.folder)
  end
end
shell.at_end(standing.stop)

--- Runs a command line on `ranks` ranks, in `folder` -> what they have said so far (the output of rank 0, errors).
-- seconds: how long it may take; nothing here is about speed.
function standing.run(ranks, folder, words, seconds)
  local job = jobs[ranks] or start(ranks)
  ask(job, folder .. "\n" .. table.concat(words, "\n"))
  if settled(job, seconds) then return end
  jobs[ranks] = nil
  put(("%s/request-%d"):format(job.folder, job.asked + 1), "end") -- in case that they still run
  local out, err = text_of(job.folder .. "/out") or "", text_of(job.folder .. "/err") or ""
  if text_of(job.folder .. "/ended") then job.process:close() end
  error(("%d ranks, which stay for several runs, failed or did not end within %d s in their run %d:\n%s\n%s"):format(
    ranks, seconds, job.asked, out, err), 0)
end

return standing
