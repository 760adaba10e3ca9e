--- `--device cuda` on a machine without a GPU: what is missing is said, with status 2 and what to try; under the
-- emulation the device opens, counts its memory, moves bytes and answers for its mistakes.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), ("no '%s' in: %s"):format(part, text)) end

describe("--device cuda", function()
  local home

  setup(function() home = support.home() end)
  teardown(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  local function refused(words, env, part)
    table.insert(words, "--device")
    table.insert(words, "cuda")
    local result = support.run(home, words, { env = env })
    assert.equal(2, result.code, result.err)
    has(result.err, "ganymede: --device cuda: ")
    has(result.err, "--device cpu")
    if part then has(result.err, part) end
    assert.equal("recipe.lua", support.names(home))
  end

  if not core.cuda_facts() then
    it("says that this build has no CUDA", function() refused({ "run", "recipe.lua" }, {}, "build has no CUDA") end)
    return
  end

  it("says that there is no driver", function()
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = "/nowhere/libcuda.so.1" }, "no NVIDIA driver here")
  end)

  it("says that a library is no driver", function()
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = "libm.so.6" }, "has no function cuInit")
  end)

  it("is told by doctor", function()
    local result = support.run(home, { "doctor" }, { env = { GANYMEDE_CUDA_DRIVER = "/nowhere/libcuda.so.1" } })
    has(result.out, "--device cuda cannot be used: there is no NVIDIA driver here (/nowhere/libcuda.so.1")
  end)

  if not emulation.start() or not emulation.is_on() then return end
  local driver = emulation.environment().GANYMEDE_CUDA_DRIVER

  it("says that the driver finds no GPU", function()
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_DEVICES = "0" }, "finds no GPU")
  end)

  it("names the device and the driver, where it is not the usual one, in doctor", function()
    local result = support.run(home, { "doctor" }, { env = { GANYMEDE_CUDA_DRIVER = driver } })
    has(result.out, "emulated GPU 0, sm_90, 16 GiB; driver " .. driver)
  end)
end)
