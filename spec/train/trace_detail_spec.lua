-- A step in full: what a record becomes in a trace, clocks that stand apart, and the trace of a pipeline on two ranks,
-- whose messages, modules and memory must fit together. Profiles by module: the parts add up to the whole.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
-- luacheck: globals finally
local cli = require "spec.cli.support"
local detail = require "ganymede.observe.trace_detail"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local profile_lines = require "ganymede.observe.profile_lines"
local shell = require "spec.support.shell"
local trace = require "ganymede.observe.trace"

describe("a record", function()
  local mesh = { { name = "data", size = 2, coordinate = 1 }, { name = "pipeline", size = 3, coordinate = 1 },
    { name = "tensor", size = 2, coordinate = 0 } } -- rank 8

  it("names ranks by their places in a group", function()
    local function at(group, place) return detail.rank_at(mesh, group, place) end
    assert.same({ 6, 8, 10 }, { at("pipeline", 0), at("pipeline", 1), at("pipeline", 2) })
    assert.same({ 2, 8 }, { at("data", 0), at("data", 1) })
    assert.same({ 6, 7, 8 }, { at("pipeline.tensor", 0), at("pipeline.tensor", 1), at("pipeline.tensor", 2) })
    assert.same({ 6, 10 }, { at("pipeline@0+2", 0), at("pipeline@0+2", 1) })
  end)

  local function op(path, at, took)
    return { kind = "op", name = "linear", about = "f32", path = path, seconds = at, took = took, flops = 1, bytes = 2 }
  end
  local record = { rank = 8, begin = 100, live = 50, events = {
    op("blocks.1.mlp", 0, 1), op("blocks.1.mlp", 1, 1), op("blocks.1", 2, 0.5), op("", 3, 0.25), op("blocks.2", 4, 1),
    { kind = "begin", id = 1, name = "send", group = "pipeline", peer = 2, seconds = 5, sent = 7 },
    { kind = "begin", id = 2, name = "receive", group = "pipeline", peer = 0, seconds = 5, sent = 0 },
    { kind = "begin", id = 3, name = "send", group = "pipeline", peer = 2, seconds = 5.5, sent = 7 },
    { kind = "wait", id = 2, seconds = 5.75, took = 0.25 },
    { kind = "alloc", bytes = 20, seconds = 7 }, { kind = "free", bytes = 30, seconds = 8 } } }

  it("becomes ops, modules around them, messages with the key of both ends, and memory", function()
    local found = detail.of_record(record, mesh)
    local modules = detail.modules(found.ops)
    local said = {}
    for i, m in ipairs(modules) do said[i] = ("%s %g %g %d %g"):format(m.path, m.begin, m.finish, m.ops, m.seconds) end
    assert.same({ "blocks.1.mlp 100 102 2 2", "blocks.1 100 102.5 3 2.5", "blocks 100 102.5 3 2.5",
      "blocks.2 104 105 1 1",
      "blocks 104 105 1 1" }, said)
    assert.same({ "8>10 #1", "6>8 #1", "8>10 #2" }, { found.messages[1].key, found.messages[2].key,
      found.messages[3].key })
    assert.same({ 105, 106 }, { found.messages[2].begin, found.messages[2].finish })
    assert.is_nil(found.messages[1].finish)
    assert.same({ { 100, 50 }, { 107, 70 }, { 108, 40 } }, { unpack(found.memory) })
  end)

  it("is shown on the clock of rank 0", function()
    local function told(offset)
      local moved = detail.of_record(record, mesh)
      detail.move(moved, offset)
      local other = { name = "forward", begin = 99, finish = 100 }
      local clock = offset ~= 0 and { offset = offset, error = 2e-5 } or nil
      return trace.chrome { { rank = 0, stage = 0, phases = { other }, runs = {} },
        { rank = 8, stage = 1, phases = {}, runs = {}, detail = moved, clock = clock } }
    end
    local plain, moved = told(0), told(1234.5)
    assert.equal(plain, (moved:gsub(", clock %+1234%.500000 s to 20%.0 us", "")))
    assert.not_equal(plain, moved)
    json.decode(plain, "the trace")
  end)
end)

local recipe = [[
return {
  name = "traced", seed = 3, steps = 4, num_microbatches = 2, parallel = { pipeline = 2 },
  model = { type = "GPT", vocabulary = 259, sequence_length = 7, width = 16, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 7, stride = 31 }, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
}
]]

