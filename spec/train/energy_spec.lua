--- Energy for --stats: counters of a made-up powercap folder and of a made-up NVML, and what is said without them.
local emulation = require "spec.cuda.emulation"
local device = require "spec.support.device"
local energy = require "ganymede.observe.energy"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

describe("energy", function()
  local folder

  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function package(n, name, uj, range)
    os.execute(("mkdir -p %s/intel-rapl:%d"):format(folder, n))
    shell.write(("%s/intel-rapl:%d/name"):format(folder, n), name .. "\n")
    shell.write(("%s/intel-rapl:%d/max_energy_range_uj"):format(folder, n), (range or 262143328850) .. "\n")
    shell.write(("%s/intel-rapl:%d/energy_uj"):format(folder, n), ("%d\n"):format(uj))
  end

  local function meter(options)
    options = options or {}
    options.powercap, options.gpu = folder, options.gpu or ""
    return energy.start(options)
  end

  it("adds up the packages, and nothing else that is there", function()
    package(0, "package-0", 5e6)
    package(1, "package-1", 1e6)
    package(2, "psys", 9e6)
    local m = meter()
    package(0, "package-0", 7e6)
    package(1, "package-1", 1.5e6)
    package(2, "psys", 90e6)
    assert.near(2.5, m:report().cpu_joules, 1e-9)
  end)

  it("goes on when a counter begins anew, as often as it is read", function()
    package(0, "package-0", 900, 999)
    local m = meter()
    package(0, "package-0", 100, 999)
    m:update(true)
    package(0, "package-0", 50, 999)
    assert.near((200 + 950) * 1e-6, m:report().cpu_joules, 1e-12)
  end)

  it("says why there is none", function()
    local report = meter():report()
    assert.is_nil(report.cpu_joules)
    assert.truthy(report.cpu_reason:find("no RAPL counters", 1, true))
    assert.equal("the run is not on a GPU", report.gpu_reason)
    os.execute(("mkdir -p %s/intel-rapl:0"):format(folder))
    shell.write(folder .. "/intel-rapl:0/name", "package-0\n")
    assert.truthy(meter():report().cpu_reason:find "energy_uj: No such file")
    assert.truthy(meter({ gpu = "GPU-0", nvml = "/nowhere/libnvidia-ml.so.1" }):report().gpu_reason:find "^no NVML: ")
    assert.truthy(meter({ gpu = "GPU-0", nvml = "libm.so.6" }):report().gpu_reason:find("lacks: nvmlInit_v2", 1, true))
    shell.write(folder .. "/intel-rapl:0/energy_uj", "many\n")
    assert.truthy(meter():report().cpu_reason:find "energy_uj: no number")
  end)

  it("says it when a counter is lost on the way", function()
    package(0, "package-0", 5)
    local m = meter()
    os.remove(folder .. "/intel-rapl:0/energy_uj")
    local report = m:report()
    assert.is_nil(report.cpu_joules)
    assert.truthy(report.cpu_reason:find "energy_uj")
  end)

  -- A library of two GPUs whose names end in 0 and 1; each reading of GPU n is 500 (n + 1) mJ more.
  local function make_nvml(start)
    shell.write(folder .. "/nvml.c", ([[
      #include <string.h>
      static char gpu[2]; static unsigned long long used[2] = {7000, 9000};
      int nvmlInit_v2(void) { return %d; }
      int nvmlShutdown(void) { return 0; }
      int nvmlDeviceGetHandleByUUID(const char *u, void **d)
      { int n = u[strlen(u) - 1] - '0'; *d = &gpu[n & 1]; return strncmp(u, "GPU-", 4) || n > 1; }
      int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v)
      { int i = (char *)d - gpu; *v = used[i]; used[i] += 500 * (i + 1); return 0; }
      const char *nvmlErrorString(int e) { (void)e; return "made up"; }
    ]]):format(start or 0))
    local nvml = folder .. "/libnvidia-ml.so.1"
    assert.equal(0, os.execute(("cc -shared -fPIC -o %s %s/nvml.c"):format(nvml, folder)))
    return nvml
  end

  it("reads the GPU in use from NVML, by the name that the driver has for it", function()
    local nvml = make_nvml()
    local report = meter({ gpu = "GPU-1", nvml = nvml }):report()
    assert.near(1, report.gpu_joules, 1e-9)
    assert.equal("GPU-1", report.gpu)
    assert.near(0.5, meter({ gpu = "GPU-0", nvml = nvml }):report().gpu_joules, 1e-9)
    report = meter({ gpu = "GPU-2", nvml = nvml }):report()
    assert.equal("NVML has no GPU GPU-2: made up", report.gpu_reason)
    assert.is_nil(report.gpu_joules)
    local count = meter { gpu = "GPU-0", nvml = nvml }
    count:update(true)
    count:update(true)
    assert.near(1.5, count:report().gpu_joules, 1e-9)
  end)

  it("says that NVML does not start", function()
    assert.equal("NVML does not start: made up", meter({ gpu = "GPU-0", nvml = make_nvml(9) }):report().gpu_reason)
  end)

  it("has the joules of the GPU of a run in its statistics", function()
    if not emulation.start() or not emulation.is_on() then return pending "there is no emulated GPU here" end
    make_nvml()
    local home, env = support.home(), emulation.environment()
    env.LD_LIBRARY_PATH = folder
    local result = support.run(home, { "run", "recipe.lua", "--steps", "2", "--device", "cuda", "--no-eval",
      "--stats", "stats.json" }, { env = env })
    assert.equal(0, result.code, result.err)
    local stats = support.json(home .. "/stats.json")
    shell.remove(home)
    assert.equal("GPU-00000000-0000-0000-0000-000000000000", stats.ranks[1].energy.gpu)
    assert.near(0.5, stats.energy.gpu_joules, 1e-9)
  end)

  it("counts machines and GPUs once, whichever rank tells it", function()
    local function rank(machine, cpu, gpu, joules)
      return { machine = machine, cpu_joules = cpu, gpu = gpu, gpu_joules = joules }
    end
    local all = energy.total({ rank("a", 10, "0", 100), rank("a", 11, "0", 90), rank("a", 9, "1", 200),
                               rank("b", 5, "0", 50) }, { tokens = 366, samples = 0 })
    assert.near(16, all.cpu_joules, 1e-9)
    assert.near(350, all.gpu_joules, 1e-9)
    assert.equal("cpu+gpu", all.of)
    assert.near(1, all.joules_per_token, 1e-9)
    assert.equal(json.null, all.joules_per_sample)
    assert.equal(json.null, all.reason)
  end)

  it("is null with the reason where a rank has none", function()
    local all = energy.total({ { machine = "a", cpu_joules = 3 }, { machine = "b", cpu_reason = "closed" } },
      { tokens = 10 })
    assert.equal(json.null, all.joules_per_token)
    assert.truthy(all.reason:find "CPU: closed")
    assert.equal(json.null, energy.total({}, {}).joules)
  end)

  it("is in the statistics of a run: a number a token, or null and why", function()
    local stats = {}
    gm.fit({
      seed = 1, dtype = "f32", steps = 2, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" },
      model = { type = "GPT", vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 },
      data = { train = { type = "Synthetic", kind = "tokens", length = 64, sequence_length = 8, vocab_size = 16 },
               batch_size = 4 },
    }, { stats = stats, log = function() end })
    local told = require("ganymede.observe.stats").document(stats, { exit_code = 0 }).energy
    if told.joules == json.null then
      assert.equal(json.null, told.joules_per_token)
      local why = device.is_cpu() and "^CPU: .+; GPU: the run is not on a GPU$" or "[CG]PU: ."
      assert.truthy(told.reason:find(why), told.reason)
    else
      assert.near(told.joules / (2 * 4 * 8), told.joules_per_token, 1e-9)
    end
  end)
end)
