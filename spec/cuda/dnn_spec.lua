--- Attention by cuDNN, without a GPU. The graphs of what gm_dnn_takes claims are checked by cuDNN itself (dnn_trial.c),
-- and plans are built for a described GPU; what is refused is refused before cuDNN is asked. What the graphs mean, and
-- the pointers, strides and numbers that they are given, is compared with ref through a cuDNN in plain loops
-- (fake_dnn.c). What cuDNN's kernels compute is for a machine with a GPU.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local trial = require "spec.cuda.cudnn_trial"

if not core.cuda_facts() then return pending(emulation.no_cuda) end
local is_emulated = emulation.start { cudnn = true } and emulation.is_on() -- before support starts it without
local support = require "spec.kernels.support"

local function problem(way, dtype, sizes, mask, layout, arch)
  return ("%s %s %s %s %s %d"):format(way, dtype, sizes, mask, layout, arch)
end

-- b h hk s t d
local function claimed_sizes(arch)
  local list = { "8 12 12 1024 1024 64", "1 32 8 4096 4096 128", "2 8 1 100 100 64", "2 6 3 1 1 16", "3 4 4 7 7 8",
                 "1 2 2 64 128 64", "2 2 1 16384 16384 128" }
  for d = 8, arch == 90 and 256 or 128, 8 do table.insert(list, ("2 4 2 96 96 %d"):format(d)) end
  return list
end

local function operations(way, sizes, mask)
  local h, hk, s, t = sizes:match "^%S+ (%S+) (%S+) (%S+) (%S+)"
  local n = way == "forward" and 10 or 18
  if way == "backward" and h ~= hk then n = n + 2 end -- sums over the heads that share a key's
  if mask:find "causal" then n = n + (s == t and 4 or 5) end
  return n
end

local function each_claim(arch, body)
  for _, sizes in ipairs(claimed_sizes(arch)) do
    for _, dtype in ipairs { "bf16", "f16" } do
      for _, mask in ipairs { "full", "causal" } do
        for _, way in ipairs { "forward", "backward" } do
          local same = sizes:match "^%S+ %S+ %S+ (%S+)" == sizes:match "^%S+ %S+ %S+ %S+ (%S+)"
          body(way, dtype, sizes, mask, "apart")
          if same then body(way, dtype, sizes, mask, "fused") end
        end
      end
    end
  end
  body("forward", "bf16", "2 4 2 65 129 64", "full", "apart")
end

