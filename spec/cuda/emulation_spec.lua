--- The emulation that judges CUDA kernels on machines without a GPU: it must run right kernels right, and find each
-- mistake that it promises to find (spec/cuda/trial.cu has a kernel for each).
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local ffi = require "ffi"

if emulation.lacks(pending, "emulated") then return end
local path = core.executable():match "^(.*)/" .. "/emulation/libgm_fake_cuda.so"

ffi.cdef [[
typedef struct gm_emulated_kernel { const char *name; void (*run)(const void *); size_t args; } gm_emulated_kernel;
typedef struct gm_emulated_grid { int64_t x, y, z; int block; size_t shared; } gm_emulated_grid;
const gm_emulated_kernel *gm_emulated_find(const char *name);
int gm_emulated_launch(const gm_emulated_kernel *, const gm_emulated_grid *, const void *args, char *error, size_t);
typedef struct gm_trial_args { float *x; int64_t n; } gm_trial_args;
typedef void *gm_fake_pointer;
int cuStreamCreate(gm_fake_pointer *, unsigned);
int cuStreamDestroy_v2(gm_fake_pointer);
int cuStreamSynchronize(gm_fake_pointer);
int cuStreamWaitEvent(gm_fake_pointer, gm_fake_pointer, unsigned);
int cuEventCreate(gm_fake_pointer *, unsigned);
int cuEventDestroy_v2(gm_fake_pointer);
int cuEventRecord(gm_fake_pointer, gm_fake_pointer);
int cuEventQuery(gm_fake_pointer);
int cuMemAlloc_v2(uintptr_t *, size_t);
int cuMemFree_v2(uintptr_t);
int cuMemsetD8Async(uintptr_t, unsigned char, size_t, gm_fake_pointer);
int cuStreamBeginCapture_v2(gm_fake_pointer, int);
int cuStreamEndCapture(gm_fake_pointer, gm_fake_pointer *);
int cuGraphGetNodes(gm_fake_pointer, gm_fake_pointer *, size_t *);
int cuGraphInstantiateWithFlags(gm_fake_pointer *, gm_fake_pointer, unsigned long long);
int cuGraphLaunch(gm_fake_pointer, gm_fake_pointer);
int cuGraphExecDestroy(gm_fake_pointer);
int cuGraphDestroy(gm_fake_pointer);
void gm_fake_open(bool);
void gm_fake_check_guards(const char *after, char *error, size_t size);
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
    misaligned = "an access at an address that is no multiple of 16",
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

-- The calls below are the driver's own, so that these examples say what kernels/cuda/runtime/graph.c relies on.
describe("captures and memory of the emulation", function()
  local lib = ffi.load(path)
  local done, unsupported, invalidated, captured, failed = 0, 900, 901, 907, 719 -- CUresult
  local thread_local, relaxed = 1, 2 -- CUstreamCaptureMode
  local stream

  local function made(fn, ...)
    local out = ffi.new "gm_fake_pointer[1]"
    assert.equal(done, fn(out, ...))
    return out[0]
  end

  local function memory(bytes)
    local out = ffi.new "uintptr_t[1]"
    assert.equal(done, lib.cuMemAlloc_v2(out, bytes))
    return out[0]
  end

  local function ended()
    local graph = ffi.new "gm_fake_pointer[1]"
    local result = lib.cuStreamEndCapture(stream, graph)
    return result, graph[0]
  end

  before_each(function() stream = made(lib.cuStreamCreate, 1) end)
  after_each(function() lib.cuStreamDestroy_v2(stream) end)

  -- Begins a capture, makes a call that it must not survive, and ends it.
  local function refused(mode, result, call)
    assert.equal(done, lib.cuStreamBeginCapture_v2(stream, mode))
    assert.equal(result, call())
    local status, graph = ended()
    assert.equal(invalidated, status)
    assert.is_true(graph == nil)
  end

  it("refuse to wait, to look at their events, and to take memory where the mode forbids it", function()
    local event = made(lib.cuEventCreate, 2)
    refused(relaxed, unsupported, function() return lib.cuStreamSynchronize(stream) end)
    refused(relaxed, captured, function()
      assert.equal(done, lib.cuEventRecord(event, stream))
      return lib.cuEventQuery(event)
    end)
    refused(thread_local, unsupported, function() return lib.cuMemAlloc_v2(ffi.new "uintptr_t[1]", 64) end)
    lib.cuEventDestroy_v2(event)
    assert.equal(done, lib.cuStreamBeginCapture_v2(stream, relaxed))
    local p = memory(64)
    local status, graph = ended()
    assert.equal(done, status)
    lib.cuGraphDestroy(graph)
    lib.cuMemFree_v2(p)
    assert.is_not.equal(done, lib.cuStreamBeginCapture_v2(nil, relaxed)) -- the default stream
  end)

  it("have streams that join by events, in no order but theirs", function()
    local other, event, p = made(lib.cuStreamCreate, 1), made(lib.cuEventCreate, 2), memory(64)
    local function fork()
      assert.equal(done, lib.cuStreamBeginCapture_v2(stream, relaxed))
      assert.equal(done, lib.cuEventRecord(event, stream))
      assert.equal(done, lib.cuStreamWaitEvent(other, event, 0))
      assert.equal(done, lib.cuMemsetD8Async(p, 2, 64, other))
    end
    local function join()
      assert.equal(done, lib.cuEventRecord(event, other))
      assert.equal(done, lib.cuStreamWaitEvent(stream, event, 0))
    end
    -- What p holds after each of two launches.
    local function launched()
      local _, graph = ended()
      local run, found = made(lib.cuGraphInstantiateWithFlags, graph, 0), {}
      lib.cuGraphDestroy(graph)
      for i = 1, 2 do
        assert.equal(done, lib.cuGraphLaunch(run, stream))
        assert.equal(done, lib.cuStreamSynchronize(stream))
        lib.gm_fake_open(true)
        found[i] = ffi.cast("unsigned char *", p)[5]
        lib.gm_fake_open(false)
      end
      lib.cuGraphExecDestroy(run)
      return found
    end

    fork()
    assert.equal(904, (ended())) -- the other stream was not joined
    fork()
    assert.equal(done, lib.cuMemsetD8Async(p, 1, 64, stream)) -- beside the other
    join()
    assert.same({ 2, 1 }, launched())
    fork()
    join()
    assert.equal(done, lib.cuMemsetD8Async(p, 1, 64, stream)) -- behind it
    assert.same({ 1, 1 }, launched())
    assert.equal(done, lib.cuEventRecord(event, other)) -- outside of every capture
    refused(relaxed, 905, function() return lib.cuStreamWaitEvent(stream, event, 0) end)
    lib.cuEventDestroy_v2(event)
    lib.cuStreamDestroy_v2(other)
    lib.cuMemFree_v2(p)
  end)

  it("find each byte that is written beside an allocation, and mend it", function()
    local p, said = memory(40), ffi.new "char[256]"
    local function looked()
      said[0] = 0
      lib.gm_fake_open(true)
      lib.gm_fake_check_guards("a kernel", said, 256)
      lib.gm_fake_open(false)
      return ffi.string(said)
    end
    for _, at in ipairs { -64, -50, -1, 40, 47, 48, 103 } do
      assert.equal("", looked())
      lib.gm_fake_open(true)
      ffi.cast("unsigned char *", p)[at] = 0
      lib.gm_fake_open(false)
      assert.equal(("a kernel wrote %s an allocation of 40 bytes"):format(at < 0 and "before the start of"
        or "past the end of"), looked())
    end
    lib.cuMemFree_v2(p)
  end)

  it("find memory that was freed behind a graph's back", function()
    local p = memory(64)
    assert.equal(done, lib.cuStreamBeginCapture_v2(stream, relaxed))
    assert.equal(done, lib.cuMemsetD8Async(p, 1, 64, stream))
    local _, graph = ended()
    local nodes = ffi.new "size_t[1]"
    assert.equal(done, lib.cuGraphGetNodes(graph, nil, nodes))
    assert.equal(1, tonumber(nodes[0]))
    local run = made(lib.cuGraphInstantiateWithFlags, graph, 0)
    lib.cuGraphDestroy(graph)
    assert.equal(done, lib.cuGraphLaunch(run, stream))
    assert.equal(done, lib.cuStreamSynchronize(stream))
    lib.cuMemFree_v2(p)
    assert.equal(done, lib.cuGraphLaunch(run, stream))
    assert.equal(failed, lib.cuStreamSynchronize(stream))
    lib.cuGraphExecDestroy(run)
  end)
end)
