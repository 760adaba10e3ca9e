-- ganymede doctor: each line follows what the machine is made to look like, and only what training needs makes it fail.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

--- The report as checks by name, and the exit status. prefix: a command that runs the doctor in some condition.
local function doctor(options)
  options = options or {}
  local command = ("%s %s doctor --json --out %s"):format(options.prefix or "", shell.quote(shell.executable()),
    shell.quote(options.out or "/tmp"))
  local result = shell.run(command)
  assert.equal("", result.err)
  local report, checks = json.decode(result.out), {}
  for _, entry in ipairs(report.checks) do checks[entry.name] = entry end
  return checks, result.code, report
end

describe("ganymede doctor", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  it("finds nothing that keeps this machine from training", function()
    local checks, code, report = doctor()
    assert.equal(0, code)
    assert.is_true(report.ok)
    for _, name in ipairs { "luajit", "cpu", "kernels", "cores", "memory", "run folder" } do
      assert.not_equal("fail", checks[name].status)
    end
    assert.is_true(checks.luajit.facts.gc64)
    assert.equal(jit.version, checks.luajit.facts.version)
    assert.truthy(checks.cpu.facts.backend:find "^cpu%-")
  end)

  it("prints a line a check, with ok, warn or fail in front", function()
    local result = run_host { "doctor", "--out", folder }
    assert.equal(0, result.code)
    local _, _, report = doctor()
    local seen = 0
    for line in result.out:gmatch "[^\n]+" do
      if line:find "^ok    " or line:find "^warn  " or line:find "^fail  " then seen = seen + 1 end
    end
    assert.equal(#report.checks, seen)
  end)

  it("counts the cores this process may use", function()
    local checks = doctor { prefix = "taskset -c 0" }
    assert.equal(1, checks.cores.facts.usable)
    assert.equal(1, checks.cores.facts.threads)
  end)

  it("warns of a low limit of locked memory and says what raises it", function()
    local checks, code = doctor { prefix = "ulimit -S -l 64; " }
    assert.equal("warn", checks.memlock.status)
    assert.equal(65536, checks.memlock.facts.bytes)
    assert.truthy(checks.memlock.fix:find "ulimit")
    assert.equal(0, code)
  end)

  it("fails when runs cannot be written", function()
    local file = shell.write(folder .. "/file", "in the way")
    local checks, code, report = doctor { out = file .. "/runs" }
    assert.equal("fail", checks["run folder"].status)
    assert.truthy(checks["run folder"].fix:find "--out", 1, true)
    assert.is_false(report.ok)
    assert.equal(1, code)
    assert.truthy(run_host({ "doctor", "--out", file .. "/runs" }).out:find "\nfail  run folder")
  end)

  it("measures where runs would be written, and leaves nothing there", function()
    local checks = doctor { out = folder .. "/not/yet/made" }
    assert.equal("ok", checks["run folder"].status)
    assert(checks["run folder"].facts.bytes_per_second > 0)
    assert.same({}, shell.lines("ls -A " .. shell.quote(folder)))
  end)

  it("starts two ranks and lets them add", function()
    local mpi = doctor().mpi
    assert.equal("ok", mpi.status, mpi.text)
    assert.is_true(mpi.facts.seconds > 0)
  end)

  it("says what is installed of MPI, CUDA and NCCL, and fails for none", function()
    local fake = folder .. "/bin"
    shell.run("mkdir " .. fake)
    shell.write(fake .. "/mpirun", "#!/bin/sh\necho 'mpirun (Some MPI) 9.8.7'\n")
    shell.write(fake .. "/nvidia-smi", "#!/bin/sh\necho 'Model T, 1024 MiB, 555.1'\necho 'Model T, 1024 MiB, 555.1'\n")
    shell.write(fake .. "/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 42.1, V42.1.0'\n")
    shell.run("chmod +x " .. fake .. "/*")
    local checks, code = doctor { prefix = ("PATH=%s:/usr/bin:/bin"):format(fake) }
    assert.equal(0, code)
    assert.equal("mpirun (Some MPI) 9.8.7", checks.mpi.facts.version)
    assert.equal("warn", checks.mpi.status) -- it starts nothing
    assert.truthy(checks.mpi.text:find("could not start 2 ranks", 1, true), checks.mpi.text)
    assert.equal("42.1", checks.cuda.facts.toolkit)
    assert.equal(2, #checks.cuda.facts.devices)
    assert.equal("555.1", checks.cuda.facts.devices[2].driver)

    checks, code = doctor { prefix = ("PATH=%s CUDA_HOME=%s"):format(folder .. "/empty", folder .. "/none") }
    assert.equal(0, code)
    assert.truthy(checks.mpi.text:find "not found")
    assert.truthy(checks.cuda.text:find "no toolkit, no driver")
  end)
end)

describe("ganymede.base.machine", function()
  local machine = require "ganymede.base.machine"

  it("reads bytes as people do", function()
    assert.equal("512 B", machine.bytes(512))
    assert.equal("1.0 KiB", machine.bytes(1024))
    assert.equal("23.5 GiB", machine.bytes(23.5 * 2 ^ 30))
  end)

  it("finds the nearest folder that exists", function()
    assert.equal("/tmp", machine.nearest_folder "/tmp/surely/not/there")
  end)

  it("agrees with nproc about the cores", function()
    assert.equal(tonumber(shell.lines("env -u OMP_NUM_THREADS nproc")[1]), machine.cores())
  end)

  it("returns nil for files and programs that are not there", function()
    assert.is_nil(machine.read "/surely/not/there")
    assert.is_nil(machine.ask "surely-no-such-program")
    assert.is_nil(machine.file_system "/surely/not/there")
  end)
end)
