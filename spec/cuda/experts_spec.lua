--- Mixtures of experts with `--device cuda`: losses of training as on the CPU, what a layer asks of the device and of
-- the host, and a layer recorded as a graph. spec/experts holds on this device too (suite_spec.lua).
-- sanitizers: no, losses are compared; training_spec.lua and spec/experts look at the same code
--
-- It runs itself again with --device cuda, under the emulation where there is no GPU.
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local job = require "spec.parallel.job"
local numeric = require "spec.support.numeric"
local run_host = require "spec.support.run_host"

-- ---------------------------------------------------------------- on the device

local function leaf(seed, ...) return gm.normal({ ... }, { seed = seed }):requires_grad(true) end

-- An op of E experts for 24 tokens, 2 choices each, of which an expert takes 9 at most: forward() and its leaves.
local function mixture(experts, room, gated)
  local list = {}
  for i = 1, 48 do list[i] = i * i % experts end
  local index = core.experts_capacity(gm.tensor(list, { dtype = "i64", shape = { 24, 2 } }), experts, 9)
  local x, weight = leaf(1, 24, 16), leaf(2, 24, 2)
  local layer = { up = leaf(3, experts, 32, 16), up_bias = leaf(4, experts, 32), down = leaf(5, experts, 16, 32),
    down_bias = leaf(6, experts, 16), activation = "gelu", room = room }
  local leaves = { x, weight, layer.up, layer.up_bias, layer.down, layer.down_bias }
  if gated then
    layer.activation, layer.gate, layer.gate_bias = "swiglu", leaf(8, experts, 32, 16), leaf(9, experts, 32)
    leaves[7], leaves[8] = layer.gate, layer.gate_bias
  end
  return function() return core.experts(x, index, weight, layer) end, leaves, list
end

local function on_device()
  local counted = core.device().description:find "emulated GPU" and emulation.counts

  -- What the driver did for fn.
  local function counts_of(fn)
    local before, made = counted(), {}
    fn()
    for name, n in pairs(counted()) do made[name] = n - before[name] end
    return made
  end

  describe("a mixture of experts", function()
    local function same_with_a_room(gated)
      gm.scope(function()
        local g, results = gm.normal({ 24, 16 }, { seed = 7 }), {}
        for i, room in ipairs { 0, 9 } do
          local forward, leaves = mixture(5, room, gated)
          local y = forward()
          y:backward(g)
          results[i] = { y:totable() }
          for k, t in ipairs(leaves) do results[i][k + 1] = t:grad():totable() end
        end
        -- sums of 9 to 32 terms in f32, in another order
        for k, want in ipairs(results[1]) do numeric.agree(results[2][k], want, 4e-6) end
      end)
    end

    it("has the same numbers with a room, whose products are a batch", function() same_with_a_room(false) end)
    it("has the same numbers with a room where it is gated", function() same_with_a_room(true) end)

    it("refuses more choices of an expert than it has rows, when the host next waits", function()
      gm.scope(function()
        local index = gm.tensor({ 1, 1, 1, 0 }, { dtype = "i64", shape = { 4, 1 } })
        local layer = { up = leaf(1, 2, 4, 3), down = leaf(2, 2, 3, 4), room = 2 }
        local ok, err = pcall(function() return core.experts(leaf(3, 4, 3), index, leaf(4, 4, 1), layer):totable() end)
        assert.is_false(ok)
        assert.is_truthy(tostring(err):find("one too many for expert 1, which has 2 rows", 1, true), err)
      end)
    end)

    local function same_when_replayed(capacity)
      gm.scope(function()
        core.set_seed(8)
        local layer = gm.nn.MoE { width = 8, hidden = 12, experts = 4, capacity = capacity,
                                  min_capacity = capacity and 1,
                                  router = { type = "SigmoidRouter", k = 2, balance = 0.5, noise = "normal" } }
        layer:materialize()
        local x, g = gm.zeros { 12, 8 }, gm.normal({ 12, 8 }, { seed = 3 })
        local y = gm.zeros { 12, 8 }
        local function step()
          core.begin_step()
          auxiliary.clear()
          local out = layer(x)
          y:copy_(out:detach())
          auxiliary.add_to(gm.ops.sum(gm.ops.mul(out, g))):backward()
        end
        local function numbers(run, seed)
          x:copy_(gm.normal({ 12, 8 }, { seed = seed }))
          for _, p in ipairs(layer:parameters()) do p:grad():fill_(0) end
          run()
          local all = { y:totable() }
          for i, p in ipairs(layer:parameters()) do all[i + 1] = p:grad():totable() end
          return all
        end
        gm.scope(step) -- gradients are there, and are added to from here on
        local eager = { numbers(function() gm.scope(step) end, 5), numbers(function() gm.scope(step) end, 6) }
        core.graph_begin()
        local ok, err = pcall(gm.scope, step)
        if not ok then core.graph_drop() end
        assert(ok, err)
        local graph = core.graph_end()
        for i = 1, 2 do
          assert.same(eager[i], numbers(function() graph:replay() end, 4 + i))
        end
        assert.are_not.same(eager[1], eager[2])
        graph:close()
      end)
    end

    it("of a layer can be recorded, and does the same when it is replayed", function() same_when_replayed() end)
    it("of a layer with a capacity can be recorded, too", function() same_when_replayed(1) end)

    if not counted then return end

    it("never waits; launches and products by formula, however many experts there are", function()
      for _, experts in ipairs { 4, 8 } do
        for _, room in ipairs { 0, 9 } do
          gm.scope(function()
            local forward, leaves = mixture(experts, room)
            local g, there, back = gm.normal({ 24, 16 }, { seed = 7 }), nil, nil
            for _ = 1, 3 do -- the first ones allocate, and wait for staging memory that mixture's writes used
              core.zero_grad(leaves)
              gm.scope(function()
                local y
                there = counts_of(function() y = forward() end)
                back = counts_of(function() y:backward(g) end)
              end)
            end
            local batch = room > 0
            assert.equal(batch and 2 or 0, there.products)
            assert.equal(batch and 4 or 0, back.products)
            -- forward: 6 of the sort, rows out, two products or biases, an activation, rows back
            assert.equal(6 + 1 + 2 + 1 + 1, there.launches)
            -- backward: rows out; the activation, its gradient, and sums for two biases; four products of groups; rows
            -- back, weights
            assert.equal(1 + 4 + (batch and 0 or 4) + 1 + 1, back.launches)
            for _, name in ipairs { "waits", "to_host", "to_device", "sets", "allocations" } do
              assert.equal(0, there[name] + back[name], name)
            end
          end)
        end
      end
    end)
  end)
