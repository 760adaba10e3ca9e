--- Convolutions by cuDNN, without a GPU. The graphs of what gm_dnn_takes_convolution claims are checked by cuDNN itself
-- (dnn_trial.c), which also builds plans for a GPU that is described to it. What the graphs mean, and what they are
-- given, is compared with ref through a cuDNN in plain loops (fake_dnn.c). What cuDNN's kernels compute is for a
-- machine with a GPU. Our own kernels are tried by spec/kernels/convolution_spec.lua.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local trial = require "spec.cuda.cudnn_trial"

if not core.cuda_facts() then return pending(emulation.no_cuda) end
local is_emulated = emulation.start { cudnn = true } and emulation.is_on() -- before support starts it without
local support = require "spec.kernels.support"

-- n c h w out kernel stride padding groups
local sizes = { "4 64 56 56 64 3 1 1 1", "2 8 9 11 8 3 1 1 1", "4 64 56 56 128 3 2 1 1", "3 16 1 57 24 1 2 0 1",
                "4 64 14 14 64 3 1 1 4", "2 16 7 7 32 3 3 0 2", "1 24 8 8 40 5 1 2 1", "4 256 14 14 512 1 2 0 1" }

describe("cuDNN's convolutions", function()
  it("become plans for an H200 that give the same bits each time, all that are claimed", function()
    local problems = {}
    for i, size in ipairs(sizes) do
      for _, side in ipairs { "result", "input", "weight" } do
        table.insert(problems, ("conv %s %s %s 90"):format(side, i % 2 == 0 and "f16" or "bf16", size))
      end
    end
    local answers, why = trial.ask(problems, 90, true)
    if not answers then return pending(why) end
    for i, answer in ipairs(answers) do
      assert.truthy(answer:match "^ok ops 1 engine %d+ workspace %d+ deterministic", problems[i] .. ": " .. answer)
    end
  end)

  it("become such plans where channels are last, and split a long sum", function()
    local problems = {}
    for i, size in ipairs(sizes) do
      for _, side in ipairs { "result", "input", "weight" } do
        table.insert(problems, ("conv %s-last %s %s 90"):format(side, i % 2 == 0 and "f16" or "bf16", size))
      end
    end
    local long = "bf16 128 16 115 115 64 4 1 0 1 90" -- the first convolution of a ResNet, folded
    table.insert(problems, "conv weight-last " .. long)
    table.insert(problems, "conv weight-last-long " .. long)
    local answers, why = trial.ask(problems, 90, true)
    if not answers then return pending(why) end
    local engine, workspace = {}, {}
    for i, answer in ipairs(answers) do
      engine[i], workspace[i] = answer:match "^ok ops 1 engine (%d+) workspace (%d+) deterministic"
      assert.truthy(engine[i], problems[i] .. ": " .. answer)
    end
    assert.equal(engine[#engine - 1], engine[#engine])
    assert.is_true(tonumber(workspace[#workspace]) > 2 * tonumber(workspace[#workspace - 1]))
  end)

  it("are not tried where they are not claimed", function()
    local refused = {
      { "conv result f32 2 8 9 9 8 3 1 1 1 90", "more than 16 bits" },
      { "conv result bf16 0 8 9 9 8 3 1 1 1 90", "no elements" },
      { "conv result bf16 2 12 9 9 8 3 1 1 1 90", "no multiple of 8" },
      { "conv input bf16 2 8 9 9 12 3 1 1 1 90", "no multiple of 8" },
      { "conv weight bf16 2 16 9 9 16 3 1 1 16 90", "depthwise" },
      { "conv result bf16 2 8 9 9 8 3 1 1 1 75", "before sm_80" },
    }
    local problems = {}
    for i, case in ipairs(refused) do problems[i] = case[1] end
    local answers, why = trial.ask(problems, 90, true)
    if not answers then return pending(why) end
    for i, case in ipairs(refused) do
      assert.truthy(answers[i]:find("^refused ") and answers[i]:find(case[2], 1, true), case[1] .. ": " .. answers[i])
    end
  end)
end)

-- ---------------------------------------------------------------- what they compute

if emulation.is_on() and not is_emulated then
  pending "convolutions by cuDNN: a file before this one has started the emulation without cuDNN"
end
if not is_emulated then return end

-- How often cuDNN was asked while fn ran.
local function served(fn)
  local before = emulation.counts().products
  fn()
  return emulation.counts().products - before
end

-- The product is rounded to 16 bits before bias and activation: one more rounding of numbers like the result's.
local function within(dtype) return support.absolute(2 * support.epsilon[dtype] / support.epsilon.f32) end

local function agree(op, inputs, outputs, attrs, dtype)
  local got
  local want = core.run_op("ref", op, inputs, outputs, attrs)
  assert.equal(1, served(function() got = core.run_op("cuda", op, inputs, outputs, attrs) end))
  for i = 1, outputs.n do
    if want[i] then support.compare(got[i], want[i], within(dtype), ("%s, output %d"):format(op, i)) end
  end
end

describe("convolutions by cuDNN agree with ref:", function()
  local cases = {
    { x = { 2, 8, 7, 6 }, w = { 16, 8, 3, 2 }, y = { 2, 16, 4, 5 }, kernel = { 3, 2 }, over = { 0, 0 },
      attrs = { stride = { 2, 1 }, dilation = { 1, 1 }, pad_low = { 1, 0 }, pad_high = { 1, 0 }, groups = 1 } },
    { x = { 2, 16, 11 }, w = { 16, 8, 2 }, y = { 2, 16, 5 }, kernel = { 2 }, over = { 1 },
      attrs = { stride = { 2 }, dilation = { 2 }, pad_low = { 0 }, pad_high = { 0 }, groups = 2 } },
    -- more than a tile of what is turned: of places, whole packs and not, and of channels
    { x = { 2, 72, 9, 9 }, w = { 8, 72, 3, 3 }, y = { 2, 8, 9, 9 }, kernel = { 3, 3 }, over = { 0, 0 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 1, 1 }, pad_high = { 1, 1 }, groups = 1 } },
    { x = { 1, 8, 10, 8 }, w = { 72, 8, 3, 2 }, y = { 1, 72, 10, 8 }, kernel = { 3, 2 }, over = { 0, 0 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 2 }, pad_low = { 1, 1 }, pad_high = { 1, 1 }, groups = 1 } },
    -- few channels, which take in the places that a stride passes over: 3 of 7 x 7, 1 of another stride each way, 7
    { x = { 2, 3, 15, 14 }, w = { 8, 3, 7, 7 }, y = { 2, 8, 8, 7 }, kernel = { 7, 7 }, over = { 0, 1 },
      attrs = { stride = { 2, 2 }, dilation = { 1, 1 }, pad_low = { 3, 3 }, pad_high = { 3, 3 }, groups = 1 } },
    { x = { 2, 1, 9, 12 }, w = { 16, 1, 4, 5 }, y = { 2, 16, 3, 9 }, kernel = { 4, 5 }, over = { 1, 0 },
      attrs = { stride = { 3, 1 }, dilation = { 1, 1 }, pad_low = { 0, 1 }, pad_high = { 2, 0 }, groups = 1 } },
    { x = { 2, 7, 5, 6 }, w = { 8, 7, 2, 2 }, y = { 2, 8, 2, 3 }, kernel = { 2, 2 }, over = { 1, 0 },
      attrs = { stride = { 2, 2 }, dilation = { 1, 1 }, pad_low = { 0, 0 }, pad_high = { 0, 0 }, groups = 1 } },
    -- cuDNN is given wider copies of these: of channels (whole packs of space, and not), of padding, of both
    { x = { 2, 3, 8, 4 }, w = { 8, 3, 3, 3 }, y = { 2, 8, 8, 4 }, kernel = { 3, 3 }, over = { 0, 0 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 1, 1 }, pad_high = { 1, 1 }, groups = 1 } },
    { x = { 2, 9, 7, 5 }, w = { 5, 9, 3, 1 }, y = { 2, 5, 4, 5 }, kernel = { 3, 1 }, over = { 0, 0 },
      attrs = { stride = { 2, 1 }, dilation = { 1, 1 }, pad_low = { 1, 0 }, pad_high = { 1, 0 }, groups = 1 } },
    { x = { 2, 8, 6, 8 }, w = { 16, 8, 3, 3 }, y = { 2, 16, 3, 4 }, kernel = { 3, 3 }, over = { 0, 0 },
      attrs = { stride = { 2, 2 }, dilation = { 1, 1 }, pad_low = { 0, 0 }, pad_high = { 1, 1 }, groups = 1 } },
    { x = { 2, 3, 4, 8 }, w = { 8, 3, 2, 4 }, y = { 2, 8, 3, 5 }, kernel = { 2, 4 }, over = { 0, 0 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 0, 0 }, pad_high = { 0, 0 }, groups = 1 } },
    { x = { 2, 1, 9 }, w = { 3, 1, 4 }, y = { 2, 3, 8 }, kernel = { 4 }, over = { 0 },
      attrs = { stride = { 1 }, dilation = { 1 }, pad_low = { 2 }, pad_high = { 0 }, groups = 1 } },
    { x = { 2, 16, 5, 8 }, w = { 16, 8, 2, 2 }, y = { 2, 16, 5, 8 }, kernel = { 2, 2 }, over = { 0, 0 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 0, 1 }, pad_high = { 1, 0 }, groups = 2 } },
  }
  for i, c in ipairs(cases) do
    for _, dtype in ipairs { "bf16", "f16" } do
      it(("case %d %s"):format(i, dtype), function()
        gm.scope(function()
          local x, w, g = support.input(c.x, dtype), support.input(c.w, dtype), support.input(c.y, dtype)
          local b = support.input({ c.w[1] }, dtype)
          local function with(more)
            for k, v in pairs(c.attrs) do more[k] = v end
            return more
          end
          agree("convolution", { x, w, nil, n = 3 }, { true, false, n = 2 }, c.attrs, dtype)
          agree("convolution", { x, w, b, n = 3 }, { true, true, n = 2 }, with { ["function"] = "gelu" }, dtype)
          local back = with { output_padding = c.over }
          agree("transposed_convolution", { g, w, nil, n = 3 }, { true, false, n = 2 }, back, dtype)
          agree("convolution_weight_grad", { g, x, n = 2 }, { true, true, n = 2 }, with { kernel = c.kernel }, dtype)
          local into = { gm.ones(c.w, { dtype = dtype }), false, n = 2 }
          local sums = with { kernel = c.kernel, accumulate = true }
          local once = core.run_op("ref", "convolution_weight_grad", { g, x, n = 2 }, { true, false, n = 2 },
            with { kernel = c.kernel })[1]
          core.run_op("cuda", "convolution_weight_grad", { g, x, n = 2 }, into, sums)
          support.compare(support.copy(into[1], "f32"), support.copy(once + 1, "f32"),
            support.absolute(2 * support.epsilon[dtype] / support.epsilon.f32), "added")
        end)
      end)
    end
  end

  it("what cuDNN is not claimed to take is not asked of it", function()
    gm.scope(function()
      local function asked(dtype, channels, attrs, layout)
        local x = support.input({ 1, channels, 5, 5 }, dtype, layout)
        local w = support.input({ 8, channels / (attrs.groups or 1), 3, 3 }, dtype)
        return served(function() core.run_op("cuda", "convolution", { x, w, n = 3 }, { true, false, n = 2 }, attrs) end)
      end
      assert.equal(1, asked("bf16", 8, {}))
      assert.equal(0, asked("f32", 8, {}))
      assert.equal(0, asked("bf16", 6, { groups = 2 }))
      assert.equal(0, asked("bf16", 8, { groups = 8, pad_low = { 1, 0 } }))
    end)
  end)

  it("a tensor with gaps is copied for cuDNN", function()
    gm.scope(function()
      for _, dtype in ipairs { "bf16", "f16" } do
        local x = support.input({ 2, 6, 5, 8 }, dtype, "window")
        agree("convolution", { x, support.input({ 8, 6, 3, 3 }, dtype), nil, n = 3 }, { true, false, n = 2 }, {}, dtype)
      end
    end)
  end)
end)