describe("the trace of a pipeline", function()
  local events, document
  setup(function()
    local folder = shell.temporary_folder()
    job.run_in(folder, recipe, 2, { alone = true, flags = { "--trace", "trace.json", "--profile", "profile.json" } })
    events = json.decode(shell.read(folder .. "/trace.json"), "trace.json")
    document = json.decode(shell.read(folder .. "/profile.json"), "profile.json")
    shell.remove(folder)
  end)

  -- Events of a kind by rank.
  local function of(cat, ph)
    local list = { [0] = {}, {} }
    for _, e in ipairs(events) do
      if e.cat == cat and e.ph == ph then table.insert(list[e.pid], e) end
    end
    return list
  end

  it("has both ends of every message, and no receive ends before its send began", function()
    local begins, ends = {}, {}
    local first, last = of("ranks", "b"), of("ranks", "e")
    for rank = 0, 1 do
      for i, e in ipairs(first[rank]) do
        if e.args.key and e.name:find "^send" then begins[e.args.key] = e.ts end
        if e.args.key and e.name:find "^receive" then ends[e.args.key] = last[rank][i].ts end
      end
    end
    local n = 0
    for key, ts in pairs(begins) do
      n = n + 1
      assert.is_true(ends[key] >= ts, key)
    end
    assert.is_true(n >= 4) -- two micro-batches there and back
    for key in pairs(ends) do assert.is_truthy(begins[key], key) end
  end)

  it("has ops whose times add up to those of the modules around them", function()
    local ops, modules = of("op", "X"), of("module", "X")
    for rank = 0, 1 do
      local whole, parts, count = 0, 0, 0
      for _, e in ipairs(ops[rank]) do
        if e.args.module and e.args.module ~= "" then whole, count = whole + e.dur, count + 1 end
      end
      for _, e in ipairs(modules[rank]) do
        if not e.name:find "%." then parts, count = parts + e.args.microseconds, count - e.args.ops end
      end
      assert.is_true(whole > 0)
      assert.equal(0, count)
      assert.near(whole, parts, 0.2 * #ops[rank]) -- each is written to 0.1 us
    end
  end)

  it("has the memory of every rank", function()
    for _, list in pairs { of(nil, "C")[0], of(nil, "C")[1] } do
      assert.is_true(#list > 10)
      for _, e in ipairs(list) do assert.is_true(e.args.bytes > 0) end
    end
  end)

  it("is beside a profile whose modules add up to its ops", function()
    local sums, own = { calls = 0, seconds = 0, flops = 0, bytes = 0 }, 0
    for _, line in ipairs(document.lines) do
      for name in pairs(sums) do sums[name] = sums[name] + line[name] end
    end
    local tops = { calls = 0, seconds = 0, flops = 0, bytes = 0 }
    for _, m in ipairs(document.modules) do
      own = own + m.own
      if not m.module:find "%." then
        for name in pairs(tops) do tops[name] = tops[name] + m[name] end
      end
    end
    assert.is_true(sums.calls > 0 and #document.modules > 5)
    for name, sum in pairs(sums) do assert.near(sum, tops[name], 1e-9 * sum, name) end
    assert.near(sums.seconds, own, 1e-9 * sums.seconds)
  end)
end)

describe("the record of a step", function()
  it("is the same beside a trace, which has another step in full", function()
    local home = cli.home()
    finally(function() shell.remove(home) end)
    -- The ops of a step file without their times.
    local function run(...)
      local result = cli.run(home, { "run", "recipe.lua", "-q", "--steps", "5", "--step-file", "step", ... })
      assert.equal(0, result.code, result.err)
      local names = {}
      for op in shell.read(home .. "/step"):gmatch "\n(o [^\n]*) %S+" do names[#names + 1] = op end
      return table.concat(names, "\n")
    end
    local alone = run()
    assert.is_true(select(2, alone:gsub("\n", "")) > 10, alone)
    assert.equal(alone, run("--trace", "trace.json"))
    assert.is_true(select(2, shell.read(home .. "/trace.json"):gsub('"cat":"op"', "")) > 10)
  end)
end)

describe("lines of a profile", function()
  local lines = { { op = "linear", about = "a", path = "x.y", calls = 1, seconds = 4, flops = 1, bytes = 2 },
    { op = "linear", about = "a", path = "x", calls = 2, seconds = 1, flops = 1, bytes = 2 },
    { op = "add", about = "a", path = "", calls = 3, seconds = 2, flops = 1, bytes = 2 } }

  it("are joined by op and by module", function()
    assert.same({ { op = "linear", about = "a", calls = 3, seconds = 5, flops = 2, bytes = 4 },
      { op = "add", about = "a", calls = 3, seconds = 2, flops = 1, bytes = 2 } }, profile_lines.by_op(lines))
    local said = {}
    for i, m in ipairs(profile_lines.by_module(lines)) do
      said[i] = ("%s %d %g %g"):format(m.module, m.calls, m.seconds, m.own)
    end
    assert.same({ "x 3 5 1", "x.y 1 4 4", " 3 2 2" }, said)
  end)
end)
