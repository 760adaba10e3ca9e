--- The emulation that judges CUDA kernels on machines without a GPU: it must run right kernels right, and find each
-- mistake that it promises to find (spec/cuda/trial.cu has a kernel for each).
local core = require "ganymede.core"
local ffi = require "ffi"

local path = core.executable():match "^(.*)/" .. "/emulation/libgm_fake_cuda.so"
local file = io.open(path, "rb")
if file then file:close() end
if not file then return end -- a build without CUDA: the target does not exist

ffi.cdef [[
typedef struct gm_emulated_kernel { const char *name; void (*run)(const void *); size_t args; } gm_emulated_kernel;
typedef struct gm_emulated_grid { int64_t x, y, z; int block; size_t shared; } gm_emulated_grid;
const gm_emulated_kernel *gm_emulated_find(const char *name);
int gm_emulated_launch(const gm_emulated_kernel *, const gm_emulated_grid *, const void *args, char *error, size_t);
typedef struct gm_trial_args { float *x; int64_t n; } gm_trial_args;
]]

describe("the emulation of CUDA kernels", function()
  local lib = ffi.load(path)

  -- -> nil, or what the kernel did wrong
  local function launch(name, x, n, grid)
    local error = ffi.new "char[512]"
    local kernel = lib.gm_emulated_find("gm_trial_" .. name)
    assert.is_true(kernel ~= nil)
    local args = ffi.new("gm_trial_args", { x = x, n = n })
    assert.equal(ffi.sizeof "gm_trial_args", tonumber(kernel.args))
    local failed = lib.gm_emulated_launch(kernel, ffi.new("gm_emulated_grid", grid), args, error, 512)
    return failed ~= 0 and ffi.string(error) or nil
  end

  local function floats(n, fill) return ffi.new("float[?]", n, fill or -1) end

  it("runs every thread of every block", function()
    for _ = 1, 2 do -- forward and backward
      local x = floats(1000)
      assert.is_nil(launch("count", x, 1000, { 3, 1, 1, 64, 0 }))
      for i = 0, 999 do assert.equal(i, x[i]) end
    end
  end)

  it("meets and shuffles: sums of blocks of every size", function()
    for _, block in ipairs { 32, 64, 256, 1024 } do
      local x = floats(4)
      assert.is_nil(launch("sum", x, 0, { 4, 1, 1, block, 128 }))
      for i = 0, 3 do assert.equal(block * (block + 1) / 2, x[i]) end
    end
  end)

  it("shows races on shared memory in one order of threads or the other", function()
    local function turned(name)
      local right = true
      for _ = 1, 2 do
        local x = floats(64)
        for i = 0, 63 do x[i] = i end
        assert.is_nil(launch(name, x, 64, { 1, 1, 1, 32, 256 }))
        for i = 0, 63 do right = right and x[i] == 63 - i end
      end
      return right
    end
    assert.is_true(turned "turn")
    assert.is_false(turned "race")
  end)

  for name, message in pairs {
    early_end = "waits for threads that do not come",
    two_places = "threads meet at different lines",
    half_warp = "shuffles with lanes that do not come",
    past_shared = "wrote past the end of shared memory",
  } do
    it("finds " .. name, function()
      for _ = 1, 2 do
        local said = launch(name, floats(64), 40, { 1, 1, 1, 64, 128 })
        assert.is_not_nil(said, "it was not found")
        assert.is_truthy(said:find(message, 1, true), said)
        assert.is_truthy(said:find("gm_trial_" .. name .. ": block (0, 0, 0)", 1, true), said)
      end
      assert.is_nil(launch("count", floats(8), 8, { 1, 1, 1, 32, 0 })) -- and goes on
    end)
  end
end)
