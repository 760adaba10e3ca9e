--- Who started a process as a rank (host/comm/launched.h): what variables of launchers mean, alone and together.
local core = require "ganymede.core"
local ffi = require "ffi"
ffi.cdef [[
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
]]

local names = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
  "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
  "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST", "SLURM_JOB_ID",
  "SLURM_STEP_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
  "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "GANYMEDE_JOB_KEY" }

-- What core.launched says in an environment that has these variables of launchers alone.
local function launched(env)
  local before = {}
  for _, name in ipairs(names) do
    before[name] = os.getenv(name)
    if env[name] then ffi.C.setenv(name, tostring(env[name]), 1) else ffi.C.unsetenv(name) end
  end
  local ok, found = pcall(core.launched)
  for _, name in ipairs(names) do
    if before[name] then ffi.C.setenv(name, before[name], 1) else ffi.C.unsetenv(name) end
  end
  return ok and found, found
end

local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for name, value in pairs(t) do out[name] = value end
  end
  return out
end

local torch = { RANK = 2, WORLD_SIZE = 4, LOCAL_RANK = 1, LOCAL_WORLD_SIZE = 3, MASTER_ADDR = "10.0.0.1",
  MASTER_PORT = 29500 }
local step = { SLURM_JOB_ID = 7, SLURM_STEP_ID = 0, SLURM_STEP_NUM_TASKS = 6, SLURM_PROCID = 4, SLURM_LOCALID = 1,
  SLURM_STEP_TASKS_PER_NODE = "3(x2)", SLURM_STEP_NODELIST = "n[3-4]", SLURM_NTASKS = 6 }
local mpi = { OMPI_COMM_WORLD_SIZE = 8, OMPI_COMM_WORLD_RANK = 5, OMPI_COMM_WORLD_LOCAL_RANK = 1,
  OMPI_COMM_WORLD_LOCAL_SIZE = 4 }

describe("the launcher of a process", function()
  local function is(env, by, world, rank, place, here, tcp)
    local found, why = launched(env)
    assert.is_truthy(found, why)
    found.address, found.port = nil, nil
    assert.same({ by = by, world = world, rank = rank, place = place, here = here, tcp = tcp }, found)
  end

  local function refused(env, ...)
    local found, why = launched(env)
    assert.is_false(found)
    for _, part in ipairs { ... } do assert.is_truthy(why:find(part, 1, true), why) end
  end

  it("is nobody in a plain environment, in a batch script, and where WORLD_SIZE stands alone", function()
    is({}, "nobody", 1, 0, 0, 0, false)
    is({ SLURM_JOB_ID = 7, SLURM_NTASKS = 6, SLURM_PROCID = 0, SLURM_LOCALID = 0 }, "nobody", 1, 0, 0, 0, false)
    is({ WORLD_SIZE = 4 }, "nobody", 1, 0, 0, 0, false)
  end)

  it("is mpirun, also in a step of Slurm and under torchrun's variables", function()
    is(mpi, "mpirun", 8, 5, 1, 4, false)
    is(with(step, mpi), "mpirun", 8, 5, 1, 4, false)
    is(with(torch, mpi), "mpirun", 8, 5, 1, 4, false)
    is(with(step, { OMPI_COMM_WORLD_SIZE = 1, OMPI_COMM_WORLD_RANK = 0 }), "mpirun", 1, 0, 1, 0, false)
  end)

  it("is srun, whose ranks join by MPI where it offers PMIx, and over TCP elsewhere", function()
    is(step, "srun", 6, 4, 1, 3, true)
    is(with(step, { PMIX_RANK = 4 }), "srun", 6, 4, 1, 3, false)
    is(with(step, { PMI_RANK = 4, PMI_SIZE = 6 }), "srun", 6, 4, 1, 3, true) -- Open MPI has no PMI any more
    is({ PMI_RANK = 4, PMI_SIZE = 6 }, "mpirun", 6, 4, 0, 0, false)
    is(with(step, { SLURM_STEP_NUM_TASKS = 1, SLURM_PROCID = 0 }), "srun", 1, 0, 1, 3, true)
    refused(with(step, { SLURM_PROCID = 6 }), "6 tasks", "SLURM_PROCID")
    refused(with(step, { SLURM_STEP_NODELIST = false }), "MASTER_ADDR")
  end)

  it("is the environment where torchrun's four variables are, and each that is missing is named", function()
    is(torch, "the environment", 4, 2, 1, 3, true)
    refused(with(torch, { MASTER_ADDR = false }), "MASTER_ADDR is not")
    refused(with(torch, { MASTER_PORT = false }), "MASTER_PORT is not")
    refused(with(torch, { RANK = 4 }), "RANK is '4'", "0 to 3")
    refused(with(torch, { RANK = "two" }), "RANK is 'two'")
    refused(with(torch, { MASTER_PORT = "http" }), "MASTER_PORT is 'http'")
    refused(with(torch, { MASTER_PORT = 70000 }), "70000", "65535")
  end)

  it("says where the ranks meet: as the environment says, or on the first machine of the step", function()
    local function meets(env, address, port)
      local found, why = launched(env)
      assert.is_truthy(found, why)
      assert.equal(address, found.address)
      if port then assert.equal(port, found.port) end
      assert.is_true(found.port >= 20000 and found.port < 30000)
      return found.port
    end
    meets(torch, "10.0.0.1", 29500)
    meets(with(step, { MASTER_ADDR = "m", MASTER_PORT = 29501 }), "m", 29501)
    for list, first in pairs { ["n[3-4]"] = "n3", ["n[03,7-9],m1"] = "n03", ["m1,n[3-4]"] = "m1", ["m1"] = "m1" } do
      meets(with(step, { SLURM_STEP_NODELIST = list }), first)
    end
    local port = meets(step, "n3")
    assert.equal(port, meets(with(step, { SLURM_PROCID = 1 }), "n3"))
    assert.not_equal(port, meets(with(step, { SLURM_STEP_ID = 1 }), "n3"))
    -- torchrun listens at MASTER_PORT itself
    local beside = meets(with(torch, { TORCHELASTIC_USE_AGENT_STORE = "True", MASTER_PORT = 29400 }), "10.0.0.1")
    assert.not_equal(29400, beside)
    meets(with(torch, { TORCHELASTIC_USE_AGENT_STORE = "False" }), "10.0.0.1", 29500)
  end)

  it("must be one: a step of srun and variables of another world contradict each other", function()
    is(with(step, with(torch, { WORLD_SIZE = 6, RANK = 4 })), "the environment", 6, 4, 1, 3, true)
    refused(with(step, torch), "rank 2 of 4", "task 4 of 6")
    refused(with(step, with(torch, { WORLD_SIZE = 6 })), "rank 2 of 6", "task 4 of 6")
    is(with(step, with(torch, { TORCHELASTIC_RUN_ID = "x" })), "the environment", 4, 2, 1, 3, true) -- torchrun itself
  end)
end)
