--- ganymede slurm: the script that it writes, what it refuses, and what the script does, with programs in place of
-- Slurm's. spec/faults/slurm_spec.lua runs the same on Slurm itself.
-- sanitizers: no, it holds a shell script and Lua alone
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end
local function lacks(text, part) assert.is_nil(text:find(part, 1, true), text) end

-- In place of Slurm's programs: each adds a line to the file `calls` and does what its text says.
local fakes = { sbatch = "echo 77", scontrol = "true", squeue = "echo ${STATE-RUNNING}",
  srun = "echo $MASTER_ADDR $GANYMEDE_JOB_KEY >>meeting; ${BEFORE-true}; exit ${STATUS-0}" }

local function install(home, more)
  os.execute("mkdir -p " .. shell.quote(home .. "/bin"))
  for name, text in pairs(fakes) do
    local path = home .. "/bin/" .. name
    shell.write(path, ("#!/bin/sh\necho %s \"$@\" >>'%s/calls'\n%s\n"):format(name, home, more and more[name] or text))
    os.execute("chmod +x " .. shell.quote(path))
  end
end

describe("ganymede slurm", function()
  local home
  before_each(function()
    home = support.home()
    install(home)
  end)
  after_each(function() shell.remove(home) end)

  local function path() return home .. "/bin:" .. os.getenv "PATH" end
  local function slurm(words)
    return support.run(home, { "slurm", "recipe.lua", unpack(words) }, { env = { PATH = path() } })
  end
  local function calls()
    local file = io.open(home .. "/calls")
    local text = file and file:read "*a" or ""
    if file then file:close() end
    return text
  end

  it("prints the script with --dry-run, and neither writes nor submits", function()
    local result = slurm { "-N", "2", "--ntasks-per-node", "3", "--cpus-per-task", "4", "--gpus-per-node", "1",
      "--time", "1-12:30", "--partition", "gpu", "--account", "a.b", "--requeue", "--warn", "60", "--sbatch=--mem=64G",
      "--out", "it's 5 %d", "--dry-run", "--", "--steps", "9", "--set", "optimizer.lr=1e-3" }
    assert.equal(0, result.code, result.err)
    local folder = shell.run("cd " .. shell.quote(home) .. " && pwd -P").out:gsub("%s+$", "")
    for _, line in ipairs { '--job-name="points"', "--nodes=2", "--ntasks-per-node=3", "--cpus-per-task=4",
      "--gpus-per-node=1", "--time=1-12:30", "--partition=gpu", "--account=a.b", "--requeue", "--signal=TERM@60",
      '--chdir="' .. folder .. '"', '--output="' .. folder .. "/it's 5 %%d/slurm-%j.log\"", "--mem=64G" } do
      has(result.out, "\n#SBATCH " .. line .. "\n")
    end
    has(result.out, ("\nstart=$(%s resize '%s/it'\\''s 5 %%d' --last) || start=srun\n"):format(shell.executable(),
      folder))
    has(result.out, ("\n$start %s run recipe.lua --out '%s/it'\\''s 5 %%d' --resume auto --steps 9 --set "
      .. "optimizer.lr=1e-3\n"):format(shell.executable(), folder))
    assert.equal("bin recipe.lua", support.names(home))
    assert.equal(0, shell.run("bash -n <<'END'\n" .. result.out .. "END").code)
  end)

  it("writes the script into the run's folder, submits it and prints the job's number", function()
    local result = slurm { "-N", "1" }
    assert.equal(0, result.code, result.err)
    assert.equal("77\n", result.out)
    local folder = result.err:match "run folder (%S+);"
    assert.is_truthy(folder:find("/runs/points%-%d+%-%d+%-%x+$"), result.err)
    assert.equal(("sbatch --parsable %s/slurm.sh\n"):format(folder), calls())
    local script = shell.read(folder .. "/slurm.sh")
    has(script, "#SBATCH --ntasks-per-node=1\n#SBATCH --no-requeue\n#SBATCH --signal=TERM@120\n")
    lacks(script, "scontrol requeue")
  end)

  it("says what sbatch says when it takes no job, and what to do without sbatch", function()
    install(home, { sbatch = "echo 'Invalid partition' >&2; exit 1" })
    local result = slurm { "-N", "1", "--partition", "none" }
    assert.equal(1, result.code)
    has(result.err, "/slurm.sh: Invalid partition")
    os.remove(home .. "/bin/sbatch")
    shell.run(("ln -s $(command -v timeout) $(command -v sh) %s/bin/"):format(shell.quote(home)))
    result = support.run(home, { "slurm", "recipe.lua", "-N", "1" }, { env = { PATH = home .. "/bin" } })
    assert.equal(2, result.code)
    has(result.err, "no sbatch in PATH")
  end)

  it("checks the recipe on as many ranks first, so that a wrong one does not wait in a queue", function()
    local result = slurm { "-N", "2", "--", "--set", "model.hidden=x" }
    assert.equal(2, result.code, result.err)
    has(result.err, "model.hidden must be a list")
    result = slurm { "-N", "3", "--", "--set", "parallel.pipeline=2", "--set", "num_microbatches=2" }
    assert.equal(2, result.code)
    has(result.err, "3 ranks")
    result = slurm { "-N", "3", "--ntasks-per-node", "2", "--dry-run", "--", "--set", "parallel.pipeline=2", "--set",
      "num_microbatches=2" }
    assert.equal(0, result.code, result.err)
    assert.equal("", calls())
    assert.equal("bin recipe.lua", support.names(home))
  end)

  it("refuses what Slurm, or the script, decides, and what leaves no time", function()
    for _, case in ipairs {
      { { "-N", "1", "--", "-n", "4" }, "-n after --: Slurm starts the ranks" },
      { { "-N", "1", "--", "--out", "x" }, "--out after --" },
      { { "-N", "1", "--", "--resume", "auto" }, "--resume auto after --" },
      { { "-N", "1", "--", "--resume", "old" }, "--resume old after --" },
      { { "-N", "1", "--", "--step", "4" }, "unknown option '--step'" },
      { { "-N", "1", "--sbatch", "mem=3" }, "--sbatch mem=3" },
      { { "-N", "1", "--partition", "a b" }, "'a b'" },
      { { "-N", "1", "--restart-delay", "2" }, "nothing is started again without --max-restarts" },
      { { "-N", "2", "--", "--standby" }, "after --: --standby: the ranks that stand by go on from memory" },
      { { "-N", "1", "--max-restarts", "-1" }, "--max-restarts" },
      { { "-N", "2", "--min-ranks", "1" }, "nothing is started again without --max-restarts" },
      { { "-N", "2", "--max-restarts", "1", "--min-ranks", "2" }, "--min-ranks 2: must be less than the 2 ranks" },
      { { "-N", "2", "--", "--memory-checkpoint", "5" }, "give --max-restarts before it" },
      { { "-N", "1", "--max-restarts", "1", "--", "--memory-checkpoint", "5" }, "one rank alone keeps none" },
      { { "-N", "2", "--max-restarts", "1", "--", "--least-ranks", "1" }, "give --min-ranks before it" },
      { { "-N", "1", "--ended", "6" }, "a script that `ganymede slurm --max-restarts` has made says this" },
      { { "-N", "1", "--time", "3" }, "no time is left to train" },
      { { "-N", "1", "--time", "2h" }, "'2h' is no time" },
      { { "-N", "1", "--time", "1:2:3:4" }, "'1:2:3:4' is no time" },
      { {}, "missing option '-N'" } } do
      local result = slurm(case[1])
      assert.equal(2, result.code, case[2])
      has(result.err, case[2])
    end
    for _, time in ipairs { "4", "3:01", "0:3:1", "1-0", "0-1:00", "0-0:4:00" } do
      assert.equal(0, slurm({ "-N", "1", "--dry-run", "--time", time }).code, time)
    end
    assert.equal("", calls())
  end)

  it("leaves an allocation to srun: run refuses -n on several machines, and says that one rank is one", function()
    local function run(words, env)
      return support.run(home, { "run", "recipe.lua", "--steps", "1", "--no-eval", unpack(words) }, { env = env })
    end
    local result = run({ "-n", "4" }, { SLURM_JOB_NUM_NODES = 2, SLURM_NTASKS = 4 })
    assert.equal(2, result.code, result.err)
    has(result.err, "-n 4 starts ranks on this machine alone, and this allocation of Slurm has 2 machines")
    result = run({}, { SLURM_JOB_NUM_NODES = 1, SLURM_NTASKS = 4 })
    assert.equal(0, result.code, result.err)
    has(result.err, "has 4 tasks, and this is one rank")
    assert.equal(0, run({ "-n", "2" }, { SLURM_JOB_NUM_NODES = 1, SLURM_NTASKS = 4, SLURM_JOB_ID = 7 }).code)
    result = run({ "--interface", "lo" }, {})
    assert.equal(2, result.code)
    has(result.err, "this run has one rank")
    result = run({ "--interface", "lo", "-n", "2" }, {})
    assert.equal(2, result.code)
    has(result.err, "those of -n share memory")
  end)

  describe("makes a script that", function()
    local folder
    before_each(function()
      folder = home .. "/run 1"
      assert.equal(0, slurm({ "-N", "1", "--requeue", "--out", "run 1" }).code)
      os.remove(home .. "/calls")
    end)

    local function run(env)
      return shell.run(("cd %s && env PATH=%s SLURM_JOB_ID=77 %s bash %s"):format(shell.quote(home),
        shell.quote(path()), env, shell.quote(folder .. "/slurm.sh")))
    end

    it("puts the job back after status 75, and after no other", function()
      assert.equal(75, run("STATUS=75").code)
      has(calls(), "\nscontrol requeue 77\n")
      for _, env in ipairs { "STATUS=0", "STATUS=6", "STATUS=75 STATE=COMPLETING" } do
        os.remove(home .. "/calls")
        assert.equal(tonumber(env:match "STATUS=(%d+)"), run(env).code)
        lacks(calls(), "requeue")
      end
    end)

    it("gives the ranks a place to meet and a key, another one each time", function()
      run ""
      run ""
      local host, key, second = shell.read(home .. "/meeting"):match "^(%S+) (%x+)\n%S+ (%x+)\n$"
      assert.equal(shell.run("hostname").out, host .. "\n")
      assert.equal(32, #key)
      assert.not_equal(key, second)
    end)

    it("waits for the ranks when Slurm sends SIGTERM to it too", function()
      local result = run "STATUS=75 BEFORE='eval kill -TERM $PPID; sleep 0.2; echo saved'"
      assert.equal(75, result.code, result.err)
      has(result.out, "saved")
      has(calls(), "scontrol requeue 77")
    end)
  end)

  describe("with --max-restarts makes a script that", function()
    local folder
    before_each(function()
      folder = home .. "/run 1"
      assert.equal(0, slurm({ "-N", "2", "--requeue", "--out", "run 1", "--max-restarts", "2", "--restart-delay",
        "0.01" }).code)
      os.remove(home .. "/calls")
    end)

    -- before: what each start of the ranks does, in words of the shell
    local function run(status, before)
      return shell.run(("cd %s && env PATH=%s SLURM_JOB_ID=77 STATUS=%d BEFORE=%s bash %s"):format(shell.quote(home),
        shell.quote(path()), status, shell.quote(before or ""), shell.quote(folder .. "/slurm.sh")))
    end

    local function starts()
      local _, n = calls():gsub("srun ", "")
      return n
    end

    it("has removed what lies in the memory of the machines, however the ranks ended", function()
      local words = { "-N", "2", "--out", "run 2", "--max-restarts", "2", "--restart-delay", "0.01", "--min-ranks", "1",
        "--", "--memory-checkpoint", "5" }
      assert.equal(0, slurm(words).code)
      local text = shell.read(home .. "/run 2/slurm.sh")
      has(text, "\n#SBATCH --no-kill\n")
      has(text, " --resume auto --least-ranks 1 --memory-checkpoint 5\n")
      lacks(shell.read(folder .. "/slurm.sh"), "--no-kill")
      lacks(shell.read(folder .. "/slurm.sh"), "--ended over")
      os.remove(home .. "/calls")
      folder = home .. "/run 2"
      local result = run(8)
      assert.equal(8, result.code, result.err)
      assert.equal(2, starts()) -- the ranks, and what removes
      has(calls(), "slurm recipe.lua -N 2 --out " .. shell.run("cd " .. shell.quote(folder) .. " && pwd -P").out:gsub(
        "%s+$", "") .. " --max-restarts 2 --ended forget\n")
    end)

    it("starts the ranks again until as many attempts in a row have left no checkpoint", function()
      local result = run(6)
      assert.equal(6, result.code, result.err)
      assert.equal(3, starts())
      has(result.err, "the ranks ended with status 6; they are started again in 0.01 s")
      has(result.err, "3 attempts in a row left no newer checkpoint (--max-restarts 2)")
      assert.equal(6, run(6).code) -- submitted again, it counts anew
      assert.equal(6, starts())
    end)

    it("leaves ends alone that a start cannot mend", function()
      for status, why in pairs { [0] = "", [2] = "the command or the recipe is wrong", [5] = "is damaged",
                                 [8] = "diverged", [143] = "was stopped", [1] = "failed before its first step" } do
        os.remove(home .. "/calls")
        local result = run(status)
        assert.equal(status, result.code, result.err)
        assert.equal(1, starts())
        has(result.err, why)
      end
      os.remove(home .. "/calls")
      assert.equal(75, run(75).code)
      assert.equal(1, starts())
      has(calls(), "\nscontrol requeue 77\n")
    end)

    it("takes an error for one that may pass where the ranks have trained, and the same twice for none", function()
      local result = run(1, "eval echo '{}' >> 'run 1/metrics.jsonl'")
      assert.equal(1, result.code)
      assert.equal(2, starts())
      has(result.err, "the same error came twice in a row")
    end)

    it("begins no other attempt once Slurm has sent SIGTERM", function()
      local result = run(6, "eval kill -TERM $PPID; sleep 0.2")
      assert.equal(6, result.code, result.err)
      assert.equal(1, starts())
    end)
  end)
end)
