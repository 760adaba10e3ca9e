--- What of NCCL one GPU can try: a link of the device with itself carries every kind of operation. On the device that
-- the specs run on, or else under the emulation.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local run_host = require "spec.support.run_host"

describe("a link of a device with itself", function()
  if core.device().backend == "cuda" then
    it("carries every kind of operation", function()
      local ok, said = pcall(core.comm_try_links)
      local why = tostring(said)
      if not ok and (why:find "there is no NCCL" or why:find "was not to be used") then return pending(why) end
      assert.is_true(ok, why)
      assert.matches("^NCCL %d", said)
    end)
    return
  end

  it("is none where the device is the host", function()
    assert.error_matches(core.comm_try_links, "^a .* device has no links to others")
  end)

  if emulation.lacks(pending, "emulated") then return end

  local function try(more)
    local env = emulation.environment()
    for name, value in pairs(more or {}) do env[name] = value end
    return run_host({ "spec", "spec/cuda/link_spec.lua", "--device", "cuda" }, { cwd = GANYMEDE_ROOT, env = env })
  end

  it("carries every kind of operation, under the emulation", function()
    local result = try()
    assert.equal(0, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find("1 passed, 0 failed", 1, true), result.out)
  end)

  it("says what fails, and that there is no NCCL", function()
    local result = try { GANYMEDE_NCCL_FAIL = "0 3" }
    assert.equal(1, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find("NCCL failed", 1, true), result.out)
    result = try { GANYMEDE_CUDA_NCCL = "none" }
    assert.equal(0, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find("1 skipped", 1, true), result.out)
  end)
end)