end

if core.device().name == "cuda" then return on_device() end
if emulation.lacks(pending) then return end

describe("on --device cuda", function()
  it("a mixture of experts", function()
    local result = run_host({ "spec", "spec/cuda/experts_spec.lua", "--device", "cuda" },
      { cwd = GANYMEDE_ROOT, env = emulation.environment() })
    assert.equal(0, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find "\n[1-9]%d* passed, 0 failed\n", result.out)
  end)
end)

-- ---------------------------------------------------------------- training

local recipe = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 261, sequence_length = 9, width = 8, depth = 2, heads = 2, dropout = 0.1,
            moe = { experts = 4, capacity = 1.2, shared = 1,
                    router = { type = "TopKRouter", k = 2, noise = "normal", balance = 0.1, z = 0.01 } } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 9, stride = 9 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]

-- In f64 only the order of sums differs: 1e-9 over the steps, as in spec/experts/training_spec.lua.
describe("training with experts on a GPU #ranks", function()
  local function train(text, device, ranks, steps, set)
    return job.run(text, ranks, { steps = steps, set = set, flags = { "--device", device, "--no-eval" },
      env = device == "cuda" and emulation.environment() or nil })
  end

  local function check(want, got, steps)
    local worst, at = job.largest_difference(want, got, steps)
    assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    assert.is_true(math.abs(want.loss[steps] - want.loss[1]) > 1e-3 * want.loss[1])
  end

  it("has the losses of the CPU, on one rank and with experts over two", function()
    local steps = job.steps(20)
    local want = train(recipe, "cpu", 1, steps, { "dtype=f64" })
    check(want, train(recipe, "cuda", 1, steps, { "dtype=f64" }), steps)
    local two = train(recipe, "cuda", 2, steps, { "dtype=f64", "parallel={expert=2}" })
    check(want, two, steps)
    local cpu = train(recipe, "cpu", 2, steps, { "dtype=f64", "parallel={expert=2}" })
    for _, phase in ipairs { "forward", "backward" } do
      local match = { op = "all_to_all_rows", phase = phase, axes = "expert" }
      assert.is_true(job.traffic(two, match) > 0)
      assert.equal(job.traffic(cpu, match), job.traffic(two, match))
    end
  end)

  if emulation.is_on() then
    it("waits for no layer, with a capacity or without", function()
      local shell = require "spec.support.shell"
      local folder = shell.temporary_folder()
      finally(function() shell.remove(folder) end)
      local function waits(steps, capacity)
        local env, n = emulation.environment(), 0
        env.GANYMEDE_CUDA_RECORD = folder .. "/record"
        job.run(job.changed(recipe, { "capacity = 1.2,", capacity }), 1, { steps = steps, env = env,
          flags = { "--device", "cuda", "--no-eval" } })
        for line in io.lines(folder .. "/record") do n = n + (line:match "^wait" and 1 or 0) end
        os.remove(folder .. "/record")
        return n
      end
      local with, without = waits(8, "capacity = 1.2,") - waits(4, "capacity = 1.2,"), waits(8, "") - waits(4, "")
      assert.equal(with, without)
    end)
  end

  it("carries out the recipe of a pipeline of mixtures, with a router that needs no loss", function()
    local steps, text = 4, 'return dofile "' .. GANYMEDE_ROOT .. '/recipes/gpt_moe_pipeline.lua"'
    local set = { "dtype=f64", "model.width=8", "model.depth=2", "model.sequence_length=8", "data.batch_size=8",
      "data.train.sequence_length=8", "data.train.stride=8", "data.test.sequence_length=8", "model.heads=2",
      'model.moe={experts=4,every=1,router={type="SigmoidRouter",k=2,bias_step=0.01}}' }
    local function with(parallel)
      local all = { unpack(set) }
      all[#all + 1] = parallel
      return all
    end
    check(train(text, "cpu", 1, steps, with "parallel={}"),
      train(text, "cuda", 4, steps, with "parallel={pipeline=2,expert=2}"), steps)
  end)
end)
