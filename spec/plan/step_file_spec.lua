-- The record of a step: a rehearsal and a run make the same one, and its file holds all of it.
local core = require "ganymede.core"
local support = require "spec.cli.support"
local shell = support.shell

local recipe = [[
return {
  name = "small", seed = 1, steps = 3, clip_grad_norm = 0.5,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 2, heads = 2, dropout = 0.1 },
  data = { train = { type = "Text", path = "text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]]

local home = support.home(recipe, { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })

local function run(words)
  local found = support.run(home, words)
  assert.equal(0, found.code, found.err)
  return found
end

local fields = { "kind", "name", "about", "dtype", "path", "phase", "group", "peer", "size", "flops", "products",
  "bytes", "sent" }

local function line_of(e)
  local words = {}
  for i, key in ipairs(fields) do words[i] = tostring(e[key]) end
  return table.concat(words, "|")
end

-- What a step does, in order. Receives are apart, because a run posts them as early as the messages before allow. Reads
-- of a disk are apart, because a run fetches ahead as early as the disk has ended the writes before.
local function lines(events, wanted)
  local out = {}
  for _, e in ipairs(events) do
    if wanted(e) then out[#out + 1] = line_of(e) end
  end
  return out
end

local function is_work(e)
  return e.kind == "op" or (e.kind == "begin" and e.name ~= "receive" and e.name ~= "disk_read")
end
local function is_receive(e) return e.kind == "begin" and e.name == "receive" end
local function is_memory(e) return is_work(e) or e.kind == "alloc" or e.kind == "free" end

-- Each state is written once a step. It is read once, unless the ring has kept it, and the first ones again for the
-- next step. Which these are depends on how soon the disk ends its writes; their bytes fit into the ring.
local ring = 131072

local function check_reads(events)
  local count, pages = { disk_write = {}, disk_read = {} }, { disk_write = 0, disk_read = 0 }
  for _, e in ipairs(events) do
    local of = e.kind == "begin" and count[e.name]
    if of then
      of[e.bytes] = (of[e.bytes] or 0) + 1
      pages[e.name] = pages[e.name] + math.ceil(e.bytes / 4096)
    end
  end
  for size, n in pairs(count.disk_read) do assert.is_true(n <= 2 * (count.disk_write[size] or 0), size) end
  assert.is_true(math.abs(pages.disk_write - pages.disk_read) * 4096 <= ring)
end

-- The place of the last op that makes products or a gradient.
local function last_of_passes(events)
  local last = 0
  for i, e in ipairs(events) do
    if e.kind == "op" and (e.products > 0 or e.name:find "_grad$") then last = i end
  end
  return last
end

local cases = {
  { "on one rank", 1, {}, is_memory },
  { "with data parallelism and ZeRO", 2, { "zero={stage=2}" }, is_memory },
  { "with batches that add up", 1, { "gradient_accumulation=5" }, is_memory }, -- a rehearsal makes two of them before
  { "with parts that are gathered for batches that add up", 2, -- and all, where a rank keeps some of what it gathers
    { "zero={stage=3,whole_below=16,keep=3000,ahead=2000}", "gradient_accumulation=6" }, is_memory },
  { "with tensors cut", 2, { "parallel.tensor={size=2,mode=\"1d\"}" }, is_memory },
  { "with states on a disk", 1, { "offload={optimizer='disk',disk='.',ring=131072}" }, is_work },
  { "with two stages", 2, { "parallel.pipeline=2", "num_microbatches=4" }, is_work },
}

describe("the record of a step", function()
  for i, case in ipairs(cases) do
    local name, n, set, same = unpack(case)
    it("is the same in a rehearsal and in a run " .. name, function()
      local words = { "-n", tostring(n) }
      for _, s in ipairs(set) do
        words[#words + 1] = "--set"
        words[#words + 1] = s
      end
      local file = ("run%d"):format(i)
      run { "run", "recipe.lua", "--no-eval", "--out", "out" .. i, "--step-file", file, unpack(words) }
      for rank = 0, n - 1 do
        local path = ("%s/%s%s"):format(home, file, n > 1 and "." .. rank or "")
        local made = core.step_read(path)
        local checked = support.run(home, { "check", "recipe.lua", "--json", "--rank", tostring(rank), "--step-file",
          "check", unpack(words) })
        local planned = core.step_read(home .. "/check")
        assert.same(lines(planned.events, same), lines(made.events, same))
        assert.same(lines(planned.events, is_receive), lines(made.events, is_receive))
        check_reads(planned.events)
        check_reads(made.events)
        assert.is_true(#planned.events > 100)
        assert.equal(last_of_passes(planned.events), planned.last_of_passes)
        local document = checked.out:match '"peak_bytes": (%d+),\n[^\n]*"product_flops'
        assert.equal(tonumber(document), planned.peak)
        assert.equal(0, planned.events[#planned.events].seconds)
        assert.is_true(made.events[#made.events].seconds > 0)
      end
    end)
  end

  it("waits for what it needs: each receive once, before the ops that read it", function()
    run { "check", "recipe.lua", "-n", "2", "--rank", "1", "--set", "parallel.pipeline=2", "--set",
      "num_microbatches=4", "--step-file", "stage" }
    local begun, waited = {}, {}
    for _, e in ipairs(core.step_read(home .. "/stage").events) do
      if e.kind == "begin" then begun[e.id] = e.name end
      if e.kind == "wait" then waited[e.id] = (waited[e.id] or 0) + 1 end
    end
    local receives, forward = 0, 0
    for id, name in pairs(begun) do
      if name == "receive" then
        receives = receives + 1
        assert.equal(1, waited[id])
      elseif name == "send" then
        forward = forward + 1
        assert.is_nil(waited[id])
      else
        assert.equal(1, waited[id])
      end
    end
    assert.same({ 4, 4 }, { receives, forward })
  end)

  -- How many rows go where, the choices decide, which a rehearsal does not know: so bytes are not compared.
  it("has one operation for all rows of experts that travel, each way, in a rehearsal and in a run", function()
    local words = { "-n", "2", "--set", "parallel={expert=2}", "--set", "model.moe={experts=6,every=1}" }
    run { "run", "recipe.lua", "--no-eval", "--out", "out-experts", "--step-file", "experts", unpack(words) }
    for rank = 0, 1 do
      local order, rows = {}, {}
      run { "check", "recipe.lua", "--rank", tostring(rank), "--step-file", "check", unpack(words) }
      for i, path in ipairs { home .. "/check", ("%s/experts.%d"):format(home, rank) } do
        local begun, waited = {}, {}
        order[i], rows[i] = {}, { forward = 0, backward = 0 }
        for _, e in ipairs(core.step_read(path).events) do
          if e.kind == "wait" then waited[e.id] = (waited[e.id] or 0) + 1 end
          if e.kind == "begin" then table.insert(order[i], ("%s %s %s"):format(e.name, e.group, e.phase)) end
          if e.kind == "begin" and e.name == "all_to_all_rows" then
            rows[i][e.phase] = rows[i][e.phase] + 1
            begun[e.id] = true
            assert.equal(e.bytes, e.sent) -- what goes to others
            assert.is_true(e.bytes > 0)
          end
          assert.is_false(e.kind == "begin" and (e.name == "send" or e.name == "receive"))
        end
        for id in pairs(begun) do assert.equal(1, waited[id]) end
        assert.same({ forward = 2 * 2, backward = 2 * 2 }, rows[i]) -- two layers, there and back
      end
      assert.same(order[1], order[2])
    end
  end)

  it("counts of uneven rows what goes to others, where some stay", function()
    run { "check", "recipe.lua", "-n", "2", "--set", "parallel.tensor={size=2,mode=\"1d\"}", "--set",
      "optimizer={type=\"Muon\"}", "--step-file", "rows" }
    local n = 0
    for _, e in ipairs(core.step_read(home .. "/rows").events) do
      if e.kind == "begin" and e.name == "all_to_all_rows" then
        n = n + 1
        assert.equal(e.sent, e.bytes)
      end
    end
    assert.is_true(n > 0)
  end)

  it("has the least dimension of each product", function()
    run { "check", "recipe.lua", "--step-file", "products" }
    local seen = {}
    for _, e in ipairs(core.step_read(home .. "/products").events) do
      if e.kind == "op" and e.products > 0 then
        local least = math.huge
        for shape in e.about:gmatch "%(([%d, ]+)%)" do
          local dims, rows = {}, 1
          for n in shape:gmatch "%d+" do dims[#dims + 1] = tonumber(n) end
          for i = 1, #dims - 1 do rows = rows * dims[i] end
          if e.name:find "^attention" then rows = dims[2] end -- (b, s, h, d)
          least = math.min(least, rows, dims[#dims])
        end
        assert.equal(least, e.size, e.name .. " " .. e.about)
        seen[e.name] = true
      elseif e.kind == "op" then
        assert.equal(0, e.size)
      end
    end
    for _, name in ipairs { "linear", "linear_weight_grad", "linear_input_grad", "attention", "attention_grad" } do
      assert.is_true(seen[name], name)
    end
  end)

  it("has one op for all pieces in which a ring works on a block of keys", function()
    run { "check", "recipe.lua", "-n", "2", "--set", "parallel.sequence=2", "--step-file", "ring" }
    local n = 0
    for _, e in ipairs(core.step_read(home .. "/ring").events) do
      if e.kind == "op" and e.name:find "^attention" then
        local batch, heads = e.about:match "%((%d+), %d+, (%d+), %d+%)"
        assert.equal("8 2", batch .. " " .. heads)
        n = n + 1
      end
    end
    assert.is_true(n >= 2 * 2) -- layers, forward and backward
  end)

  it("has the rows of a mean expert as a dimension of products of groups", function()
    run { "check", "recipe.lua", "--set", "model.moe={experts=6,every=1}", "--step-file", "groups" }
    local seen = {}
    for _, e in ipairs(core.step_read(home .. "/groups").events) do
      if e.kind == "op" and e.name:find "^grouped_" and e.products > 0 then
        local shapes = {}
        for shape in e.about:gmatch "%(([%d, ]+)%)" do
          local dims = {}
          for n in shape:gmatch "%d+" do dims[#dims + 1] = tonumber(n) end
          shapes[#shapes + 1] = dims
        end
        local rows, width, other = shapes[1][1], shapes[1][2], shapes[2][2] -- of the gradient of a weight: two matrices
        if e.name == "grouped_matmul" then other = shapes[2][2] * shapes[2][3] / width end -- weights are (6, n, k)
        assert.equal(math.floor(math.min(rows / 6, width, other)), e.size, e.name .. " " .. e.about)
        assert.equal(2 * rows * width * other, e.products)
        seen[e.name] = (seen[e.name] or 0) + 1
      end
    end
    assert.same({ grouped_matmul = 2 * 4, grouped_weight_grad = 2 * 2 }, seen) -- two layers
  end)

  setup(function() run { "check", "recipe.lua", "-n", "4", "--step-file", "whole" } end)

  it("of a GPU has the loss of cut classes in large pieces", function()
    local function pieces(device)
      run { "check", "recipe.lua", "-n", "2", "--device", device, "--set", "model.vocabulary=8192", "--set",
        "parallel.tensor={size=2,mode=\"1d\"}", "--step-file", "pieces" }
      local n = 0
      for _, e in ipairs(core.step_read(home .. "/pieces").events) do
        if e.kind == "op" and e.name == "exp" then n = n + 1 end
      end
      return n
    end
    -- 120 rows of 4096 logits: 9 rows (2^15 logits and one row) at a time in a core's cache; and once of all targets
    assert.equal(14 + 1, pieces "cpu")
    assert.equal(1 + 1, pieces "cuda")
  end)

  it("is read and written without a change", function()
    core.step_read(home .. "/whole", home .. "/copy")
    assert.equal(shell.read(home .. "/whole"), shell.read(home .. "/copy"))
  end)

  it("that is damaged is refused with the line", function()
    local text = shell.read(home .. "/whole")
    local function refused(changed, words)
      shell.write(home .. "/damaged", changed)
      assert.error_matches(function() core.step_read(home .. "/damaged") end, words)
    end
    refused(text:gsub("ganymede%-step 1", "ganymede-step 2"), "line 1: this is not a line")
    refused(text:gsub("\nw %d+ 0\n", "\nw 99999 0\n", 1), "line %d+: this is not a line")
    refused(text:gsub("\na %d+ 0\n", "\na nan 0\n", 1), "line %d+: this is not a line")
    refused(text:gsub("\nend %d+\n$", "\n"), "not complete")
    refused(text:gsub("\nend %d+\n$", "\nend 3\n"), "not complete")
    refused(text:gsub("\nrank 0\n", "\nrank 7\n"), "not complete")
    refused("", "not complete")
  end)
end)
