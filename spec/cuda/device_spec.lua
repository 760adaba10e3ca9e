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

  if emulation.lacks(pending, "emulated") then return end
  local driver = emulation.environment().GANYMEDE_CUDA_DRIVER

  it("says that the driver finds no GPU", function()
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_DEVICES = "0" }, "finds no GPU")
  end)

  it("says that the build has no kernels, and what compiles them", function()
    local said = io.open(core.executable():match "^(.*)/" .. "/cuda-architectures")
    if not said or said:read "*l" ~= "none" then return pending "this build has kernels" end
    local env = emulation.environment()
    env.GANYMEDE_CUDA_NO_IMAGES = "1"
    refused({ "run", "recipe.lua" }, env, "no kernels for GPUs: ./ganymede run")
  end)

  it("says at once that a library which was named cannot be loaded, and that there is no cuBLASLt", function()
    local blas = emulation.environment().GANYMEDE_CUDA_BLAS
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_BLAS = "/nowhere/lt.so" },
      "cannot load cuBLASLt (/nowhere/lt.so")
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_BLAS = blas,
      GANYMEDE_CUDA_DNN = "/nowhere/dnn.so" }, "there is no cuDNN here (/nowhere/dnn.so")
    refused({ "run", "recipe.lua" }, { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_BLAS = blas,
      GANYMEDE_CUDA_DNN = "libm.so.6" }, "has no function cudnnGetVersion")
  end)

  local gpt = [[
    return { name = "gpt", seed = 1, dtype = "bf16",
      model = { type = "GPT", vocabulary = 16, sequence_length = 8, width = 16, depth = 2, heads = 2 },
      data = { train = { type = "Synthetic", kind = "tokens", length = 64, sequence_length = 8, vocab_size = 16 },
               batch_size = 4 },
      loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" }, steps = 3 }
  ]]

  -- How often the lines of a run hold this text.
  local function said(text, env, ...)
    env.GANYMEDE_CUDA_DRIVER = driver
    local place, n = support.home(gpt), 0
    local result = support.run(place, { "run", "recipe.lua", "--device", "cuda", "--no-eval", ... }, { env = env })
    support.shell.run("rm -rf " .. support.shell.quote(place))
    assert.equal(0, result.code, result.err)
    for _ in result.err:gmatch(text) do n = n + 1 end
    return n
  end

  it("says once in a run that attention, or products, run on our own kernels", function()
    local blas = emulation.environment().GANYMEDE_CUDA_BLAS
    local attention = "attention in bf16 runs on our own kernel, .-: GANYMEDE_CUDA_DNN is none"
    local products = "some products run on our own kernels, many times slower"
    assert.equal(1, said(attention, { GANYMEDE_CUDA_BLAS = blas, GANYMEDE_CUDA_DNN = "none" }))
    assert.equal(1, said(products, { GANYMEDE_CUDA_BLAS = "none", GANYMEDE_CUDA_DNN = "none" }))
    local both = { GANYMEDE_CUDA_BLAS = blas, GANYMEDE_CUDA_DNN = blas:gsub("cublas", "cudnn") }
    assert.equal(0, said("runs? on our own kernel", both))
  end)

  it("says once that gradients of cuDNN's attention vary, and takes ours where bits are to be equal", function()
    local blas = emulation.environment().GANYMEDE_CUDA_BLAS
    local env = { GANYMEDE_CUDA_BLAS = blas, GANYMEDE_CUDA_DNN = blas:gsub("cublas", "cudnn") }
    local varies = "gradients of attention in bf16 are cuDNN's, .-; deterministic = true takes our own"
    assert.equal(1, said(varies, env))
    assert.equal(0, said(varies, env, "--set", "deterministic=true"))
    local words = { "run", "recipe.lua", "--set", "deterministic=true", "--set", "time_products=true" }
    local result = support.run(home, words)
    assert.equal(2, result.code)
    has(result.err, "deterministic = true and time_products = true contradict each other")
  end)

  it("says in doctor what was turned off", function()
    local result = support.run(home, { "doctor" }, {
      env = { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_DNN = "none" } })
    assert.matches("warn +cudnn +turned off: the environment names none\n +fix: unset GANYMEDE_CUDA_DNN", result.out)
  end)

  it("says in doctor that a cuDNN is too old", function()
    local dnn = emulation.environment().GANYMEDE_CUDA_BLAS:gsub("cublas", "cudnn")
    local env = { GANYMEDE_CUDA_DRIVER = driver, GANYMEDE_CUDA_DNN = dnn, FAKE_DNN = "91400" }
    local result = support.run(home, { "doctor" }, { env = env })
    assert.matches("warn +cudnn +[^\n]+ is cuDNN 9%.14%.0, which is too old", result.out)
    env.FAKE_DNN = "91903"
    result = support.run(home, { "doctor" }, { env = env })
    assert.matches("ok +cudnn +[^\n]+ is cuDNN 9%.19%.3\n", result.out)
  end)

  it("names the device and the driver, where it is not the usual one, in doctor", function()
    local result = support.run(home, { "doctor" }, { env = { GANYMEDE_CUDA_DRIVER = driver } })
    has(result.out, "emulated GPU 0, sm_90, 16 GiB; driver " .. driver)
  end)
end)
