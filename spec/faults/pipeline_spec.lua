--- What goes wrong on one stage of a pipeline ends the job as any fault does: within 10 seconds, with the right exit
-- status and one message that names the rank, also where the others only wait at their borders; nothing is left behind.
local support = require "spec.faults.support"

local run, check = support.run, support.check

-- Three stages. Lua source `forward` runs in each forward pass of the middle one, and may use `calls`, how many there
-- were: a step has four, so that call 22 is in the sixth step, with work of other micro-batches in flight on all sides.
-- backward: the same of backward passes.
local function training(forward, backward, epochs)
  return ([[
local calls, backs = 0, 0
local scale = gm.custom {
  forward = function(x)
    calls = calls + 1
    %s
    return x * 1
  end,
  backward = function(g)
    backs = backs + 1
    %s
    return g * 1
  end,
}
return {
  name = "stages", seed = 3, epochs = %d, num_microbatches = 4,
  parallel = { pipeline = { size = 3, split = { 2, 2, 2 } } },
  model = { type = "ModelFromConfig", layers_cfg = {
    { type = "Linear", inputs = 16, outputs = 32 }, { type = "ReLU" },
    function(x) return scale(x) end, { type = "Linear", inputs = 32, outputs = 32 },
    { type = "ReLU" }, { type = "Linear", inputs = 32, outputs = 10 } } },
  data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 32 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]]):format(forward or "", backward or "", epochs or 4)
end

-- Exactly one line of the job complains.
local function complaints(result)
  local count = 0
  for line in result.err:gmatch "[^\n]+" do count = count + (line:find("^ganymede: rank %d") and 1 or 0) end
  return count
end

local function ends(body, words, code, text)
  local result = run(body, words)
  check(result, code, text)
  assert.equal(1, complaints(result), result.err)
  assert.equal(code, result.stats.exit_code)
  return result
end

describe("a rank of a middle stage", function()
  it("that raises in a forward pass ends the job with its message", function()
    local result = ends(training "if calls == 22 then fault() error 'no such luck' end", nil, 1, "no such luck")
    assert.is_truthy(result.err:find("rank 1: ", 1, true), result.err)
    assert.equal(5, #result.stats.loss)
  end)

  it("that raises in a backward pass", function()
    local result = ends(training(nil, "if backs == 22 then fault() error 'no way back' end"), nil, 1, "no way back")
    assert.is_truthy(result.err:find("rank 1: ", 1, true), result.err)
  end)

  it("that has no memory left", function()
    local starve = "if calls == 22 then core.memory_limit(2 ^ 20) fault() gm.zeros { 2 ^ 20 } end"
    local result = ends(training(starve), nil, 1, "rank 1: ")
    assert.is_truthy(result.err:find("memory", 1, true), result.err)
  end)

  it("that is killed ends the job with status 6", function()
    local result = ends(training "if calls == 22 then fault() kill(9) end", nil, 6,
      "rank 1: killed by signal 9 (Killed)")
    assert.equal("rank died", result.stats.status)
  end)

  it("that is stopped is named, with status 7", function()
    ends(training "if calls == 22 then fault() kill 'STOP' end", { "--comm-timeout", "3" }, 7,
      "rank 1 was stopped by signal 19")
  end)

  it("that loops for ever is named by who waits for it at the border", function()
    local result = run(training "if calls == 22 then fault() while true do end end", { "--comm-timeout", "3" })
    assert.equal(7, result.code, result.err)
    assert.matches("rank [02]: receive f32 %(8, 32%).- of pipeline%).-rank 1 does not answer", result.err)
    assert.is_true(result.late < 10)
  end)
end)

describe("a pipelined job", function()
  local long = training("if calls == 80 then ready() end", nil, 100000)

  it("is stopped by Ctrl-C", function() support.check_interrupt(long) end)

  -- the stop is an object that travels from Lua through the tape and the executor
  for what, body in pairs {
    ["a forward pass"] = training "if calls == 22 then ready() core.sleep(60) end",
    ["a backward pass"] = training(nil, "if backs == 22 then ready() core.sleep(60) end"),
  } do
    it("is stopped by Ctrl-C in " .. what, function() support.check_interrupt(body) end)
  end

  it("saves a checkpoint of all stages on SIGTERM, ends with status 75, and goes on", function()
    support.check_terminated(long)
  end)

  -- loss and gradient norm are one decision of all stages, whichever of them sees what is not finite
  for what, one in pairs {
    ["a loss on the last stage"] = { training "if calls == 22 then return x / 0 end", "the loss; all parameters are" },
    ["a gradient on the first"] = { training(nil, "if backs == 22 then return g / 0 end"), "the gradient of 1%." },
  } do
    it(("ends on all stages for %s that is not finite, with status 8"):format(what), function()
      local result = run(one[1])
      check(result, 8, "diverged: ")
      assert.matches("in step 6; first that is not finite: " .. one[2], result.err)
      assert.equal(5, #result.stats.loss)
    end)
  end
end)
