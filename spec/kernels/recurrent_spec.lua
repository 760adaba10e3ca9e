-- The cells of LSTM and GRU: every CPU table and the kernels of GPUs against the reference. spec/nn/recurrent_spec.lua
-- compares whole layers, which are made of them, with PyTorch.
--
-- Inputs are uniform in [-1, 1), and saved gates in [0, 1). A gate is given a sum below 2, which is rounded, and its
-- function has an error of a few units: with the products and sums behind it at most 12 roundings of numbers below 2.
-- Backward nothing is above 4.
local core = require "ganymede.core"
local gm = require "ganymede"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local agree = support.agree
local within, within_grad = support.absolute(12, 2), support.absolute(16, 4)
local shapes = { { 5 }, { 1, 1 }, { 3, 5 }, { 2, 3, 8 }, { 5, 70 }, { 33, 64 }, { 0, 4 }, { 2, 0 } }

-- The shape of `count` gates beside each other.
local function wide(shape, count)
  local more = { unpack(shape) }
  more[#more] = count * more[#more]
  return more
end

describe("cells agree with ref:", function()
  support.each(it, "LSTM", shapes, support.layouts, function(dtype, shape, layout)
    local function input(count, low) return support.input(wide(shape, count), dtype, layout, low) end
    for _, given in ipairs { { false, false }, { true, false }, { false, true }, { true, true } } do
      for _, outputs in ipairs { { true, true, true }, { n = 3, true, true, false } } do
        agree { op = "lstm_cell", inputs = { n = 3, input(4), given[1] and input(4), given[2] and input(1) },
                outputs = outputs, within = within }
      end
      local a, b = given[1], given[2]
      agree { op = "lstm_cell_grad", outputs = { n = 2, true, not a or b }, within = within_grad,
              inputs = { n = 6, a and input(1), b and input(1), (not a or b) and input(1), input(4, 0),
                         not a and input(1), input(1) } }
    end
  end)

  support.each(it, "GRU", shapes, support.layouts, function(dtype, shape, layout)
    local function input(count, low) return support.input(wide(shape, count), dtype, layout, low) end
    for _, given in ipairs { { false, false }, { true, false }, { false, true }, { true, true } } do
      local a, b = given[1], given[2]
      for _, outputs in ipairs { { true, true }, { n = 2, true, false } } do
        agree { op = "gru_cell", inputs = { n = 3, input(3), a and input(3), b and input(1) }, outputs = outputs,
                within = within }
      end
      agree { op = "gru_cell_grad", outputs = { n = 3, true, a, not b }, within = within_grad,
              inputs = { n = 4, a and input(1), b and input(1), input(4, 0), not a and input(1) } }
    end
  end)
end)

describe("cells", function()
  it("saturate, and carry NaN", function()
    local far = { 100, -100, 100, 100, 0 / 0, 0, 0, 0 } -- two samples of one number
    local x = gm.tensor(far, { dtype = "f32", shape = { 2, 4 } })
    local c = gm.tensor({ { 3 }, { 1 } }, { dtype = "f32" })
    agree { op = "lstm_cell", inputs = { x, nil, c, n = 3 }, outputs = { true, true, true }, within = within }
    local y = core.run_op("ref", "lstm_cell", { x, nil, c, n = 3 }, { true, true, n = 3 })
    assert.same({ { 1 } }, y[2]:narrow(1, 1, 1):totable()) -- nothing of 3 is kept, and tanh(100) comes in
    assert.is_true(y[1]:select(1, 2):item() ~= y[1]:select(1, 2):item())
  end)

  it("have the same bits on any number of threads", function()
    same_bits [[
      local h, x, x3 = gm.normal({ 600, 37 }, { seed = 1 }), gm.normal({ 600, 148 }, { seed = 2 }),
        gm.normal({ 600, 111 }, { seed = 3 })
      for _, call in ipairs {
        { "lstm_cell", { x, x, h }, 3 }, { "lstm_cell_grad", { h, h, h, x, h, h }, 2 },
        { "gru_cell", { x3, x3, h }, 2 }, { "gru_cell_grad", { h, h, x, h }, 3 },
      } do
        local outputs = {}
        for i = 1, call[3] do outputs[i] = true end
        outputs = core.run_op("cpu", call[1], call[2], outputs)
        for i = 1, call[3] do add(outputs[i]) end
      end
    ]]
  end)

  it("refuse what does not fit", function()
    local function t(...) return gm.ones({ ... }) end
    local function refuses(op, inputs, n, message)
      local outputs = {}
      for i = 1, n do outputs[i] = function() return gm.ones { 2, 1 } end end
      support.refuses(op, inputs, outputs, {}, message)
    end
    refuses("lstm_cell", { t(2, 6), nil, nil, n = 3 }, 3, "the last dimension should be 4 times the width of a state")
    refuses("lstm_cell", { t(2, 4), t(2, 8), nil, n = 3 }, 3, "moved")
    refuses("lstm_cell", { t(2, 4), nil, t(2, 2), n = 3 }, 3, "c is %(2, 2%)")
    refuses("gru_cell", { t(2, 4), nil, nil, n = 3 }, 2, "the last dimension should be 3 times the width of a state")
    refuses("gru_cell_grad", { t(3, 1), nil, t(2, 4), nil, n = 4 }, 3, "g is %(3, 1%)")
    refuses("lstm_cell_grad", { nil, nil, nil, t(2, 4), nil, t(2, 2), n = 6 }, 2, "next is %(2, 2%)")
  end)
end)
