--- What a training step asks of a GPU, exactly: the ops of a GPT's forward pass, loss, backward pass and update, the
-- launches, library calls, copies and waits that they are, and the bytes that a layer moves, by formulas in the depth.
-- counts_step.lua is the program that is counted; docs/gpu_kernels.md has what follows from the figures.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local emulation = require "spec.cuda.emulation"
local json = require "ganymede.base.json"
local op_launches = require "spec.bench.op_launches"
local run_host = require "spec.support.run_host"

if emulation.lacks(pending, "emulated") then return end

local batch, length, width, heads = 2, 16, 64, 2 -- as in counts_step.lua

local known = {}
--- phase -> { name of an op or of a count = number, and "<op>.bytes" }
local function counted(depth, dropout)
  local key = depth .. " " .. dropout
  if not known[key] then
    local env = emulation.environment { cudnn = true }
    env.GANYMEDE_ROOT = GANYMEDE_ROOT
    local result = run_host({ "run", GANYMEDE_ROOT .. "/spec/cuda/counts_step.lua", "--device", "cuda", "--threads",
      "1", "--set", "depth=" .. depth, "--set", "dropout=" .. dropout }, { env = env })
    assert.equal(0, result.code, result.err)
    known[key] = json.decode(result.out:match "{.*}", "what counts_step.lua printed")
  end
  return known[key]
end

-- Ops by phase. A layer's forward pass: two norms, each with the sum before it; four products, attention. Backward: of
-- each product two, with the gradients of biases and through gelu; of a norm and of attention one. `drops`: places
-- where something may be dropped: the embeddings, and two branches a layer.
local function ops_of(depth, dropout)
  local drops = dropout > 0 and 1 + 2 * depth or nil
  return {
    forward = {
      embedding = 1, binary = 1, layer_norm = 2 * depth + 1, linear = 4 * depth + 1, attention = depth, dropout = drops,
    },
    loss = { fill = 1, affine = 2, cross_entropy_both = 1, sum = 1 }, -- 1, and what backward will bring to each loss
    backward = {
      fill = 1, affine = 1, rescale_rows = 1,                -- from 1 to the gradient of the logits, which is there
      matmul = 3 * depth + 2, linear_input_grad = depth,     -- dx, and both sides of the head, which has no bias
      linear_weight_grad = 4 * depth, attention_grad = depth, layer_norm_grad = 2 * depth + 1, dropout = drops,
      axpy = 1, sum = 1, copy = 2, embedding_grad = 1,       -- the stream's end, tables of positions and tokens
      -- copy: one is of the loss, in f64
    },
    update = { sum_squares = 1, step_control = 1, adam = 1 },
  }
end

-- What no op asks for: the step block, read by kernels of dropout and of the update, whichever come first; the numbers
-- of the step, for which nobody waits.
local function beside(phase, dropout)
  if phase == "forward" then return { copies = dropout > 0 and 1 or 0, waits = 0 } end
  if phase == "backward" then return { launches = 1, copies = -1, waits = 0 } end -- the loss in f64 is no plain copy
  if phase == "update" then return { copies = dropout > 0 and 1 or 2, waits = 0 } end
  return { copies = 0, waits = 0 }
end

local function bytes(phase, depth)
  local sum = 0
  for name, n in pairs(counted(depth, 0)[phase]) do
    if name:find "%.bytes$" then sum = sum + n end
  end
  return sum
end

describe("a step's requests to the GPU:", function()
  for _, case in ipairs { { 1, 0 }, { 2, 0 }, { 3, 0.1 } } do
    local depth, dropout = case[1], case[2]
    local label = ("depth %d, dropout %g: "):format(depth, dropout)

    it(label .. "the ops are those of the formula", function()
      for phase, want in pairs(ops_of(depth, dropout)) do
        local got = {}
        for name, n in pairs(counted(depth, dropout)[phase]) do
          if not name:find "%.bytes$" then got[name] = n end
        end
        for _, name in ipairs { "launches", "libraries", "copies", "waits" } do got[name] = nil end
        assert.same(want, got, phase)
      end
    end)

    it(label .. "and ask for what ops ask for", function()
      for phase, ops in pairs(ops_of(depth, dropout)) do
        local want = beside(phase, dropout)
        for name, calls in pairs(ops) do
          for what, n in pairs(op_launches[name]) do want[what] = (want[what] or 0) + n * calls end
        end
        local got = counted(depth, dropout)[phase]
        for _, what in ipairs { "launches", "libraries", "copies", "waits", "allocations", "graphs" } do
          assert.equal(want[what] or 0, got[what] or 0, phase .. ": " .. what)
        end
      end
    end)
  end

  -- Numbers of 2 bytes, unless said otherwise; n rows of c. Each op reads its inputs once and writes its outputs once.
  it("a layer moves the bytes of the formula", function()
    local n, c = batch * length, width
    local statistics = 2 * 4 * n -- of a norm
    local forward = 2 * (4 * n * c + 2 * c) + statistics       -- x, residual -> y, sum
      + (4 * n * c + 3 * c * c + 3 * c) * 2                     -- to queries, keys and values
      + 4 * n * c * 2 + 4 * n * heads                           -- attention, and its log of sums
      + (2 * n * c + c * c + c) * 2
      + 2 * (4 * n * c + 2 * c) + statistics
      + (n * c + 4 * c * c + 4 * c + 8 * n * c) * 2             -- up: y, and what gelu was given
      + (5 * n * c + 4 * c * c + c) * 2
    assert.equal(forward, bytes("forward", 3) - bytes("forward", 2))
    local function both(rows_in, rows_out, bias, between) -- of a product: dx, then dw and db
      local w = rows_in * rows_out
      return 2 * ((rows_out + rows_in * (between and 2 or 1)) * n + w + (rows_out + rows_in) * n + w + bias)
    end
    local backward = both(4 * c, c, c, true) + both(c, 4 * c, 4 * c) + both(c, c, c) + both(c, 3 * c, 3 * c)
      + 8 * n * c * 2 + 4 * n * heads                           -- attention
      + 2 * ((4 * n * c + 3 * c) * 2 + statistics)              -- g, gsum, x -> dx
    assert.equal(backward, bytes("backward", 3) - bytes("backward", 2))
  end)
end)
