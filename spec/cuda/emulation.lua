--- The CUDA backend on a machine without a GPU: puts the fake driver (fake_driver.h) in the place of the real one.
--
--     local emulation = require "spec.cuda.emulation"
--     emulation.start()      true where "cuda" can be used from here on: a GPU, or the emulation, which the target
--                            unit_tests builds beside the executable
--     emulation.start { cudnn = true }   with the emulation's cuDNN too; false where something else has used "cuda"
--                            before. Without, there is none, and attention runs on our kernels
--     emulation.lacks(pending)  for the head of a spec file or block: true where "cuda" cannot be used, and then
--                            busted's `pending` says so; lacks(pending, "emulated"): where it is not the emulation
--     emulation.environment()  of a child process that shall use it too (run_host's env); { cudnn = true } as above
--     emulation.is_sanitized()  true where sanitizers look at the host's code alone
--     emulation.counts()     what the driver did so far (fake_driver.h)
local core = require "ganymede.core"
local ffi = require "ffi"

local emulation = {}

ffi.cdef [[
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
typedef struct gm_fake_counts {
  uint64_t launches, blocks, to_device, to_host, on_device, sets, to_device_bytes, to_host_bytes;
  uint64_t allocations, frees, live_bytes, waits, graphs, nodes, products;
} gm_fake_counts;
void gm_fake_count(gm_fake_counts *out);
]]

local folder = core.executable():match "^(.*)/" .. "/emulation/"

-- variable -> the library that takes the place of the real one
local libraries = {
  GANYMEDE_CUDA_DRIVER = folder .. "libgm_fake_cuda.so",
  GANYMEDE_CUDA_BLAS = folder .. "libgm_fake_cublas.so",
  GANYMEDE_CUDA_NCCL = folder .. "libgm_fake_nccl.so",
}
local cudnn = folder .. "libgm_fake_cudnn.so"

local function is_there(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local started -- "gpu", "emulation" or "emulation with cudnn", after start

--- Is it the emulation that "cuda" stands for?
function emulation.is_on() return started ~= nil and started ~= "gpu" end

--- What the module has loaded stays, so the variables are needed for a moment only, and children do not inherit them.
function emulation.start(options)
  local wanted = options and options.cudnn and "emulation with cudnn" or "emulation"
  if started then return started ~= "emulation" or wanted == started end
  if core.has_backend "cuda" then
    started = "gpu"
  elseif is_there(libraries.GANYMEDE_CUDA_DRIVER) then
    for name, path in pairs(libraries) do
      if is_there(path) then ffi.C.setenv(name, path, 1) end
    end
    ffi.C.setenv("GANYMEDE_CUDA_DNN", wanted ~= "emulation" and is_there(cudnn) and cudnn or "none", 1)
    if core.has_backend "cuda" then started = wanted end
    ffi.C.unsetenv "GANYMEDE_CUDA_DNN"
    for name in pairs(libraries) do ffi.C.unsetenv(name) end
  end
  return started ~= nil
end

--- Is this the part of the tests that is for sanitizers (`ganymede test --sanitizers`)? Kernels of the emulation, and
-- its libraries, have none, so that only the host's code needs to be run there.
function emulation.is_sanitized() return os.getenv "GANYMEDE_CUDA_SUITE" == "none" end

emulation.no_cuda = "this build has no CUDA: configure with -DGANYMEDE_CUDA=ON (needs nvcc), build all and unit_tests"

function emulation.lacks(pending, kind)
  local why
  if not emulation.start() then
    local built = is_there(core.executable():match "^(.*)/" .. "/ganymede_cuda.so")
    why = built and "there is no GPU, and its emulation is not built: build the target unit_tests" or emulation.no_cuda
  elseif kind == "emulated" and not emulation.is_on() then
    why = "there is a GPU; this runs under its emulation alone"
  end
  if why then pending(why) end
  return why ~= nil
end

--- For a child process that shall use what this one does: { VARIABLE = path }.
function emulation.environment(options)
  local list = {}
  for name, path in pairs(libraries) do
    if emulation.is_on() and is_there(path) then list[name] = path end
  end
  if emulation.is_on() then list.GANYMEDE_CUDA_DNN = options and options.cudnn and cudnn or "none" end
  return list
end

--- Numbers by name, as in gm_fake_counts.
function emulation.counts()
  local c, out = ffi.new "gm_fake_counts", {}
  ffi.load(libraries.GANYMEDE_CUDA_DRIVER).gm_fake_count(c)
  for _, name in ipairs {
    "launches", "blocks", "to_device", "to_host", "on_device", "sets", "to_device_bytes", "to_host_bytes",
    "allocations", "frees", "live_bytes", "waits", "graphs", "nodes", "products",
  } do
    out[name] = tonumber(c[name])
  end
  return out
end

return emulation
