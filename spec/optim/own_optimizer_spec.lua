--- An optimizer of a user's own: the one of docs/optimizers.md trains as SGD with momentum does, in f64, on one rank
-- and on ranks that share parameters or layers, and goes on from a checkpoint; states that are not whole are refused.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
-- luacheck: globals finally
local agree = require("spec.support.numeric").agree
local gm = require "ganymede"
local job = require "spec.parallel.job"
local page = require "spec.support.page"
local shell = require "spec.support.shell"
local tree = require "spec.support.tree"

local function example()
  for _, block in ipairs(page.blocks(tree.read "docs/optimizers.md")) do
    if block.text:find("gm.optim.class", 1, true) then return block.text end
  end
end

local OWN = '{ type = "HeavyBall", lr = 0.05, friction = 0.25, weight_decay = 0.01 }'
local SGD = '{ type = "SGD", lr = 0.05, momentum = 0.75, weight_decay = 0.01 }'

local function recipe(optimizer)
  return ([[
local gm = require "ganymede"
%s
return gm.recipe {
  model = { type = "MLP", inputs = 16, hidden = { 9, 6 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 40 }, batch_size = 10 },
  loss = "CrossEntropyLoss", optimizer = %s, steps = 8, dtype = "f64", clip_grad_norm = 0.3,
}
]]):format(example(), optimizer)
end

describe("the optimizer of docs/optimizers.md", function()
  local want = job.run(recipe(SGD), 1, {}).loss

  it("makes the updates of SGD with momentum", function()
    assert.is_true(math.abs(want[8] - want[1]) > 1e-3, "it trains")
    agree(job.run(recipe(OWN), 1, {}).loss, want, 1e-12)
  end)

  it("makes them on ranks that share what it works on", function()
    for _, set in ipairs { { "zero=1" }, { "zero=3" }, { "parallel.tensor={size=2,mode='1d'}" },
      { "parallel.pipeline=2", "num_microbatches=2" } } do
      agree(job.run(recipe(OWN), 2, { set = set }).loss, want, 1e-12)
    end
  end)

  it("goes on from a checkpoint, also of ranks that share its states", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local out = { "--out", folder .. "/run", "--set", "checkpoint.interval=4" }
    local first = job.run(recipe(OWN), 2, { set = { "zero=3" }, flags = { out[1], out[2], "--steps", "4", out[3],
      out[4] } }).loss
    local second = job.run(recipe(OWN), 1, { flags = { out[1], out[2], "--resume", "auto", out[3], out[4] } }).loss
    for _, loss in ipairs(second) do first[#first + 1] = loss end
    agree(first, want, 1e-12)
  end)
end)

describe("the states of an optimizer of one's own", function()
  local function refused(name, state, words)
    local Own = gm.optim.class(name)
    Own.state = state
    assert.error_matches(function()
      gm.initialize { model = gm.nn.Linear(2, 2), criterion = { type = "MSELoss" }, optimizer = { type = name } }
    end, words)
  end

  it("are whole from the start, each with a name of its own", function()
    local t = gm.ones({ 1 }):keep()
    refused("SpecLate", function() return { { name = "m" } } end,
      "SpecLate:state%(%): 'm' has no tensor yet; make it in build")
    refused("SpecTwice", function() return { { name = "m", tensor = t }, { name = "m", tensor = t } } end,
      "SpecTwice:state%(%): the name 'm' is there twice")
    refused("SpecPlain", function() return { t } end,
      "SpecPlain:state%(%): an entry is { name = TEXT, tensor = TENSOR }")
    refused("SpecNone", function() end, "SpecNone:state%(%) must return a list of states; it returned nothing")
  end)
end)
