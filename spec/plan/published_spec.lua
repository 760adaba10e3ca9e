-- The bench of published steps (spec/bench/published): small records rewritten, tables that can be read, and the claim
-- that a step's time is linear in its micro-batches.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
package.path = GANYMEDE_ROOT .. "/spec/bench/published/?.lua;" .. package.path
local machines = require "ganymede.plan.machine"
local shell = require "spec.support.shell"
local software = require "software"
local step = require "step"
local waves = require "waves"

local names = { "nanotron", "playbook", "vtrain", "bloom", "megatron", "llm_foundry", "dgx_cloud", "float8",
  "colossal" }
local folder = shell.temporary_folder()

-- Rewrites a record of these lines (texts first) -> its lines without the head.
local function rewritten(how, texts, events)
  local lines = { "ganymede-step 1", "rank 0", "axis data 2", "axis tensor 2", "live 0" }
  for _, text in ipairs(texts) do lines[#lines + 1] = "t " .. text end
  for _, event in ipairs(events) do lines[#lines + 1] = event end
  lines[#lines + 1] = "end " .. #events
  shell.write(folder .. "/from", table.concat(lines, "\n") .. "\n")
  software.rewrite(folder .. "/from", folder .. "/to", how)
  return shell.read(folder .. "/to")
end

describe("records rewritten as published software works", function()
  it("gather once for both halves of a gated MLP", function()
    local texts = { "all_gather", "blocks.1.mlp.gate", "blocks.1.mlp.up", "tensor", "linear" }
    local found = rewritten({ joined_gate = true }, texts, { "b 1 0 -1 -1 1 -1 3 -1 8 4 0", "w 1 0",
      "b 2 0 -1 -1 2 -1 3 -1 8 4 0", "w 2 0", "b 3 0 -1 -1 1 -1 3 -1 8 4 0", "w 3 0" })
    local wanted = "b 1 0 -1 -1 1 -1 3 -1 8 4 0\nw 1 0\nb 2 0 -1 -1 1 -1 3 -1 8 4 0\nw 2 0\nend 4\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("find no scales of 8 bits, whose numbers are those of earlier steps", function()
    local texts = { "float8_scale", "float8_encode", "all_reduce", "f32 ()", "blocks.1.mlp.up", "tensor", "f64 (1)" }
    local found = rewritten({ delayed_scales = true }, texts, { "o 0 -1 -1 4 0 1 0 10 0",
      "b 1 2 3 -1 4 -1 5 -1 4 4 0", "w 1 0", "o 1 -1 -1 4 0 1 0 10 0", "b 2 2 6 -1 -1 -1 5 -1 8 8 0", "w 2 0" })
    local wanted = "o 1 -1 -1 4 0 1 0 10 0\nb 1 2 6 -1 -1 -1 5 -1 8 8 0\nw 1 0\nend 3\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("write the scores of attention", function()
    local texts = { "attention", "bf16 (2, 8, 3, 4) (2, 8, 3, 4) causal", "bf16" }
    local found = rewritten({ whole_scores = true }, texts, { "o 0 1 2 -1 4 100 100 50 0" })
    -- 2 x 3 x 8 x 8 scores, 4 x 4 operations and 13 bytes for each
    local wanted = "t matmul\nt softmax\no 3 1 2 -1 4 6144 6144 50 0\no 4 1 2 -1 0 1920 0 4992 0\nend 2\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("keep what runs again apart", function()
    local found = rewritten({ eager = 2, whole_scores = true }, { "attention", "bf16 (1, 2, 1, 2) (1, 2, 1, 2)", "bf16",
      "rms_norm" }, { "r 0 1 2 -1 2 64 64 50 0", "o 0 1 2 -1 2 64 64 50 0", "r 3 -1 -1 -1 0 1 0 10 0" })
    assert.truthy(found:find("r 4 1 2 %-1 2 .*\nr 5 .*\no 4 .*\no 5 .*\nr 3 %-1 %-1 %-1 0 0 0 0 0\nr 3 .* 20 0\nend 6"),
      found)
    shell.write(folder .. "/from", "ganymede-step 1\nrank 0\nlive 0\nt add\na 8 0\nr 0 -1 -1 -1 0 1 0 10 0\nend 2\n")
    software.strip(folder .. "/from", folder .. "/to")
    assert.equal(1, #require("ganymede.core").step_read(folder .. "/to").events)
  end)

  it("move more bytes around norms where no kernels are fused", function()
    local found = rewritten({ eager = 3 }, { "rms_norm", "adam", "linear" }, { "o 0 -1 -1 -1 0 1 0 10 0",
      "o 1 -1 -1 -1 0 1 0 10 0", "o 2 -1 -1 -1 4 9 9 10 0" })
    local wanted = ("o 0 -1 -1 -1 0 0 0 0 0\n"):rep(2)
      .. "o 0 -1 -1 -1 0 1 0 30 0\no 1 -1 -1 -1 0 1 0 10 0\no 2 -1 -1 -1 4 9 9 10 0\nend 5\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("gather in 8 bits what is multiplied in 8 bits, and matrices of classes in 16", function()
    local texts = { "all_gather", "bf16 (16)", "update", "data", "bf16 (4, 8) (2, 2)", "embedding", "tokens",
      "forward" }
    local found = rewritten({ gathers_8_bits = true }, texts, { "o 5 4 -1 6 0 0 0 9 0", "b 1 0 1 -1 -1 2 3 -1 64 32 0",
      "b 2 0 1 -1 -1 2 3 -1 32 16 0", "b 3 0 1 -1 -1 7 3 -1 32 16 0" })
    local wanted = "b 1 0 1 -1 -1 2 3 -1 64 32 0\nb 2 0 1 -1 -1 2 3 -1 16 8 0\nb 3 0 1 -1 -1 7 3 -1 32 16 0\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  local beside = { "all_gather", "reduce_scatter", "linear", "blocks.1.mlp.up", "tensor", "forward", "add", "head" }
  local function begin(id, name, path, group)
    return ("b %d %d -1 -1 %d 5 %d -1 8 4 0"):format(id, name, path, group)
  end

  it("gather and scatter beside the products of a layer", function()
    local product, sum = "o 2 -1 -1 3 4 9 9 10 0", "o 6 -1 -1 -1 0 9 0 10 0"
    local events = { begin(1, 0, 3, 4), "w 1 0", product, begin(2, 1, 3, 4), "w 2 0", sum }
    local order = table.concat({ begin(1, 0, 3, 4), begin(2, 1, 3, 4), product, "w 1 0", "w 2 0", sum }, "\n")
    local found = rewritten({ hidden_products = true }, beside, events)
    assert.truthy(found:find(order, 1, true), found)
    -- a sum that reads what was gathered waits for it; no layer of userbuffers, no other way
    events = { begin(1, 0, 3, 4), "w 1 0", sum, product, begin(2, 0, 7, 4), "w 2 0", "o 2 -1 -1 7 4 9 9 10 0" }
    found = rewritten({ hidden_products = true }, beside, events)
    assert.truthy(found:find(table.concat(events, "\n"), 1, true), found)
    events = { begin(1, 0, 3, 4), "w 1 0", product, begin(2, 1, 3, 4), "w 2 0" }
    order = table.concat({ begin(1, 0, 3, 4), "w 1 0", begin(2, 1, 3, 4), product, "w 2 0" }, "\n")
    found = rewritten({ hidden_products = true, whole_gathers = true }, beside, events)
    assert.truthy(found:find(order, 1, true), found)
  end)

  it("gather updated parameters while the next forward runs", function()
    local texts = { "all_gather", "bf16 (16)", "update", "data", "linear", "a", "b", "c", "d" }
    local events, gathers = {}, {}
    for i = 1, 4 do events[i] = ("o 4 -1 -1 %d 4 9 9 10 0"):format(i + 4) end
    for i = 1, 4 do
      gathers[i] = ("b %d 0 1 -1 -1 2 3 -1 %d 4 0"):format(i, i)
      events[#events + 1] = gathers[i]
      events[#events + 1] = ("w %d 0"):format(i)
    end
    local function order(...)
      local lines = {}
      for word in ("%s %s"):format(...):gmatch "%S+" do
        local kind, i = word:match "(%a)(%d)"
        lines[#lines + 1] = kind == "w" and ("w %d 0"):format(i) or (kind == "b" and gathers or events)[tonumber(i)]
      end
      return table.concat(lines, "\n") .. "\nend 12"
    end
    local found = rewritten({ hidden_gathers = true }, texts, events)
    assert.truthy(found:find(order("b1 w1 b2 o1 w2 b3 o2", "w3 b4 o3 w4 o4"), 1, true), found)
    found = rewritten({ hidden_gathers = true, chunks = 2 }, texts, events)
    assert.truthy(found:find(order("b1 b2 w1 b3 o1 w2 b4 o2", "w3 o3 w4 o4"), 1, true), found)
  end)

  it("wait at once for what goes between tensor ranks", function()
    local product = "o 2 -1 -1 3 4 9 9 10 0"
    local found = rewritten({ waits = true }, beside, { begin(1, 0, 3, 4), product, "w 1 0", begin(2, 0, 3, 5), product,
      "w 2 0" })
    local wanted = table.concat({ begin(1, 0, 3, 4), "w 1 0", product, begin(2, 0, 3, 5), product, "w 2 0", "end 6" },
      "\n")
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("wait for every launch, and exchange messages in an order in which no stage waits for ever", function()
    local texts = { [0] = "receive", "send", "pipeline", "all_reduce", "data", "linear" }
    local function message(id, name, peer) return ("b %d %d -1 -1 -1 -1 2 %d 8 8 0"):format(id, name, peer) end
    local forward, back = "o 5 -1 -1 -1 4 1 1 1 0", "o 5 -1 -1 -1 4 2 2 1 0"
    local sum = "b %d 3 -1 -1 -1 -1 4 -1 8 8 0"
    -- the middle one of three stages: forward, and one backward and one forward in turns
    local found = require "overlap".nothing({ message(1, 0, 0), message(2, 0, 0), message(3, 0, 2), "w 1 0", forward,
      message(4, 1, 2), "w 3 0", back, message(5, 1, 0), message(6, 0, 2), "w 2 0", forward, message(7, 1, 2), "w 6 0",
      back, message(8, 1, 0), sum:format(9), back, "w 9 0" }, texts, 1)
    assert.same({ message(1, 0, 0), "w 1 0", forward, message(4, 1, 2), "w 4 0", message(3, 0, 2), "w 3 0", back,
      message(2, 0, 0), "w 2 0", message(5, 1, 0), "w 5 0", forward, message(7, 1, 2), "w 7 0", message(6, 0, 2),
      "w 6 0", back, message(8, 1, 0), "w 8 0", sum:format(9), "w 9 0", back }, found)
  end)

  it("add each gradient in a kernel of its own, and sum whole gradients", function()
    local texts = { "linear_weight_grad", "bf16 (8, 3) (8, 5)", "bf16", "reduce_scatter", "data", "backward", "update" }
    local found = rewritten({ sums = 10, whole_sums = true }, texts, { "o 0 1 2 -1 3 9 9 90 0",
      "b 1 3 -1 -1 -1 5 4 -1 8 4 0", "w 1 0", "b 2 3 -1 -1 -1 6 4 -1 8 4 0" })
    local wanted = "t sum_of_gradients\nt all_reduce\no 0 1 2 -1 3 9 9 90 0\no 7 1 2 -1 0 0 0 150 0\n"
      .. "b 1 8 -1 -1 -1 5 4 -1 8 8 0\nw 1 0\nb 2 3 -1 -1 -1 6 4 -1 8 4 0\nend 5\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("multiply in whole waves of tiles", function()
    -- 16 x 32 tiles on 108 multiprocessors: 5 waves, of which 4.74 are full
    local slow = 5 * 108 / 512
    local square = "bf16 (4096, 64) (64, 4096)"
    for name, about in pairs { linear = "bf16 (2, 2048, 64) (4096, 64) gelu_tanh", matmul = square,
      linear_input_grad = square, linear_weight_grad = "bf16 (64, 4096) (64, 4096)" } do
      assert.near(slow, waves.longer(name, about, 108), 1e-12)
    end
    -- 108 tiles are one wave, also if they lie the other way only; 109 are two
    assert.equal(1, waves.longer("matmul", "bf16 (27648, 64) (64, 128)", 108))
    assert.equal(1, waves.longer("matmul", "bf16 (128, 64) (64, 27648)", 108))
    assert.near(216 / 109, waves.longer("matmul", "bf16 (27904, 64) (64, 128)", 108), 1e-12)
    assert.near(2 * 144 * 256 * 128 / (27648 * 129), waves.longer("matmul", "bf16 (27648, 64) (64, 129)", 144), 1e-12)
    -- less than a wave, other ops, attention
    assert.equal(1, waves.longer("matmul", "bf16 (256, 64) (64, 128)", 108))
    assert.equal(1, waves.longer("add", "bf16 (27904, 64) (64, 128)", 108))
    assert.equal(1, waves.longer("matmul", "bf16 (1, 4096, 8, 64) (1, 4096, 8, 64) causal", 108))
    local found = rewritten({ processors = 108 }, { "matmul", "bf16 (4096, 64) (64, 4096)" },
      { "o 0 1 -1 -1 64 9 512 7 0" })
    assert.truthy(found:find("o 0 1 -1 -1 64 9 540 7 0", 1, true), found)
  end)

  it("compute a loss of whole logits in f32, kernel by kernel", function()
    local texts = { "cross_entropy", "bf16 (1, 3, 5) (1, 3)", "bf16", "log" }
    local found = rewritten({ whole_losses = true }, texts, { "o 0 1 2 0 0 7 0 30 0", "o 3 -1 -1 0 0 1 0 9 0" })
    local wanted = ("o 0 1 2 0 0 0 0 0 0\n"):rep(7) .. "o 0 1 2 0 0 0 0 780 0\nend 8\n" -- 52 bytes of 15 logits
    assert.truthy(found:find(wanted, 1, true), found)
    local setting = { micro = 2, sequence = 8, tensor = 4, model = { vocabulary = 100 } }
    assert.equal(6 * 400, software.bytes_of_losses(setting, { whole_losses = true }))
    assert.equal(0, software.bytes_of_losses(setting, {}))
  end)

  it("square in a kernel of its own", function()
    local texts = { "gelu_tanh", "bf16 (2) gelu_tanh", "unary_grad", "bf16 (2) (2) gelu_tanh", "bf16 (2) (2) silu" }
    local found = rewritten({ square_apart = true }, texts, { "o 0 1 -1 -1 0 1 0 12 0", "r 2 3 -1 -1 0 1 0 12 0",
      "o 2 4 -1 -1 0 1 0 12 0" })
    local wanted = "o 0 1 -1 -1 0 0 0 0 0\no 0 1 -1 -1 0 1 0 24 0\n" .. ("r 2 3 -1 -1 0 0 0 0 0\n"):rep(3)
      .. "r 2 3 -1 -1 0 1 0 40 0\no 2 4 -1 -1 0 1 0 12 0\nend 7\n"
    assert.truthy(found:find(wanted, 1, true), found)
  end)

  it("lie on the mesh in the order of the software", function()
    local found = rewritten({ order = { "tensor", "data" } }, {}, {})
    assert.truthy(found:find("rank 0\naxis tensor 2\naxis data 2\n", 1, true), found)
    shell.write(folder .. "/from", "ganymede-step 1\nrank 4\naxis data 2\naxis pipeline 3\nlive 0\nt add\nend 0\n")
    software.rewrite(folder .. "/from", folder .. "/to", { order = { "pipeline", "data" } })
    -- data 1, pipeline 1
    assert.truthy(shell.read(folder .. "/to"):find("rank 3\naxis pipeline 3\naxis data 2\nlive", 1, true))
    local mesh = software.order({ { name = "data" }, { name = "tensor" } }, { order = { "tensor", "data" } })
    assert.equal("tensor", mesh[1].name)
  end)
end)

describe("tables of published steps", function()
  it("name ranks and micro-batches that are whole, and software that is known", function()
    local looked_at, rows = 0, 0
    for _, name in ipairs(names) do
      local given = dofile(("%s/spec/bench/published/tables/%s.lua"):format(GANYMEDE_ROOT, name))
      looked_at, rows = looked_at + #given.calibrate, rows + #given.rows
      for i, row in ipairs(given.rows) do
        local where = ("%s, row %d"):format(name, i)
        assert.truthy(software[row.software or given.software], where)
        assert.truthy(row.pieces >= 1 and row.pieces % 1 == 0 and row.data % 1 == 0, where)
        assert.truthy(row.out_of_memory or row.seconds > 0, where)
        assert.truthy(row.gradients == "f32" or row.gradients == "auto", where)
      end
    end
    assert.truthy(looked_at <= rows / 10, looked_at .. " rows of " .. rows)
  end)
end)

local model = { type = "GPT", vocabulary = 256, sequence_length = 16, width = 32, depth = 4, heads = 2 }

describe("stages of BLOOM", function()
  it("share layers alone, or layers and both ends", function()
    local rows = dofile(GANYMEDE_ROOT .. "/spec/bench/published/tables/bloom.lua").rows
    local function split_of(name)
      for _, row in ipairs(rows) do
        if row.name:find(name, 1, true) == 1 then return table.concat(row.split, " ") end
      end
    end
    assert.equal("8" .. (" 7"):rep(10) .. " 2", split_of "b 78/13824/64")
    assert.equal("7" .. (" 6"):rep(10) .. " 7", split_of "b 72/14336/64 dp 4 tp 8 pp 12")
    assert.equal("9" .. (" 9"):rep(11), split_of "c 106/12288/64")
  end)
end)

describe("gradients of a published step", function()
  it("have the dtype that its row says", function()
    local m, found = machines.read "dgx_a100_80g", {}
    for _, dtype in ipairs { "f32", "auto" } do
      local setting = { model = model, sequence = 16, data = 2, tensor = 1, pipeline = 1, micro = 1, pieces = 1,
        gradients = dtype }
      found[dtype] = step.predict(setting, m, software.own, folder .. "/kept").bytes
    end
    assert.truthy(found.auto < found.f32)
  end)
end)

describe("a step whose launches block", function()
  it("ends, and takes longer: all that goes between ranks, and what the host takes for each launch", function()
    local m = machines.read "dgx_a100_80g"
    for _, stages in ipairs { 2, 4 } do
      local setting = { model = model, sequence = 16, data = 2, tensor = 1, pipeline = stages, micro = 1, pieces = 8 }
      local blocking = software.with(software.own, { host = 1e-5, blocking = true })
      local one = step.predict(setting, m, software.own, folder .. "/kept").seconds
      local other = step.predict(setting, m, blocking, folder .. "/kept").seconds
      assert.truthy(other > one, ("%g %g"):format(one, other))
    end
  end)
end)

describe("a step of many micro-batches", function()
  for _, case in ipairs { { 2, 1, 5 }, { 1, 2, 8 } } do
    it(("takes what two shorter ones foretell: %d data ranks, %d stages"):format(case[1], case[2]), function()
      local setting = { model = model, sequence = 16, data = case[1], tensor = 1, pipeline = case[2], micro = 1,
        pieces = case[3] }
      local m = machines.read "dgx_a100_80g"
      local short = step.predict(setting, m, software.own, folder .. "/kept")
      local whole = step.predict(setting, m, software.own, folder .. "/kept", true)
      -- the ramp of a pipeline is not over after its first micro-batches to the last digit
      assert.near(1, short.seconds / whole.seconds, case[2] > 1 and 1e-2 or 1e-9)
    end)
  end
end)
