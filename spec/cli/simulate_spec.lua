-- ganymede simulate, from the command line.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 3,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 4, heads = 2 },
  data = { train = { type = "Text", path = "text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 16 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })

local function simulate(...)
  return support.run(home, { "simulate", "recipe.lua", "--machine", "dgx_a100_80g", ... })
end

local function document(...)
  local found = simulate("--json", ...)
  assert.equal(0, found.code, found.err)
  return json.decode(found.out, "simulate"), found.out
end

describe("ganymede simulate", function()
  it("gives the same figures each time, and those of check", function()
    local set = { "-n", "8", "--set", "parallel.pipeline=2", "--set", "num_microbatches=4" }
    local found, text = document(unpack(set))
    local _, again = document(unpack(set))
    assert.equal(text, again)
    local check = support.run(home, { "check", "recipe.lua", "--json", unpack(set) })
    local totals = json.decode(check.out, "check").totals
    assert.equal(totals.peak_bytes, found.memory[1].peak_bytes)
    assert.equal(2, #found.memory)
    assert.same({ 2, 2 }, { found.roles, found.classes }) -- 2 stages, of each the first of 4 data ranks
    assert.is_true(found.bubble > 0 and found.bubble < 1)
    local waited = 0
    for _, row in ipairs(found.exposed) do waited = waited + row.mean end
    assert.is_true(found.busy + waited <= found.seconds * (1 + 1e-12))
    assert.near(16 / found.seconds, found.samples_per_second, 1e-6)
  end)

  it("counts the products of all ranks", function()
    local one, eight = document("-n", "1"), document("-n", "8")
    assert.equal(one.product_flops, eight.product_flops)
    assert.is_nil(one.bubble)
    assert.near(one.product_flops / (one.seconds * 19.5e12), one.utilization, 1e-12)
    assert.equal(one.utilization, one.model_utilization)
  end)

  it("tells what is computed again from what a model needs", function()
    local plain, again = document("-n", "1"), document("-n", "1", "--set", "recompute=block")
    assert.equal(plain.product_flops, again.product_flops - again.again_flops)
    -- forward is a third of the products of blocks, and the head, which is not run again, has few
    assert.is_true(again.again_flops > 0.2 * plain.product_flops and again.again_flops < plain.product_flops / 3)
    assert.near(plain.product_flops / (again.seconds * 19.5e12), again.model_utilization, 1e-12)
    assert.near(again.product_flops / (again.seconds * 19.5e12), again.utilization, 1e-12)
  end)

  it("launches a step at once where a run would record it", function()
    local function seconds(...)
      local said = support.run(home, { "simulate", "recipe.lua", "--machine", "dgx_h100", "--json", ... })
      return json.decode(said.out, said.err).seconds
    end
    assert.is_true(seconds() < seconds("--set", "graph=false"))
    local pieces = "num_microbatches=2" -- whose losses the host adds up
    assert.equal(seconds("--set", "graph=false", "--set", pieces), seconds("--set", pieces))
  end)

  it("knows slow ranks, jitter, power and long runs", function()
    local even, slow = document("-n", "4"), document("-n", "4", "--straggler", "2=3")
    assert.is_true(slow.seconds > 2 * even.busy and slow.classes > even.classes)
    assert.near((3 * even.busy + 3 * even.busy) / 4, slow.busy, 1e-12)
    local varied = document("-n", "4", "--jitter", "0.2", "--seed", "5")
    assert.equal(4, varied.classes)
    assert.are_not.equal(even.seconds, varied.seconds)
    assert.near(4 * 812.5 * even.seconds, even.energy, 1e-9) -- 6.5 kW for 8; what waits is not known
    assert.is_nil(even.run)
    local run = document("-n", "4", "--mtbf", "1e6", "--restart", "60", "--disk-write", "1e6", "--set",
      "checkpoint.interval=100").run
    assert.near(100 * even.seconds, run.interval, 1e-9)
    local hooked = document("-n", "4", "--mtbf", "1e6", "--restart", "60", "--disk-write", "1e6", "--set",
      "hooks={{type='LossHook'},{type='CheckpointHook',interval=70}}").run
    assert.near(70 * even.seconds, hooked.interval, 1e-9)
    assert.is_true(run.fraction > 0 and run.fraction <= run.best.fraction)
    local states = support.run(home, { "check", "recipe.lua", "--json", "-n", "4" })
    local totals = json.decode(states.out, "check").totals
    assert.near(totals.parameter_bytes + totals.optimizer_bytes, run.bytes_of_node, 1e-6)
    assert.near(run.bytes_of_node / 1e6, run.block, 1e-9)
  end)

  -- Each is there once, whoever holds it: 4 layers in each of 4 blocks, of which each keeps 16 + 1 times 3 numbers.
  it("counts a checkpoint once, whatever shares its tensors", function()
    local m = json.decode(shell.read "lua/ganymede/plan/machines/cpu_ethernet.json", "cpu_ethernet")
    m.disk = { read = 2e8, write = 1e8 }
    shell.write(home .. "/writes.json", json.encode(m))
    local function bytes(n, ...)
      local said = support.run(home, { "simulate", "recipe.lua", "--machine", "writes.json", "--json", "-n", n,
        "--mtbf", "1e6", "--restart", "60", ... })
      assert.equal(0, said.code, said.err)
      local run = json.decode(said.out, "simulate").run
      return run.bytes_of_node * run.nodes
    end
    local checked = support.run(home, { "check", "recipe.lua", "--json" })
    local totals = json.decode(checked.out, "check").totals
    local whole = totals.parameter_bytes + totals.optimizer_bytes
    assert.equal(whole, bytes "1")
    assert.near(whole, bytes("1", "--set", "offload={optimizer='disk',parameters='disk',disk='.',least=1}"), 1e-6)
    for _, mode in ipairs { "zero=1", "zero={stage=3,whole_below=0}", "parallel.tensor={size=2,mode='1d'}" } do
      assert.near(whole, bytes("2", "--set", mode), 1e-6, mode)
    end
    local scales = "float8={scaling='delayed'}"
    for _, mode in ipairs { "zero=0", "zero=2" } do
      assert.near(whole + 16 * (16 + 1) * 3 * 4, bytes("2", "--set", scales, "--set", mode), 1e-6, mode)
    end
  end)

  it("reads and writes what is offloaded", function()
    local m = json.decode(shell.read "lua/ganymede/plan/machines/cpu_ethernet.json", "cpu_ethernet")
    m.disk = { read = 2e8, write = 1e8 }
    shell.write(home .. "/disk.json", json.encode(m))
    local function found(...)
      local said = support.run(home, { "simulate", "recipe.lua", "--machine", "disk.json", "--json", ... })
      assert.equal(0, said.code, said.err)
      return json.decode(said.out, "simulate")
    end
    local plain, resting = found(), found("--set", "offload={optimizer='disk',disk='.'}")
    local waits = {}
    for _, row in ipairs(resting.exposed) do waits[row.axes] = row.mean end
    assert.is_true(waits["@disk"] > 0)
    assert.is_true(resting.transfers > plain.transfers and resting.seconds > plain.seconds)
    local gpu = simulate("--set", "offload={optimizer='disk',disk='.'}")
    assert.equal(2, gpu.code)
    assert.is_truthy(gpu.err:find("how fast the processors of a GPU's host", 1, true), gpu.err)
  end)

  it("draws what ranks do", function()
    document("-n", "2", "--svg", "t.svg", "--trace-ranks", "2")
    local text = shell.read(home .. "/t.svg")
    for _, words in ipairs { "^<svg ", ">rank 0<", ">rank 1<", ">ms<", "waits for all_reduce", "</svg>\n$" } do
      assert.is_truthy(text:find(words), words)
    end
  end)

  it("writes what ranks do for a trace viewer", function()
    local found = document("-n", "2", "--trace", "t.json", "--trace-ranks", "1")
    local last, busy, lanes = 0, 0, {}
    for _, e in ipairs(json.decode(shell.read(home .. "/t.json"), "t.json")) do
      if e.ph == "X" then
        assert.equal(0, e.pid)
        lanes[e.tid], last = true, math.max(last, e.ts + e.dur)
        if e.tid == 0 then busy = busy + e.dur end
      end
    end
    assert.same({ [0] = true, true, true }, lanes)
    assert.is_true(last <= 1e6 * found.seconds + 0.01)
    assert.near(1e6 * found.busy, busy, 0.2) -- each of some hundred times is rounded to a nanosecond
  end)

  it("prints a summary", function()
    local found = simulate("-n", "2")
    for _, words in ipairs { "a step takes %d.* on 2 ranks of dgx_a100_80g %(data 2%)", "samples a second",
      "%% of the peak in f32 %(MFU; HFU", "waiting: data", "memory: .* at most" } do
      assert.is_truthy(found.out:find(words), words)
    end
  end)

  it("refuses what it cannot serve", function()
    local function refused(words, ...)
      local found = simulate(...)
      assert.equal(2, found.code)
      assert.is_truthy(found.err:find(words), found.err)
    end
    refused("%-%-trace%-ranks belongs to", "--trace-ranks", "2")
    refused("there is no rank 4", "-n", "4", "--straggler", "4=2")
    refused("RANK=FACTOR was expected", "--straggler", "4")
    for _, odd in ipairs { "-1", "nan", "inf", "1e300", "much" } do
      refused("is no number from 0 to 5", "--jitter=" .. odd)
      refused("is no number from 1 to 1e%+12", "--mtbf=" .. odd)
      refused("is no number from 0 to 1e%+09", "--restart=" .. odd)
    end
    refused("cannot take inf times as long", "-n", "2", "--straggler", "1=1e999")
    refused("rank 1 is given twice", "-n", "2", "--straggler", "1=2", "--straggler", "1=3")
    refused("is no integer of at least 1, at most 1048576", "-n", "3000000000")
    refused("no run of that has a use", "-n", "16", "--mtbf", "1", "--restart", "1", "--disk-write", "1e9")
    refused("there is no machine 'nowhere'", "--machine", "nowhere")
    refused("^ganymede: as rank 0: [^:]*parallel", "-n", "7", "--set", "parallel.pipeline=7")
    local m = json.decode(shell.read "lua/ganymede/plan/machines/cpu_ethernet.json", "cpu_ethernet")
    m.links = { m.links[1] }
    shell.write(home .. "/short.json", json.encode(m)) -- a node, and nothing between nodes
    local short = support.run(home, { "simulate", "recipe.lua", "-n", "32", "--machine", "short.json", "--set",
      "data.batch_size=32" })
    assert.equal(2, short.code, short.err)
    assert.matches("^ganymede: cpu_ethernet: the machine has no link between all of 32 ranks", short.err)
    assert.equal(2, support.run(home, { "simulate", "recipe.lua" }).code)
  end)
end)