describe("cuDNN's graphs of attention", function()
  for arch in pairs(trial.gpus) do
    it(("are accepted, all that are claimed for sm_%d"):format(arch), function()
      local problems, counts = {}, {}
      each_claim(arch, function(way, dtype, sizes, mask, layout)
        table.insert(problems, problem(way, dtype, sizes, mask, layout, arch))
        table.insert(counts, operations(way, sizes, mask))
      end)
      local answers, why = trial.ask(problems, arch)
      if not answers then return pending(why) end
      for i, answer in ipairs(answers) do assert.equal("ok ops " .. counts[i], answer, problems[i]) end
    end)
  end

  -- What is claimed, with a reason where it is not.
  local refused = {
    { "forward f32 2 4 4 64 64 64 full apart 90", "more than 16 bits" },
    { "forward f64 2 4 4 64 64 64 full apart 90", "more than 16 bits" },
    { "forward bf16 0 4 4 64 64 64 full apart 90", "no elements" },
    { "forward bf16 2 4 4 64 0 64 full apart 90", "no elements" },
    { "backward bf16 2 4 3 64 64 64 full apart 90", "no multiple of the key heads" },
    { "forward bf16 2 4 4 64 64 12 full apart 90", "no multiple of 8" },
    { "backward bf16 2 4 4 64 64 264 full apart 90", "heads as large" },
    { "backward bf16 2 4 4 64 64 136 full apart 80", "heads as large" },
    { "backward bf16 2 4 4 64 64 136 full apart 100", "heads as large" },
    { "forward bf16 2 4 4 64 64 64 full apart 75", "before sm_80" },
    { "forward bf16 2 4 4 128 64 64 causal apart 90", "more queries than keys" },
    { "forward bf16 2 4 4 100 128 64 causal apart 90", "no multiples of 64" },
  }

  it("are not tried where they are not claimed", function()
    local problems = {}
    for i, case in ipairs(refused) do problems[i] = case[1] end
    local answers, why = trial.ask(problems, 90)
    if not answers then return pending(why) end
    for i, case in ipairs(refused) do
      assert.truthy(answers[i]:find("^refused ") and answers[i]:find(case[2], 1, true), case[1] .. ": " .. answers[i])
    end
  end)

  -- As many as show each kind of graph; the rest is slow: each plan compiles its kernel.
  local planned = {
    { "forward", "bf16", "8 12 12 1024 1024 64", "causal", "fused" },
    { "backward", "bf16", "8 12 12 1024 1024 64", "causal", "fused" },
    { "forward", "f16", "1 32 8 4096 4096 128", "causal", "apart" },
    { "backward", "f16", "1 32 8 4096 4096 128", "full", "apart" },
    { "backward", "bf16", "2 2 2 64 128 64", "causal", "apart" },
  }

  local function plans(arch, list)
    local problems = {}
    for i, p in ipairs(list) do problems[i] = problem(p[1], p[2], p[3], p[4], p[5], arch) end
    local answers, why = trial.ask(problems, arch, true)
    if not answers then return pending(why) end
    for i, answer in ipairs(answers) do
      local workspace = answer:match "^ok ops %d+ engine %d+ workspace (%d+) deterministic graphs$"
      assert.truthy(workspace, problems[i] .. ": " .. answer)
      assert.is_true(tonumber(workspace) < 2 ^ 28, problems[i] .. ": " .. answer)
    end
  end

  it("become plans for an H200: deterministic, to be captured", function() return plans(90, planned) end)

  it("become plans for other GPUs, and for each head size #slow", function()
    for arch in pairs(trial.gpus) do
      local list = { unpack(planned) }
      for d = 8, arch == 90 and 256 or 128, 24 do
        for _, way in ipairs { "forward", "backward" } do
          table.insert(list, { way, "bf16", ("2 4 2 100 100 %d"):format(d), "causal", "apart" })
        end
      end
      if plans(arch, list) then return end
    end
  end)

  it("have no plan where a head size is refused for that reason", function()
    local answers, why = trial.ask({ "force forward bf16 2 4 4 64 64 12 full apart 90" }, 90, true)
    if not answers then return pending(why) end
    assert.truthy(answers[1]:find("no engine", 1, true), answers[1])
    answers = trial.ask({ "force backward bf16 2 4 4 64 64 136 full apart 80" }, 80, true)
    assert.truthy(answers[1]:find("no engine", 1, true), answers[1])
  end)
end)

-- ---------------------------------------------------------------- what they compute

if emulation.is_on() and not is_emulated then
  pending "attention by cuDNN's graphs: a file before this one has started the emulation without cuDNN"
end
if not is_emulated then return end

-- b, queries, keys, heads, key heads, size of a head
local problems = { { 2, 9, 9, 4, 4, 8 }, { 1, 17, 17, 6, 2, 16 }, { 2, 5, 12, 2, 1, 24 }, { 1, 64, 128, 2, 2, 8 } }

-- (b, s, heads, d) in memory of its own, or the part of a fused QKV that begins at head `first` of `all`.
local function operand(b, s, heads, d, dtype, fused, first, all)
  if not fused then return support.input({ b, s, heads, d }, dtype) end
  return support.input({ b, s, all, d }, dtype):narrow(3, first, heads)
end

local function operands(p, dtype, fused)
  local b, s, t, h, hk, d = unpack(p)
  local all = h + 2 * hk
  return operand(b, s, h, d, dtype, fused and s == t, 1, all), operand(b, t, hk, d, dtype, fused, h + 1, all),
    operand(b, t, hk, d, dtype, fused, h + hk + 1, all)
end

-- How often cuDNN was asked while fn ran.
local function served(fn)
  local before = emulation.counts().products
  fn()
  return emulation.counts().products - before
end

