--- The variables of the environment that the program reads: one table, for checks, `ganymede help environment` and
-- docs/command_line.md.
--
-- A variable GANYMEDE_... that is not in the table is refused before anything starts, with the name that was probably
-- meant. What launchers set (OMPI_..., PMI_..., SLURM_..., RANK, MASTER_ADDR) is theirs, and is not looked at here.
-- @module ganymede.base.environment
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

local environment = {}

--- Of each: whose it is ("user", "spec": of tests and benches, "program": one process of ours tells another),
-- a sentence, and, where not every value means something, a pattern of those that do and words for it.
environment.variables = {
  GM_LOG = { whose = "user", pattern = "^[0-3]$", allowed = "0, 1, 2 or 3",
    doc = "how much is told: 0 errors, 1 warnings too, 2 (default) what was chosen for you too, 3 details too" },
  GANYMEDE_ROOT = { whose = "user", doc = "the folder that holds lua/; default: beside the program, or above it" },
  GANYMEDE_HISTORY = { whose = "user", doc = "the history of the repl; default ~/.ganymede_history, empty: none" },
  GANYMEDE_CUDA_DRIVER = { whose = "user", doc = "the library to load in place of libcuda.so.1" },
  GANYMEDE_CUDA_BLAS = { whose = "user", doc = "the library to load as cuBLASLt; none: do without it" },
  GANYMEDE_CUDA_DNN = { whose = "user", doc = "the library to load as cuDNN's graphs; none: do without it" },
  GANYMEDE_SHARED_MEMORY = { whose = "user", one_of = { none = true, rings = true, direct = true },
    allowed = "none, rings or direct", doc = "none: ranks of one machine talk over MPI or TCP, as machines do; rings: "
      .. "they share memory, and do not read each other's own; direct: messages are read where they lie, without "
      .. "copies in shared memory" },
  GANYMEDE_CUDA_NCCL = { whose = "user", doc = "the library to load as NCCL; none: do without it" },
  GANYMEDE_CACHE = { whose = "user",
    doc = "the folder where builds keep kernels for GPUs by content, and `parallel = \"auto\"` its machines" },
  GANYMEDE_JOB_KEY = { whose = "user",
    doc = "a word that all ranks of a job have; ranks that meet over TCP refuse those with another one" },
  GANYMEDE_CI_BASE = { whose = "spec", doc = "the commit that .ci/run compares with" },
  GANYMEDE_BIN = { whose = "spec", doc = "the program that a bench measures" },
  GANYMEDE_CUDA_SUITE = { whose = "spec", one_of = { all = true, only = true, none = true },
    allowed = "all, only or none", doc = "specs of ops: cuda with all kinds of outputs, on cuda alone, or without it" },
  GANYMEDE_CUDA_RECORD = { whose = "spec", doc = "of the emulated GPU: a file that lists what it did" },
  GANYMEDE_CUDA_DEVICES = { whose = "spec", doc = "of the emulation: how many GPUs there are" },
  GANYMEDE_CUDA_NO_IMAGES = { whose = "spec", doc = "of the emulation: it holds images of kernels to be empty" },
  GANYMEDE_CUDA_MEMORY = { whose = "spec", doc = "of the emulation: bytes of each" },
  GANYMEDE_CUDA_SAY = { whose = "spec", doc = "of the emulation: why a product is refused" },
  GANYMEDE_FAKE_CUBLAS_BITS = { whose = "spec", doc = "of the emulation: whether answers have last bits of their own" },
  GANYMEDE_FAKE_CUBLAS_FAST = { whose = "spec", doc = "of the emulation: the answer that is fast, by rank" },
  GANYMEDE_FAKE_CUBLAS_INVALID = { whose = "spec", doc = "of the emulation: the epilogue that is called invalid" },
  GANYMEDE_FAKE_CUBLAS_SLOW = { whose = "spec", doc = "of the emulation: the epilogue that is slow" },
  GANYMEDE_FAKE_CUBLAS_VERSION = { whose = "spec", doc = "of the emulation: the version of cuBLASLt, by rank" },
  GANYMEDE_FAKE_CUDA_CAPABILITY = { whose = "spec", doc = "of the emulation: the compute capability, times 10" },
  GANYMEDE_NCCL_FAIL = { whose = "spec", doc = "of the emulation: where an operation between GPUs fails" },
  GANYMEDE_SPEC_CHANGES = { whose = "spec", pattern = "^%d+$", allowed = "a number",
    doc = "how often the ranks of a job change in the spec of that (3)" },
  GANYMEDE_SPEC_DIFFERENCES = { whose = "spec", doc = "whether specs print how far results differ" },
  GANYMEDE_SPEC_DRAWS = { whose = "spec", pattern = "^%d+$", allowed = "a number",
    doc = "how many combinations of features are drawn in the spec of that (8)" },
  GANYMEDE_SPEC_FILES = { whose = "spec", pattern = "^%d+$", allowed = "a number",
    doc = "how many hostile files of each kind the specs of them make (30)" },
  GANYMEDE_SPEC_FUZZ = { whose = "spec", pattern = "^%d+$", allowed = "a number of seconds",
    doc = "how long libFuzzer runs in the spec of that (20)" },
  GANYMEDE_SPEC_KILLS = { whose = "spec", doc = "how often a run is killed in the spec of that (100)" },
  GANYMEDE_SPEC_MARK = { whose = "spec", doc = "marks the processes of a spec" },
  GANYMEDE_SPEC_SEED = { whose = "spec", pattern = "^%d+$", allowed = "a number",
    doc = "other combinations of features than those of 0 in the spec of that" },
  GANYMEDE_SPEC_STEPS = { whose = "spec", doc = "at most so many steps in specs of equality" },
  GANYMEDE_SPEC_SWEEP = { whose = "spec", doc = "a folder of spec/golden/sweep.py: more settings beside PyTorch" },
  GANYMEDE_TEST = { whose = "spec", doc = "the folder of the front door's spec" },
  GANYMEDE_TRANSCRIPT = { whose = "spec", doc = "where the session of docs/repl_on_ranks.txt is written" },
  GANYMEDE_RESIZE = { whose = "program", doc = "the folder by which ranks take over from others of a job of Slurm" },
  GANYMEDE_STANDBY = { whose = "program", doc = "the folder by which a rank hears of who guards it (--standby)" },
  GANYMEDE_STANDBY_SET = { whose = "program", pattern = "^%d+$", allowed = "a number",
    doc = "the number of the set of ranks of --standby to which a rank belongs" },
  GANYMEDE_SUPERVISOR = { whose = "program", doc = "where the ranks of a job reach who started them" },
  GANYMEDE_SUPERVISOR_PROCESS = { whose = "program", doc = "the number of the process that has started the ranks" },
  GANYMEDE_TERMINAL = { whose = "program", doc = "whether the output of rank 0 goes to a terminal" },
}

