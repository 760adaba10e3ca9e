--- The first moments of a job: who listens, and what is left of one that is killed or stopped then.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local busy = "if rank == 0 then ready() end local i = 0 while true do i = i + 1 end"

-- Addresses that a process listens on, in hexadecimal.
local function listening(pid)
  local script = [[
    cd /proc/%d/fd && for fd in *; do readlink $fd; done | sed -n 's/^socket:\[\(.*\)\]$/\1/p' >%s
    awk 'NR == FNR { mine[$1] = 1; next } $4 == "0A" && mine[$10] { split($2, at, ":"); print at[1] }' %s \
      /proc/net/tcp /proc/net/tcp6]]
  local folder = shell.temporary_folder()
  local list = shell.quote(folder .. "/list")
  local lines = shell.lines(script:format(pid, list, list))
  shell.remove(folder)
  return lines
end

describe("a job on one machine", function()
  it("listens to that machine alone, and its ranks know nothing of how", function()
    local job = support.start("assert(not (os.getenv 'LD_PRELOAD' or ''):find 'loopback') " .. busy)
    job:file "ready"
    local addresses = listening(job:pids("^mpirun ")[1])
    job:signal("INT", job:supervisor())
    support.check(job:finish(), 130, "stopped by Ctrl-C")
    assert.is_true(#addresses > 0)
    local loopback = { ["0100007F"] = true, ["00000000000000000000000001000000"] = true }
    for _, address in ipairs(addresses) do assert.is_true(loopback[address] or false, address) end
  end)
end)

describe("a supervisor that is killed while its ranks start", function()
  it("leaves no process and no folder", function()
    for i = 1, 6 do
      local job = support.start(busy)
      local pid = job:supervisor()
      os.execute(("sleep %g"):format(0.02 * i))
      job:signal("KILL", pid)
      assert.equal(137, job:finish().code)
    end
  end)
end)

-- A job whose mpirun is a shell script; real: the path of the one that it stands for.
local function start_with(script)
  local folder = shell.temporary_folder()
  local real = shell.lines("command -v mpirun")[1]
  shell.write(folder .. "/mpirun", ("#!/bin/sh\n" .. script):gsub("REAL", real))
  assert(os.execute("chmod +x " .. shell.quote(folder .. "/mpirun")) == 0)
  local job = support.start(busy, {}, ("env --default-signal=INT PATH=%s:\"$PATH\" %%s run recipe.lua -n 3"):format(
    shell.quote(folder)))
  return job, folder
end

describe("mpirun that hangs and hears no SIGTERM", function()
  it("is ended some seconds after its supervisor was killed", function()
    local job, folder = start_with "trap '' TERM HUP INT\necho $$ >begun\nwhile true; do sleep 1; done"
    job:file "begun"
    job:signal("KILL", job:supervisor())
    local result = job:finish() -- nothing of it is left
    shell.remove(folder)
    assert.equal(137, result.code)
  end)
end)

-- Rank 2 is a shell that waits; the others wait for it in MPI, where they hear nothing.
describe("a stop before all ranks have joined", function()
  it("ends them at once", function()
    local job, folder = start_with [[
      for word; do
        case $word in */ganymede) set -- "$@" sh -c '
          echo >"begun$OMPI_COMM_WORLD_RANK"
          while test "$OMPI_COMM_WORLD_RANK" = 2 && kill -0 $PPID; do sleep 0.1; done
          exec "$@"' sh;; esac
        set -- "$@" "$word"
        shift
      done
      exec REAL "$@"]]
    for rank = 0, 2 do job:file("begun" .. rank) end
    os.execute "sleep 1" -- they are in MPI by then, or it is an easier case
    job:signal("INT", job:supervisor())
    local result = job:finish()
    shell.remove(folder)
    support.check(result, 130, "ganymede: stopped by Ctrl-C")
  end)
end)

describe("a job that is stopped while it starts", function()
  it("goes on: its ranks have 60 s to start beside that time #slow", function()
    local job, folder = start_with 'echo >begun\nsleep 2\nexec REAL "$@"'
    job:file "begun"
    local all = job:pids "."
    job:signal("STOP", all)
    os.execute "sleep 62"
    job:signal("CONT", all)
    job:file "ready"
    job:signal("INT", job:supervisor())
    local result = job:finish()
    shell.remove(folder)
    support.check(result, 130, "ganymede: stopped by Ctrl-C")
  end)
end)

describe("ranks that never start", function()
  it("are given up after a minute, with what mpirun says #slow", function()
    local job, folder = start_with "echo 'it waits'\nexec sleep 1000"
    local result = job:finish()
    shell.remove(folder)
    assert.equal(1, result.code, result.err)
    assert.matches("ganymede: only 0 of 3 ranks started within [67]%d seconds; mpirun says:\nit waits\n", result.err)
  end)
end)

describe("mpirun that is killed while it starts ranks", function()
  it("is named, with status 6", function()
    local job = support.start(busy)
    local launcher = job:pids "^mpirun "
    while #launcher == 0 do launcher = job:pids "^mpirun " end
    job:signal("KILL", launcher)
    support.check(job:finish(), 6, "ganymede: mpirun was killed by signal 9 (Killed)")
  end)
end)

describe("a job where a file system is almost full", function()
  local prints = "if rank == 0 then print(core.job_folder()) end"

  -- A job of two ranks, where a file system of so many MB lies at a place. place: nil: in TMPDIR; words: more of run.
  local function run(body, size, place, words)
    if shell.run("unshare -m mount -t tmpfs tmpfs /dev/shm").code ~= 0 then
      pending "no file system can be mounted here (unshare -m)"
    end
    local home = support.home(body)
    local tmpdir = place and "-u TMPDIR" or "TMPDIR=" .. home .. "/small"
    place = place or home .. "/small"
    local script = ("mkdir -p %s && mount -t tmpfs -o size=%dm tmpfs %s && cd %s && exec env %s timeout -k 5 240 %s "
      .. "run recipe.lua -n 2 --threads 1 %s"):format(place, size, place, home, tmpdir, shell.quote(shell.executable()),
      words or "")
    local result = shell.run(("GANYMEDE_ROOT=%s unshare -m sh -c %s"):format(shell.quote(GANYMEDE_ROOT),
      shell.quote(script)))
    shell.remove(home)
    return result
  end

  it("takes another one, where nobody has said which", function()
    local result = run(prints, 6, "/dev/shm")
    assert.equal(0, result.code, result.err)
    assert.matches("^/tmp/ganymede%-%w+\n$", result.out)
  end)

  it("says so before it starts, where TMPDIR names it", function()
    local result = run(prints, 6)
    assert.equal(1, result.code, result.err)
    assert.matches("ganymede: /%S+/small has less than 14 MB left, which a job needs at its start; make room there, or "
      .. "set TMPDIR to another folder", result.err)
  end)

  it("goes on without ranks that stand by where they have no room", function()
    local result = run(support.training "core.sleep(0.03)", 20, nil,
      "--out out --max-restarts 1 --memory-checkpoint 2 --standby")
    assert.equal(0, result.code, result.err)
    assert.matches("%-%-standby: the ranks that stood by are gone, and a death costs a start from here on: /%S+/small "
      .. "has less than 14 MB left", result.err)
  end)
end)