describe("attention by cuDNN's graphs agrees with ref:", function()
  -- Probabilities, and the scores' gradients, are rounded to 16 bits before the second product: half a unit in the
  -- last place of each term, and the terms of a row of the first sum to at most 1. The gradients' terms are below 2
  -- in size, and their sums are over queries of all heads of a group or over keys.
  local function within(dtype, terms)
    return support.absolute(support.epsilon[dtype] / support.epsilon.f32, 2 * math.sqrt(terms))
  end

  -- By one call of cuDNN: what is not served would hide here behind our own kernel.
  local function agree(op, inputs, attrs, bounds)
    local outputs, got = { n = op == "attention_grad" and 4 or #bounds }, nil -- no gradient of a bias
    for i = 1, #bounds do outputs[i] = true end
    local want = core.run_op("ref", op, inputs, outputs, attrs)
    assert.equal(1, served(function() got = core.run_op("cuda", op, inputs, outputs, attrs) end))
    for i, bound in ipairs(bounds) do support.compare(got[i], want[i], bound, ("%s, output %d"):format(op, i)) end
  end

  for _, p in ipairs(problems) do
    for _, dtype in ipairs { "bf16", "f16" } do
      local b, s, t, h, hk, d = unpack(p)
      for _, causal in ipairs { false, true } do
        local is_claimed = not causal or s == t or (s % 64 == 0 and t % 64 == 0)
        local name = ("%s b %d, %d queries, %d keys, %d heads, %d key heads, size %d%s"):format(dtype, b, s, t, h,
          hk, d, causal and ", causal" or "")
        if is_claimed then
          it(name, function()
            for i, fused in ipairs { false, true } do
              gm.scope(function()
                local q, k, v = operands(p, dtype, fused)
                local g = support.input({ b, s, h, d }, dtype)
                local attrs = { causal = causal, scale = i == 2 and 0.3 or 0 }
                local inputs = { q, k, v, nil, n = 6 }
                agree("attention", inputs, attrs, { within(dtype, 1), support.absolute(64, 8) })
                local o = support.copy(support.reference("attention", inputs, attrs, 1, 2), dtype)
                local lse = support.copy(support.reference("attention", inputs, attrs, 2, 2), "f32")
                local all = within(dtype, math.max(t, s * h / hk))
                agree("attention_grad", { q, k, v, nil, o, lse, g, n = 9 }, attrs, { all, all, all })
              end)
            end
          end)
        end
      end
    end
  end

  it("a mask that is no prefix is refused at the next wait", function()
    gm.scope(function()
      local q, mask = support.input({ 2, 3, 2, 8 }, "bf16"), gm.tensor({ { 1, 1, 0 }, { 1, 0, 1 } }, { dtype = "u8" })
      assert.error_matches(function()
        local o = core.run_op("cuda", "attention", { q, q, q, mask, n = 6 }, { true, true, n = 2 },
          { prefix_mask = true })[1]
        return support.copy(o, "f32"):totable()
      end, "attention: key_mask has a zero before a one in row 1 %(from 0%): 1 of its first 3 keys are hidden")
    end)
  end)

  it("what cuDNN lacks is not asked of it", function()
    gm.scope(function()
      local function asked(dtype, d, attrs, mask, layout)
        local q, k = support.input({ 2, 8, 2, d }, dtype, layout), support.input({ 2, 8, 2, d }, dtype)
        local outputs = { true, true, n = 2 }
        if attrs.accumulate then
          outputs[1], outputs[2] = gm.zeros({ 2, 8, 2, d }, { dtype = dtype }), gm.zeros({ 2, 2, 8 }, { dtype = "f32" })
        end
        return served(function() core.run_op("cuda", "attention", { q, k, k, mask, n = 6 }, outputs, attrs) end)
      end
      assert.equal(1, asked("bf16", 8, {}))
      assert.equal(0, asked("f32", 8, {}))
      assert.equal(0, asked("f64", 8, {}))
      assert.equal(0, asked("bf16", 12, {}))
      assert.equal(0, asked("bf16", 8, { p = 0.1, stream = { key = 1, step = 1 } }))
      assert.equal(0, asked("bf16", 8, { accumulate = true }))
      assert.equal(0, asked("bf16", 8, { causal = true, window = 3 }))
      assert.equal(0, asked("bf16", 8, { softcap = 3 }))
      assert.equal(0, asked("bf16", 8, {}, support.integers({ 2, 8 }, "u8", 1, 1)))
      assert.equal(0, asked("bf16", 8, {}, nil, "window")) -- its first element is not aligned
      assert.equal(0, asked("bf16", 8, {}, nil, "expanded")) -- a stride of 0
    end)
  end)
end)
