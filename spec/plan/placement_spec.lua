-- offload = { memory = BYTES }: what `check --placement` says, a run takes: within the memory, and with the same bits.
-- The memory is that of the process, as the system counts it (VmHWM); each rank writes it when it has made its steps.
-- sanitizers: no, the memory of a process then is that of the sanitizer, too
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local recipe = [[
local gm = require "ganymede"
local Peak = gm.hooks.class "PeakHook"
function Peak:after_train_iter(trainer)
  local text = io.open("/proc/self/status"):read "*a"
  local file = io.open("peak-" .. gm.core.rank(), "w")
  file:write(text:match "VmHWM:%s*(%d+) kB")
  file:close()
end
return gm.recipe {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 4000, sequence_length = 64, width = 384, depth = 6, heads = 4, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 64, stride = 64 }, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, clip_grad_norm = 1,
  optimizer = { type = "AdamW", lr = 1e-3 }, steps = 3, hooks = { { type = "PeakHook" } },
}
]]

local MIB = 2 ^ 20

describe("a placement by memory #ranks", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local function setting(memory) return ("offload={memory='%s',disk='%s'}"):format(memory, home) end

  local function peak_of(rank) return tonumber(shell.read(("%s/peak-%d"):format(home, rank))) / 1024 end

  local function check_runs(ranks, set, memories)
    local plain = job.run_in(home, recipe, ranks, { set = set, alone = true }) -- its own processes, whose memory counts
    for _, memory in ipairs(memories) do
      local words = { setting(memory .. "M"), unpack(set) }
      local said = support.run(home, { "check", "recipe.lua", "--placement", "-n", tostring(ranks), "--set", words[1],
        "--set", words[2] or "seed=6", "--set", words[3] or "seed=6" })
      assert.equal(0, said.code, said.err)
      assert.matches("on the disk %(offload={.*}%): a step needs", said.out)
      local mine = job.run_in(home, recipe, ranks, { set = words, alone = true })
      assert.is_truthy(mine.err:find(said.out:match "^(.-)\n", 1, true), mine.err)
      assert.same(plain.loss, mine.loss)
      assert.is_true(mine.ranks[1].offload.placed_bytes > 0)
      for rank = 0, ranks - 1 do
        assert.is_true(peak_of(rank) <= memory, ("%g MiB of %d on rank %d"):format(peak_of(rank), memory, rank))
      end
    end
  end

  it("is kept, to the bit: one rank", function() check_runs(1, {}, { 260 }) end)
  it("is kept, to the bit: recomputed #slow", function() check_runs(1, { "recompute=block" }, { 150 }) end)
  it("is kept, to the bit: two stages #slow", function()
    check_runs(2, { "parallel={pipeline=2}", "num_microbatches=2" }, { 160 })
  end)
  it("is kept, to the bit: ZeRO 3 on 2 #slow", function()
    check_runs(2, { "zero={stage=3,keep=0,ahead=0}" }, { 250 })
  end)
  it("is kept, to the bit: 1d on 2 #slow", function()
    check_runs(2, { "parallel={tensor={size=2,mode='1d'}}" }, { 150 })
  end)

  it("leaves all in memory where that is enough", function()
    job.write(home, recipe)
    local said = support.run(home, { "check", "recipe.lua", "--placement", "--set", setting "2G" })
    assert.matches("^nothing rests on the disk: a step needs [%d.]+ MiB of 2.0 GiB", said.out)
  end)

  it("says the least memory where none is enough, and that is enough", function()
    job.write(home, recipe)
    local said = support.run(home, { "check", "recipe.lua", "--placement", "--set", setting "70M" })
    assert.equal(2, said.code)
    local least = tonumber(said.err:match "a step needs ([%d.]+) MiB at least")
    assert.is_true(least > 70, said.err)
    assert.matches("recompute = \"block\" lets it need less", said.err)
    said = support.run(home, { "check", "recipe.lua", "--placement", "--set", setting(math.ceil(1.02 * least) .. "M") })
    assert.equal(0, said.code, said.err)
    assert.equal(2, support.run(home, { "run", "recipe.lua", "--set", setting "70M" }).code)
  end)

  it("is refused where it is not alone, or cannot be rehearsed", function()
    job.write(home, recipe)
    local function refused(pattern, set)
      local said = support.run(home, { "check", "recipe.lua", "--placement", "--set", set })
      assert.equal(2, said.code)
      assert.matches(pattern, said.err)
    end
    refused("memory and optimizer: the one chooses", "offload={memory='1G',disk='/tmp',optimizer='disk'}")
    refused("needs a folder", "offload={memory='1G'}")
    refused("'1X' is no number of bytes", "offload={memory='1X',disk='/tmp'}")
    refused("64.0 MiB are for the program itself: give it more than 64.0 MiB", "offload={memory='40M',disk='/tmp'}")
    refused("has no offload = { memory", "offload={optimizer='disk',disk='/tmp'}")
    shell.write(home .. "/program.lua", [[
      local gm = require "ganymede"
      gm.initialize { model = gm.nn.Linear(2, 2), criterion = { type = "MSELoss" },
        offload = { memory = "1G", disk = "/tmp" } }
    ]])
    local said = support.run(home, { "run", "program.lua" })
    assert.equal(2, said.code)
    assert.matches("needs a recipe that returns a table", said.err)
  end)

  it("gives way to --limit-memory of check, which refuses a step that needs more", function()
    job.write(home, recipe)
    assert.equal(0, support.run(home, { "check", "recipe.lua", "--limit-memory", "600M" }).code)
    local said = support.run(home, { "check", "recipe.lua", "--limit-memory", ("%d"):format(50 * MIB) })
    assert.equal(1, said.code)
    assert.matches("out of memory", said.err)
  end)
end)
