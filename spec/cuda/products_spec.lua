--- Products on CUDA: who makes them (cuBLASLt, or the kernels of gemm.cu), in how many pieces of work, and that both
-- are right. spec/kernels/contraction_spec.lua has the sizes; the emulated cuBLASLt refuses what the real one refuses.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local kernels = require "spec.kernels.support"
local support = require "spec.cli.support"

if emulation.lacks(pending, "emulated") then return end

describe("products on CUDA:", function()
  -- Compares the op with ref; fails unless cuBLASLt made so many products, and so many kernels ran beside.
  local function made(case)
    gm.scope(function()
      local inputs = case.inputs
      inputs.n = inputs.n or #inputs
      local function outputs()
        local list = { n = #case.outputs }
        for i, out in ipairs(case.outputs) do list[i] = type(out) == "function" and (out()) or out end
        return list
      end
      local want = core.run_op("ref", case.op, inputs, outputs(), case.attrs or {})
      local before = emulation.counts()
      local got = core.run_op("cuda", case.op, inputs, outputs(), case.attrs or {})
      local after = emulation.counts()
      local label = case.op .. " " .. case.label
      assert.equal(case.products, after.products - before.products, label .. ": products of cuBLASLt")
      assert.equal(case.kernels, after.launches - before.launches, label .. ": kernels")
      for i = 1, #case.outputs do
        if want[i] then kernels.compare(got[i], want[i], kernels.terms(case.terms, 4 * case.terms), label) end
      end
    end)
  end

  local input = kernels.input

  -- Codes of 8 bits of numbers, and their scale.
  local function codes(shape, format)
    local x = input(shape, "f32")
    local attrs = { format = format }
    local scale = core.run_op("ref", "float8_scale", { x }, { true }, attrs)[1]
    return core.run_op("ref", "float8_encode", { x, scale }, { true, n = 3 }, attrs)[1], scale
  end

  -- format 1: E5M2, of gradients
  for _, dtype in ipairs { "bf16", "f16", "f32" } do
    it("cuBLASLt makes those of 8 bits where rows are multiples of 16 bytes, results of " .. dtype, function()
      local function made_by(m, n, k, format, products, numbers, with)
        local a, a_scale = codes({ m, k }, format)
        local b, b_scale = codes({ n, k }, 0)
        made { op = "float8_product", label = ("(%d, %d) x (%d, %d)"):format(m, k, k, n), terms = k,
               products = products,
               inputs = { n = 5, a, b, a_scale, b_scale, with == "bias" and input({ n }, dtype) or nil },
               kernels = numbers, outputs = { with == "sum" and kernels.given({ m, n }, dtype) or true },
               attrs = { format = format, dtype = dtype, accumulate = with == "sum" } }
      end
      made_by(5, 16, 32, 0, 1, 0)
      made_by(16, 32, 48, 1, 1, 0, "sum")
      local wide = dtype == "f32"
      made_by(7, 16, 64, 0, 1, wide and 2 or 0, "bias") -- a bias of f32 goes with numbers of f32
      made_by(5, 16, 33, 0, 1, dtype == "f16" and 3 or 2) -- numbers of bf16; f16 is too small for them
    end)
  end

  for _, dtype in ipairs { "f32", "bf16", "f16" } do
    local gelu = dtype == "f32" and 1 or 0 -- kernels: in f32 GELU is ours

    it("cuBLASLt makes those of " .. dtype .. ", transposed, in batches and added to what is there", function()
      for bits = 0, 3 do
        local ta, tb = bits % 2 == 1, bits >= 2
        local a = input(ta and { 6, 5 } or { 5, 6 }, dtype)
        local b = input(tb and { 9, 6 } or { 6, 9 }, dtype)
        made { op = "matmul", label = "of two matrices", inputs = { a, b }, terms = 7, products = 1, kernels = 0,
               outputs = { kernels.given({ 5, 9 }, dtype) },
               attrs = { transpose_a = ta, transpose_b = tb, alpha = 0.5, accumulate = true } }
      end
      made { op = "matmul", label = "of a batch", inputs = { input({ 4, 5, 6 }, dtype), input({ 4, 6, 9 }, dtype) },
             outputs = { true }, terms = 6, products = 1, kernels = 0 }
      made { op = "matmul", label = "of many rows", inputs = { input({ 4, 3, 5, 6 }, dtype), input({ 6, 9 }, dtype) },
             outputs = { true }, terms = 6, products = 1, kernels = 0 }
      made { op = "matmul", label = "of windows", outputs = { true }, terms = 6, products = 1, kernels = 0,
             inputs = { input({ 5, 6 }, dtype, "window"), input({ 6, 9 }, dtype, "window") } }
      made { op = "matmul", label = "of a batch of two dimensions", terms = 6, products = 3, kernels = 0,
             inputs = { input({ 3, 4, 5, 6 }, dtype), input({ 4, 6, 9 }, dtype) }, outputs = { true } }
    end)

    it("cuBLASLt adds in f32 to sums of f32, " .. dtype, function()
      local x, g = input({ 70, 16 }, dtype), input({ 70, 24 }, dtype)
      local function made_by(a, products)
        made { op = "matmul", label = "into f32", inputs = { a, g }, outputs = { kernels.given({ 16, 24 }, "f32") },
               attrs = { transpose_a = true, accumulate = true, dtype = "f32" }, terms = 71, products = products,
               kernels = 1 - products }
      end
      made_by(x, 1)
      made_by(input({ 70, 16 }, dtype, "expanded"), 0)
    end)

    it("cuBLASLt adds the bias and applies what it has, " .. dtype, function()
      local x, w, b = input({ 2, 7, 12 }, dtype), input({ 16, 12 }, dtype), input({ 16 }, dtype)
      local function linear(f, pre, products, n_kernels)
        made { op = "linear", label = f .. (pre and " with pre" or ""), inputs = { x, w, b }, outputs = { true, pre },
               attrs = { ["function"] = f }, terms = 13, products = products, kernels = n_kernels }
      end
      linear("none", false, 1, 0)
      linear("relu", false, 1, 0)
      linear("gelu_tanh", false, 1, gelu)
      linear("gelu_tanh", true, 1, gelu)
      linear("gelu", true, 1, 1) -- the product in f32, then the rest
      linear("silu", false, 1, 1)
      linear("relu", true, 1, 1) -- cuBLASLt would keep bits
      made { op = "linear", label = "without bias", inputs = { x, w, n = 3 }, outputs = { true, true },
             attrs = { ["function"] = "gelu_tanh" }, terms = 12, products = 1, kernels = gelu }
      -- rows of pre must be multiples of 8 elements
      made { op = "linear", label = "to 15", inputs = { x, input({ 15, 12 }, dtype), input({ 15 }, dtype) },
             outputs = { true, true }, attrs = { ["function"] = "gelu_tanh" }, terms = 13, products = 1, kernels = 1 }
    end)

    it("cuBLASLt sums what it multiplies for the gradient of a bias, " .. dtype, function()
      local function gradient(label, g, x, db, n_kernels, adds)
        local dw = adds and kernels.given({ g:size(2), x:size(2) }, dtype) or true
        made { op = "linear_weight_grad", label = label, inputs = { g, x }, outputs = { dw, db }, terms = 22,
               attrs = { accumulate = adds }, products = 1, kernels = n_kernels }
      end
      local g, x = input({ 21, 16 }, dtype), input({ 21, 12 }, dtype)
      gradient("set", g, x, true, 0)
      gradient("without db", g, x, false, 0)
      -- it sets: a kernel adds the sums, which are rounded first; these are whole numbers that all dtypes hold
      local whole = kernels.integers({ 21, 16 }, "i32", -2, 2):to(dtype)
      gradient("added", whole, x, kernels.given({ 16 }, dtype), 1, true)
      gradient("of a bias with gaps", g, x, kernels.given({ 16 }, dtype, "turned"), 1)
      gradient("of windows", input({ 21, 16 }, dtype, "window"), input({ 21, 12 }, dtype, "window"), true, 0)
      gradient("of a turned gradient", input({ 21, 16 }, dtype, "turned"), x, true, 0)
    end)

    it("cuBLASLt goes back through what it has the slope of, " .. dtype, function()
      local g, w = input({ 21, 12 }, dtype), input({ 12, 16 }, dtype)
      local function gradient(f, pre, products, n_kernels)
        made { op = "linear_input_grad", label = f, inputs = { g, w, pre }, outputs = { true }, terms = 13,
               attrs = { ["function"] = f }, products = products, kernels = n_kernels }
      end
      local pre = input({ 21, 16 }, dtype, nil, -3, 3)
      gradient("gelu_tanh", pre, 1, gelu)
      gradient("gelu_tanh", input({ 21, 16 }, dtype, "turned", -3, 3), 1, 1) -- rows of pre are not neighbours
      gradient("gelu_tanh", input({ 21, 16 }, dtype, "window", -3, 3), 1, 1) -- nor at multiples of 16 bytes
      for _, f in ipairs { "relu", "gelu", "silu", "sigmoid", "tanh" } do gradient(f, pre, 1, 1) end
    end)

    it("a plan serves other addresses, " .. dtype, function()
      -- three calls of four products each, whose pre lie elsewhere
      local x = input({ 4, 3, 5, 16 }, dtype):permute { 2, 1, 3, 4 }
      made { op = "linear", label = "of rows in another order", terms = 17, products = 3, kernels = gelu,
             inputs = { x, input({ 16, 16 }, dtype), input({ 16 }, dtype) }, outputs = { true, true },
             attrs = { ["function"] = "gelu_tanh" } }
    end)

    it("kernels make what cuBLASLt cannot, " .. dtype, function()
      made { op = "matmul", label = "of a repeated row", outputs = { true },
             inputs = { input({ 5, 6 }, dtype, "expanded"), input({ 6, 9 }, dtype) },
             terms = 6, products = 0, kernels = 1 }
      made { op = "matmul", label = "of nothing", inputs = { input({ 5, 0 }, dtype), input({ 0, 9 }, dtype) },
             outputs = { true }, terms = 1, products = 0, kernels = 1 }
      local every_other = input({ 300, 40, 2 }, dtype):select(3, 2)
      made { op = "matmul", label = "in tiles of 128", inputs = { every_other, input({ 40, 140 }, dtype) },
             outputs = { true }, terms = 40, products = 0, kernels = 1 }
    end)
  end

  it("kernels make those of f64", function()
    local x, w, b = input({ 7, 33 }, "f64"), input({ 70, 33 }, "f64"), input({ 70 }, "f64")
    made { op = "linear", label = "f64", inputs = { x, w, b }, outputs = { true, true },
           attrs = { ["function"] = "gelu" }, terms = 34, products = 0, kernels = 1 }
    local g, pre = input({ 7, 70 }, "f64"), input({ 7, 33 }, "f64")
    made { op = "linear_weight_grad", label = "f64", inputs = { g, x }, outputs = { true, true }, terms = 7,
           products = 0, kernels = 3 } -- the product, and db in two passes
    made { op = "linear_input_grad", label = "f64", inputs = { g, w, pre }, outputs = { true }, terms = 70,
           attrs = { ["function"] = "gelu_tanh" }, products = 0, kernels = 2 }
  end)

  describe("the library", function()
    local home, environment

    before_each(function()
      home = support.home()
      environment = emulation.environment()
    end)
    after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

    local function train()
      local words = { "run", "recipe.lua", "--steps", "1", "--device", "cuda", "--no-eval" }
      return support.run(home, words, { env = environment })
    end

    it("that calls an epilogue invalid is gone round, which is said", function()
      local function losses()
        local result = train()
        assert.equal(0, result.code, result.err)
        return result
      end
      local whole = losses()
      assert.falsy(whole.err:find("invalid", 1, true))
      environment.GANYMEDE_FAKE_CUBLAS_INVALID = "4" -- CUBLASLT_EPILOGUE_BIAS
      local result = losses()
      assert.truthy(result.err:find("cuBLASLt calls a product of (", 1, true), result.err)
      assert.truthy(result.err:find("epilogue 4, invalid: it runs on our own kernels", 1, true), result.err)
    end)

    it("that is missing is named, with what to try", function()
      environment.GANYMEDE_CUDA_BLAS = "/nowhere/libcublasLt.so.13"
      local result = train()
      assert.is_true(result.code ~= 0)
      assert.is_truthy(result.err:find("cannot load cuBLASLt (/nowhere/libcublasLt.so.13", 1, true), result.err)
      assert.is_truthy(result.err:find("install the libraries of CUDA 13", 1, true), result.err)
    end)

    it("'none' leaves all products to the kernels", function()
      environment.GANYMEDE_CUDA_BLAS, environment.GANYMEDE_CUDA_RECORD = "none", home .. "/record"
      local result = train()
      assert.equal(0, result.code, result.err)
      local record = support.shell.read(home .. "/record")
      assert.is_truthy(record:find("gm_gemm_f32", 1, true))
      assert.is_nil(record:find("cublasLtMatmul", 1, true))
    end)
  end)
end)

describe("time_products", function()
  local home
  before_each(function() home = support.home() end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  -- -> losses; { [answer] = products of the last steps }: trials are over then
  local function train(words, environment)
    local env, answers = emulation.environment(), {}
    env.GANYMEDE_CUDA_RECORD = home .. "/record"
    for name, value in pairs(environment or {}) do env[name] = value end
    local all = { "run", "recipe.lua", "--steps", "6", "--device", "cuda", "--stats", "stats.json", "--no-eval" }
    for _, word in ipairs(words) do table.insert(all, word) end
    local result = support.run(home, all, { env = env })
    assert.equal(0, result.code, result.err)
    local products = {}
    for line in io.lines(home .. "/record") do
      products[#products + 1] = tonumber(line:match "^cublasLtMatmul.* answer (%d+)")
    end
    os.remove(home .. "/record") -- the driver goes on with what it finds
    for i = #products - 8, #products do answers[products[i]] = (answers[products[i]] or 0) + 1 end
    return support.json(home .. "/stats.json").loss, answers, #products
  end

  it("takes the way that is the fastest, and leaves results alone", function()
    local plain, first, few = train {}
    assert.same({ [0] = 9 }, first)
    -- A product and a pass over it would take as long as a product that makes the sums, too, and have other bits:
    -- products without an epilogue (CUBLASLT_EPILOGUE_DEFAULT, 1) are slow, whatever their algorithm.
    local timed, second, more = train({ "--set", "time_products=true" },
      { GANYMEDE_FAKE_CUBLAS_FAST = "1", GANYMEDE_FAKE_CUBLAS_SLOW = "1" })
    assert.same({ [1] = 9 }, second)
    assert.same(plain, timed)
    -- five kinds of products (of two layers three each, but for the first dx), three algorithms, each four times; and
    -- for the two with sums the plain product before a pass, which is timed itself
    assert.equal((5 * 3 + 2 * (3 + 1)) * 4, more - few)
  end)

  it("says where it does nothing", function()
    local cpu = support.run(home, { "run", "recipe.lua", "--steps", "1", "--no-eval", "--set", "time_products=true" })
    assert.equal(0, cpu.code, cpu.err)
    assert.is_truthy((cpu.err .. cpu.out):find("time_products has no effect here", 1, true), cpu.err)
  end)
end)
