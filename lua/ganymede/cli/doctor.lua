--- ganymede doctor: prints the versions and the state of what training needs, what is missing, and how to install it.
--
-- Each line is ok, warn or fail. fail means that training on the CPU would not work. The exit status is 1 if a line
-- fails, otherwise 0.
local compiler = require "ganymede.base.compiler"
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

local verb = { prints = true, summary = "show what this machine has, what it lacks, and how to fix that" }

verb.examples = { "ganymede doctor" }

function verb.arguments(parser)
  parser:flag("--json", "print one JSON document instead of lines")
  parser:option("--out", "the folder in which runs will be written"):argname "DIR" :default "runs"
end

-- Each check returns (status, text[, fix[, facts]]): facts are for --json.
local checks = {}

local function check(name, run) checks[#checks + 1] = { name = name, run = run } end

check("luajit", function()
  local ffi = require "ffi"
  local on = jit.status()
  local facts = { version = jit.version, gc64 = ffi.abi "gc64", jit = on, architecture = jit.arch }
  local text = ("%s, %s%s"):format(jit.version, facts.gc64 and "gc64" or "no gc64", on and ", compiler on" or "")
  if not facts.gc64 and ffi.abi "64bit" then
    return "fail", text .. ": Lua objects are confined to the low 2 GB",
      "apt-get install --reinstall libluajit-5.1-2, or build LuaJIT with gc64", facts
  end
  facts.wrong = json.array(compiler.wrong)
  if #compiler.wrong > 0 then
    return "warn", ("%s, compiler off, because it compiles wrongly: %s; recipes run slower"):format(text,
      table.concat(compiler.wrong, "; ")), compiler.advice, facts
  end
  if not on then return "warn", text .. ", compiler off: recipes run slower", "see LuaJIT's -jon", facts end
  return "ok", text, nil, facts
end)

check("cpu", function()
  local device, sets = core.device(), machine.instruction_sets()
  local refusal, has_amx = core.amx_refusal()
  local facts = { model = machine.cpu_model(), backend = device.backend, instruction_sets = json.array(sets),
    amx = refusal or "used", pairs_slow = core.pairs_slow() }
  local text = ("%s; kernels: %s"):format(facts.model or "unknown", device.backend)
  if facts.pairs_slow and refusal then
    text = text .. ", bf16 in f32, which this CPU multiplies faster than pairs of bf16"
  end
  local has_avx2 = (" " .. table.concat(sets, " ") .. " "):find " avx2 .*fma "
  if device.backend == "cpu-generic" and has_avx2 then
    return "warn", text .. ", though this CPU has avx2", "configure with -DGANYMEDE_CPU_ISA=all", facts
  end
  if core.emulates_avx512() then
    return "warn", text .. ", AVX-512 emulated: this is a build for tests, many times slower",
      "configure with -DGANYMEDE_EMULATE_AVX512=OFF", facts
  end
  if has_amx and refusal then
    return "warn", ("%s, though this CPU has AMX: %s"):format(text, refusal), "Linux 5.16 or later, and a hypervisor "
      .. "that passes AMX on", facts
  end
  return "ok", text, nil, facts
end)

--- Checks that the kernels work on this CPU: compares a small product and its gradient with known numbers.
check("kernels", function()
  local gm = require "ganymede"
  return gm.scope(function()
    local n = 256
    local a = gm.full({ n, n }, 0.5):requires_grad(true)
    local b = gm.full({ n, n }, 2)
    local loss = gm.ops.matmul(a, b):sum() -- each element of a b is n; d loss / d a is the row sum of b: 2 n
    loss:backward()
    local gradient = a:grad():get(n, 1)
    if loss:item() ~= n ^ 3 or gradient ~= 2 * n then
      return "fail", ("a product of %d x %d matrices is wrong: %g, gradient %g; should be %g, %g"):format(n, n,
        loss:item(), gradient, n ^ 3, 2 * n), "run ./ganymede test and report it"
    end
    local began, rounds = core.now(), 10
    gm.no_grad(function()
      for _ = 1, rounds do gm.scope(function() gm.ops.matmul(a, b) end) end
    end)
    local gigaflops = rounds * 2 * n ^ 3 / (core.now() - began) / 1e9
    return "ok", ("compute; %d x %d products run at %.0f GFLOP/s"):format(n, n, gigaflops), nil,
      { gigaflops = gigaflops }
  end)
end)

check("cores", function()
  local cores, quota = machine.cores(), machine.cpu_quota()
  local facts = { usable = cores, quota = quota, threads = core.device().threads }
  local text = ("%s usable, %d threads by default"):format(cores or "unknown number of cores", facts.threads)
  if quota and cores and quota < cores then
    return "warn", ("%s, but the container grants %.1f cores' time"):format(text, quota),
      ("give each rank %d threads: taskset or docker run --cpuset-cpus"):format(math.max(1, math.floor(quota))), facts
  end
  return "ok", text, nil, facts
end)

check("memory", function()
  local memory = machine.memory()
  if not memory.total then return "warn", "cannot read /proc/meminfo", "mount /proc" end
  local text = ("%s, %s available"):format(machine.bytes(memory.total), machine.bytes(memory.available or 0))
  local room = memory.available or memory.total
  if memory.limit then
    text = text .. (", container limit %s"):format(machine.bytes(memory.limit))
    room = math.min(room, memory.limit)
  end
  if room < 2 ^ 28 then return "fail", text .. ": too little to train", "end other programs", memory end
  if room < 2 ^ 30 then return "warn", text .. ": room for small models only", "end other programs", memory end
  return "ok", text, nil, memory
end)

check("memlock", function()
  local limit = machine.memlock()
  if not limit then return "warn", "cannot read the limit of locked memory", "mount /proc" end
  if limit == math.huge then return "ok", "locked memory is not limited", nil, { unlimited = true } end
  local text, facts = machine.bytes(limit) .. " may be locked in memory", { bytes = limit }
  if limit < 2 ^ 23 then -- Linux's own default since 5.16 is 8 MiB
    return "warn", text .. ": fast networks and pinned buffers need more",
      "ulimit -l unlimited, or docker run --ulimit memlock=-1", facts
  end
  return "ok", text, nil, facts
end)

check("shared memory", function()
  local shm = machine.file_system "/dev/shm"
  if not shm then
    return "warn", "there is no /dev/shm; ranks on one machine will talk through it", "mount -t tmpfs tmpfs /dev/shm"
  end
  local text = ("/dev/shm: %s, %s free"):format(machine.bytes(shm.size), machine.bytes(shm.free))
  if shm.free < 2 ^ 28 then
    return "warn", text .. ": little for ranks on one machine",
      "mount -o remount,size=50% /dev/shm, or docker run --shm-size=4g", shm
  end
  return "ok", text, nil, shm
end)

check("run folder", function(args)
  local folder = machine.nearest_folder(args.out)
  local space = folder and machine.file_system(folder)
  local speed, why
  if folder then speed, why = machine.write_speed(folder, 2 ^ 25) end
  if not speed then
    return "fail", ("%s: cannot write there: %s"):format(args.out, why or "no such folder"),
      "name another with --out DIR, here and for run", { folder = args.out }
  end
  local facts = { folder = args.out, free = space and space.free, bytes_per_second = speed }
  local text = ("%s: %s free, written at %s/s"):format(args.out, machine.bytes(facts.free or 0), machine.bytes(speed))
  if facts.free and facts.free < 2 ^ 30 then
    return "warn", text .. ": checkpoints may not fit", "free space, or name another folder with --out DIR", facts
  end
  return "ok", text, nil, facts
end)

check("Fashion-MNIST", function()
  local folder, missing = "/usr/share/datasets/fashion-mnist", {}
  for _, name in ipairs { "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1" } do
    if not machine.read(("%s/%s-ubyte.gz"):format(folder, name)) then missing[#missing + 1] = name end
  end
  if #missing == 0 then return "ok", folder, nil, { folder = folder } end
  return "warn", ("%s lacks %s; the demo trains on it"):format(folder, table.concat(missing, ", ")),
    "apt-get install dataset-fashion-mnist", { missing = json.array(missing) }
end)

-- Starts two ranks like any run and computes a sum over them -> seconds, or nil and what the run printed.
local function sum_over_ranks()
  local path, out, began = os.tmpname(), os.tmpname(), core.now()
  local file = assert(io.open(path, "w"))
  file:write 'local gm, core = require "ganymede", require "ganymede.core"\nlocal t = gm.ones { 1000 }\n'
  file:write 'gm.comm.all_reduce(t)\nif core.rank() == 0 then print("sum", t:sum():item()) end\n'
  file:close()
  local status = os.execute(("GM_LOG=0 timeout -k 5 60 %s run %s -n 2 --threads 1 >%s 2>&1 </dev/null"):format(
    machine.quote(core.executable()), machine.quote(path), machine.quote(out)))
  local seconds, said = core.now() - began, machine.read(out) or ""
  os.remove(path)
  os.remove(out)
  if status == 0 and said:find "sum%s+2000\n" then return seconds end
  return nil, said:gsub("%s+$", "")
end

check("mpi", function()
  local fix = "apt-get install openmpi-bin libopenmpi-dev, and build again"
  local version = machine.mpi()
  if not version then return "warn", "mpirun not found: one rank only", fix, nil end
  local facts = { version = version, module = core.executable():match "^(.*/)" .. "ganymede_mpi.so" }
  if not machine.read(facts.module) then
    return "warn", version .. ", but this build has no MPI: one rank only", fix, facts
  end
  local seconds, said = sum_over_ranks()
  if not seconds then return "warn", ("%s; two ranks do not work: %s"):format(version, said), fix, facts end
  facts.seconds = seconds
  return "ok", ("%s; two ranks start and end within %.1f s"):format(version, seconds), nil, facts
end)

-- Says which library GPUs of several ranks would use to communicate, as a fact like those of the CUDA module.
local function nccl_fact()
  local links, why = core.comm_find_links()
  if not links then return { name = "nccl", found = false, text = why } end
  return { name = "nccl", found = true, text = ("%s, %s"):format(links.path, links.library) }
end

-- Asks the CUDA module what it finds -> facts by name ({ found =, text = }; of several devices the first); or nil and
-- the reason why there is no module.
local function cuda_facts()
  local list, why = core.cuda_facts()
  local by_name = {}
  if list then list[#list + 1] = nccl_fact() end
  for _, fact in ipairs(list or {}) do
    fact.text = fact.text:gsub("%s%[[^%]]+:%d+%]$", "") -- where in our source an error was made
    by_name[fact.name] = by_name[fact.name] or fact
  end
  return list and by_name, why, list
end

local function devices_of(list)
  local texts = {}
  for _, fact in ipairs(list) do
    if fact.name == "device" then table.insert(texts, fact.text) end
  end
  return texts
end

-- Checks the toolkit, the driver and the devices. A machine without a GPU trains on the CPU, which is ok.
check("cuda", function()
  local toolkit, gpus = machine.cuda_toolkit(), machine.gpus()
  local module, why, list = cuda_facts()
  local text = toolkit and "toolkit " .. toolkit or "no toolkit"
  local facts = { toolkit = toolkit, devices = json.array(gpus), module = module ~= nil }
  if not module then
    text = ("%s, %s; %s"):format(text, gpus[1] and ("driver %s, %d x %s (%s)"):format(gpus[1].driver, #gpus,
      gpus[1].name, gpus[1].memory) or "no driver or device", why)
    if gpus[1] then return "warn", text, "install the CUDA 13 toolkit and build: cmake --preset cuda", facts end
    return "ok", text, nil, facts
  end
  facts.usable = json.array(devices_of(list))
  if module.device and module.device.found then
    return "ok", ("%s, %s; driver %s"):format(text, table.concat(facts.usable, "; "), module.driver.text), nil, facts
  end
  text = ("%s, no driver or device; --device cuda cannot be used: %s"):format(text, module.driver.text)
  if gpus[1] then
    return "warn", text, "install the NVIDIA driver (580 or newer) with its libcuda.so.1", facts
  end
  return "ok", text, nil, facts
end)

-- Checks a library that only a GPU needs. If it is missing, this is a warning on a machine with a GPU.
local function check_library(name, fix)
  check(name, function()
    local module, why = cuda_facts()
    if not module then return "ok", "not looked for: " .. why, nil, nil end
    local fact = module[name]
    if fact.found then return "ok", fact.text, nil, { library = fact.text } end
    local status = module.device and module.device.found and "warn" or "ok"
    if fact.text:find "^turned off" then fix = "unset GANYMEDE_CUDA_" .. (name == "cudnn" and "DNN" or "BLAS") end
    return status, fact.text .. (status == "ok" and "; not needed without a GPU" or ""), status == "warn" and fix or nil
  end)
end

check_library("cublaslt", "apt-get install libcublas-13-0, or put the toolkit's lib64 on LD_LIBRARY_PATH")
check_library("cudnn",
  "apt-get install libcudnn9-cuda-13 (9.19 or newer), or name its libcudnn_graph.so.9 in GANYMEDE_CUDA_DNN")
check_library("nccl", "apt-get install libnccl2, or put it on LD_LIBRARY_PATH; without, GPUs talk through host memory")

--- Makes all checks in order -> a list of { name, status, text, fix, facts }. A check that raises an error has failed.
function verb.examine(args)
  local found = {}
  for i, entry in ipairs(checks) do
    local ok, status, text, fix, facts = pcall(entry.run, args)
    if not ok then status, text, fix, facts = "fail", tostring(status), "run ./ganymede test and report it", nil end
    found[i] = { name = entry.name, status = status, text = text, fix = fix, facts = facts }
  end
  return found
end

function verb.run(args)
  local found, failed = verb.examine(args), 0
  for _, line in ipairs(found) do
    if line.status == "fail" then failed = failed + 1 end
    if not args.json then
      print(("%-4s  %-14s %s"):format(line.status, line.name, line.text))
      if line.fix then print(("      %-14s fix: %s"):format("", line.fix)) end
    end
  end
  if args.json then print(json.encode({ ok = failed == 0, checks = found }, { indent = true })) end
  return failed == 0 and 0 or 1
end

return verb
