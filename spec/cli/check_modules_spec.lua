--- `ganymede check -n N`: accounts by module that can be worked out by hand, peers, and that a run counts the same.
-- q = 2 ranks a side here, 4 bytes an element; formulas of every mode: spec/tensor/volume_spec.lua.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local shown = require("ganymede.base.machine").bytes
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local mlp = [[
return {
  name = "points", seed = 3, steps = 3,
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 8 },
  data = { train = { type = "Synthetic", length = 64, shape = { 16 }, classes = 8 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]]

-- Above the limit of vocabularies that are not cut; sizes that every mode divides.
local gpt = [[
return {
  name = "gpt", seed = 3, steps = 3,
  model = { type = "GPT", vocabulary = 2112, sequence_length = 16, width = 32, depth = 2, heads = 8 },
  data = { train = { type = "Synthetic", kind = "tokens", length = 64, sequence_length = 16, vocab_size = 2112 },
    batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, clip_grad_norm = 1,
}
]]

describe("ganymede check -n, by module", function()
  local home
  after_each(function() shell.remove(home) end)

  local function document(ranks, rank, parallel, ...)
    local result = support.run(home, { "check", "recipe.lua", "--json", "-n", tostring(ranks), "--rank", tostring(rank),
      "--set", "parallel=" .. parallel, ... })
    assert.equal(0, result.code, result.err)
    return json.decode(result.out, "check --json")
  end

  local function row_of(found, path)
    for _, row in ipairs(found.modules) do
      if row.path == path then return row end
    end
    error("no row for " .. path)
  end

  local function sum(entries, phase)
    local bytes = 0
    for _, e in ipairs(entries) do bytes = bytes + ((not phase or e.phase == phase) and e.bytes or 0) end
    return bytes
  end

  it("gives layouts, bytes held and sent of each module of an MLP in 2D", function()
    home = support.home(mlp)
    local found = document(4, 3, '{ tensor = { size = 4, mode = "2d" } }')
    local linear = row_of(found, "layers.1")
    assert.same({ "Linear2D", "cut (row, col)" }, { linear.class, linear.y.layout })
    assert.same({ "weight", "cut (col, row)", "bias", "cut (col.row)", "cut (col)" }, { linear.parameters[1].name,
      linear.parameters[1].layout, linear.parameters[2].name, linear.parameters[2].layout, linear.parameters[2].use })
    assert.same({ 4, 16 }, { linear.y.local_shape[1], linear.y.local_shape[2] })
    local own = 4 * (16 * 32 + 32) / 4
    assert.same({ own, own, 2 * own }, { linear.parameter_bytes, linear.gradient_bytes, linear.optimizer_bytes })
    -- For backward: its block of x (4, 8), and of what goes into the activation (4, 16).
    assert.equal(4 * (4 * 8 + 4 * 16), linear.saved_bytes)
    -- x and w are broadcast, (q - 1) / q^2 (MK + KN); of 32 / q biases of a column its ranks hold a half each.
    local products, bias = 4 * (8 * 16 + 16 * 32) / 4, 4 * 8
    assert.equal(products + bias, sum(linear.sent, "forward"))
    -- Of the first layer dw and db alone: x is broadcast, dw reduced; db is scattered.
    assert.equal(products + bias, sum(linear.sent, "backward"))
    -- The classifier gathers half of its rows' columns and sums the logits; its bias is a copy on all ranks.
    local head = row_of(found, "head")
    assert.equal(4 * (8 * 16 / 2 + 2 * (4 * 8) / 2), sum(head.sent, "forward"))
    assert.equal(4 * 8, sum(row_of(found, "gradients").sent, "backward"))
  end)

  it("adds up to the totals", function()
    home = support.home(gpt)
    for _, parallel in ipairs {
      '{ tensor = { size = 4, mode = "2d" } }', '{ data = 2, tensor = { size = 2, mode = "1d" } }',
    } do
      local found = document(4, 1, parallel)
      local held = { parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0 }
      local sent, all = 0, sum(found.sent)
      for _, row in ipairs(found.modules) do
        for key, bytes in pairs(held) do held[key] = bytes + row[key] end
        sent = sent + sum(row.sent)
      end
      for key, bytes in pairs(held) do assert.equal(found.totals[key], bytes, key) end
      assert.is_true(all > 0)
      assert.equal(all, sent)
    end
  end)

  -- A rank has 4 of 8 samples; the head stays as it is.
  it("counts delayed scales of 8 bits once, in a row of their own, and at no layer", function()
    home = support.home((mlp:gsub("hidden = { 32 }", "hidden = { 32, 32 }")))
    local found = document(2, 0, "{ data = 2 }", "--set", "float8={scaling='delayed',history=5}")
    local scales, first, second = row_of(found, "float8"), row_of(found, "layers.1"), row_of(found, "layers.2")
    assert.equal(2 * 3 * (5 + 2) * 4, scales.optimizer_bytes) -- 2 layers, x w dy
    assert.same({ 0, 0 }, { scales.parameter_bytes, scales.saved_bytes })
    -- For backward: codes of x, and what goes into the activation; in the first step, which has no kept scales yet,
    -- also the scale of x, and of w where the gradient of x is wanted.
    assert.equal(4 * 16 + 4 * (4 * 32) + 4, first.saved_bytes)
    assert.equal(4 * 32 + 4 * (4 * 32) + 2 * 4, second.saved_bytes)
    local states = 0
    for _, row in ipairs(found.modules) do states = states + row.optimizer_bytes end
    assert.equal(found.totals.optimizer_bytes, states)
  end)

  it("knows the peers: among 1,000 ranks 27 in 3D, 999 in 1D", function()
    home = support.home((mlp:gsub("inputs = 16, hidden = { 32 }", "inputs = 1000, hidden = { 1000, 1000 }")
      :gsub("shape = { 16 }", "shape = { 1000 }"):gsub("batch_size = 8", "batch_size = 100")
      :gsub("length = 64", "length = 300")))
    local function layers(found)
      for _, kind in ipairs(found.peers.by) do
        if kind.what == "layers" then return kind end
      end
    end
    local cube = layers(document(1000, 371, '{ tensor = { size = 1000, mode = "3d" } }'))
    local axes = {}
    for _, group in ipairs(cube.axes) do axes[table.concat(group.axes, ".")] = group.peers end
    assert.same({ input = 9, output = 9, weight = 9 }, axes)
    assert.equal(27, cube.peers)
    assert.equal(999, layers(document(1000, 371, '{ tensor = { size = 1000, mode = "1d" } }')).peers)
  end)

  it("prints equal blocks once, all of them with --verbose", function()
    home = support.home(gpt)
    local words = { "check", "recipe.lua", "-n", "4", "--set", 'parallel={ tensor = { size = 4, mode = "2d" } }' }
    local brief = support.run(home, words)
    assert.equal(0, brief.code, brief.err)
    assert.matches("blocks%.1%-2%.mlp%.up [^\n]*\n +Linear2D", brief.out)
    assert.matches("layers +2 ranks", brief.out)
    words[#words + 1] = "--verbose"
    local full = support.run(home, words).out
    assert.matches("blocks%.1%.mlp%.up ", full)
    assert.matches("blocks%.2%.mlp%.up ", full)
    for line in brief.out:match("\nmodules.-\n\n"):gmatch "[^\n]+" do assert.is_true(#line <= 120, line) end
  end)

  -- key of an account -> { calls, bytes }, of the phases of a step
  local function accounts(entries, bytes)
    local out = {}
    for _, e in ipairs(entries) do
      if e.phase == "forward" or e.phase == "backward" or e.phase == "update" then
        out[("%s %s over %s"):format(e.phase, e.op, table.concat(e.axes, "."))] = { e.calls, e[bytes] }
      end
    end
    return out
  end

  local steps = 3

  for parallel, ranks in pairs {
    ['{ tensor = { size = 4, mode = "2d" } }'] = 4, ['{ data = 2, tensor = { size = 2, mode = "1d" } }'] = 4,
    ['{ data = 2, sequence = { size = 2, mode = "ring" } }'] = 4, ['{ tensor = { size = 8, mode = "3d" } }'] = 8,
  } do
    it("counts what a run on " .. ranks .. " ranks counts: " .. parallel, function()
      home = support.home(gpt)
      local result = support.run(home, { "run", "recipe.lua", "-n", tostring(ranks), "--no-eval", "--stats", "s.json",
        "--out", "o", "--threads", "1", "--set", "parallel=" .. parallel })
      assert.equal(0, result.code, result.err)
      local run = support.json(home .. "/s.json")
      assert.equal(steps, run.steps)
      local first = document(ranks, 0, parallel)
      assert.matches(("rank 0 held %s of parameters"):format(shown(first.totals.parameter_bytes)), result.err, 1, true)
      assert.matches(("and sent %s a step"):format(shown(sum(first.sent))), result.err, 1, true)
      for rank = 0, ranks - 1, ranks > 4 and 5 or 1 do
        local found, real = rank == 0 and first or document(ranks, rank, parallel), run.ranks[rank + 1]
        for _, key in ipairs { "parameter_bytes", "gradient_bytes", "optimizer_bytes" } do
          assert.is_true(real[key] > 0)
          assert.equal(real[key], found.totals[key], key)
        end
        assert.equal(real.product_flops, steps * found.totals.product_flops_per_step)
        local planned = accounts(found.sent, "bytes")
        for _, account in pairs(planned) do account[1], account[2] = steps * account[1], steps * account[2] end
        assert.same(accounts(real.comm, "bytes_logical"), planned)
        -- meta plans the same tensors; what kernels take for themselves while they run comes on top
        local more = real.peak_bytes - found.totals.peak_bytes
        assert.is_true(more >= 0 and more <= real.scratch_peak_bytes, ("%d more than planned, scratch %d"):format(more,
          real.scratch_peak_bytes))
      end
    end)
  end
end)