--- Why a variable is refused; nil: it is not.
function environment.problem(name, value)
  local entry = environment.variables[name]
  if not entry then
    return ("the environment has %s, which nothing reads%s; `ganymede help environment` lists what is read"):format(
      name, options.hint(name, options.sorted_keys(environment.variables)))
  end
  if (entry.pattern and not value:find(entry.pattern)) or (entry.one_of and not entry.one_of[value]) then
    return ("the environment says %s=%s; it must be %s"):format(name, value, entry.allowed)
  end
end

--- Status 2 at the first variable of ours that is unknown or has a value without a meaning.
function environment.check()
  local names = core.environment "GANYMEDE_"
  if os.getenv "GM_LOG" then names[#names + 1] = "GM_LOG" end
  table.sort(names)
  for _, name in ipairs(names) do
    local why = environment.problem(name, os.getenv(name))
    if why then failure(2, "%s", why) end
  end
end

--- A line each, those of users first.
function environment.help()
  local lines = {}
  for _, whose in ipairs { "user", "spec", "program" } do
    lines[#lines + 1] = ({ user = "for you", spec = "for tests and benches", program = "set by the program" })[whose]
    for _, name in ipairs(options.sorted_keys(environment.variables)) do
      local entry = environment.variables[name]
      if entry.whose == whose then lines[#lines + 1] = ("  %-26s %s"):format(name, entry.doc) end
    end
  end
  return table.concat(lines, "\n")
end

return environment
