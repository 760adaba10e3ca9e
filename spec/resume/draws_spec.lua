--- Random numbers that a recipe draws itself, in transforms, datasets and hooks written in Lua: a run that goes on, on
-- other ranks too, draws those of the run that was never stopped; and an evaluation changes none of them.
--
-- In f64 sums over ranks differ by 1e-16 an addition, so 1e-9 has room.
-- sanitizers: no, numbers of training are compared
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

local recipe = [[
local gm = require "ganymede"
local values = gm.uniform({ 37, 6 }, { seed = 3 }):totable()
gm.uniform { DRAWN } -- what a recipe draws while it is read has no part in what a step draws
local Noise = gm.hooks.class("DrawnNoise", {}, { needs_output = false })
function Noise.before_train_iter(_, trainer)
  local weight = trainer.engine.optimizer.items[1].tensor
  weight:copy_(weight + gm.normal(weight:shape()) * 0.01)
end
local function get(i) return gm.tensor(values[i]) + gm.uniform { 6 }, i %% 4 end
local function noise(x, y) return x + gm.normal(x:shape()) * 0.1, y end
return { name = "drawn", seed = 5, dtype = "f64", epochs = 4, gradient_accumulation = 2,
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4 },
  data = { train = { length = 37, get = get }, test = { length = 7, get = get }, batch_size = 5,
    transforms = { noise }, test_transforms = { noise } },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
  hooks = { { type = "DrawnNoise" } EVALUATION }, checkpoint = { interval = 3, keep_last = 9 } }
]]

local function text(drawn, evaluation)
  return (recipe:gsub("DRAWN", drawn):gsub("EVALUATION", evaluation or ""):gsub("%%%%", "%%"))
end

-- Largest difference of two lists.
local function apart(a, b)
  assert.equal(#a, #b)
  local most = 0
  for i, value in ipairs(a) do most = math.max(most, math.abs(value - b[i])) end
  return most
end

describe("random numbers of a recipe #ranks", function()
  local whole
  setup(function() whole = job.run(text(1), 1, { steps = 9 }) end)

  for _, ranks in ipairs { { 1, 1 }, { 3, 2 } } do
    it(("go on on %d ranks where %d have stopped"):format(ranks[2], ranks[1]), function()
      local folder = shell.temporary_folder()
      finally(function() shell.remove(folder) end)
      local first = job.run_in(folder, text(1), ranks[1], { steps = 3, flags = { "--out", "run" } })
      local flags = { "--out", "run", "--resume", "auto" }
      local second = job.run_in(folder, text(5), ranks[2], { steps = 9, flags = flags })
      local third = job.run_in(folder, text(9), ranks[2], { steps = 9, flags = flags })
      for _, loss in ipairs(second.loss) do table.insert(first.loss, loss) end
      assert.is_true(apart(whole.loss, first.loss) < 1e-9)
      for _, run in ipairs { second, third } do -- the third has evaluated only
        assert.near(whole.metrics.test.loss, run.metrics.test.loss, 1e-9)
      end
    end)
  end

  it("are other numbers in a hook, in a transform and in the model", function()
    local recipe_of_three = [[
      local gm = require "ganymede"
      local function note(from) io.stderr:write(from, " drew ", gm.uniform({ 1 }):item(), "\n") end
      local Model = gm.nn.class "Drawing"
      function Model:build() self.inner = gm.nn.Linear(6, 4) end
      function Model:forward(x)
        note "model"
        return self.inner(x)
      end
      gm.hooks.class("Drawer", {}, { needs_output = false }).before_train_iter = function() note "hook" end
      return { name = "three", seed = 5, model = function() return Model {} end,
        data = { train = { type = "Synthetic", length = 16, shape = { 6 }, classes = 4 }, batch_size = 8,
          transforms = { function(x, y) note "transform" return x, y end } },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD" }, epochs = 1,
        hooks = { { type = "Drawer" } } }
    ]]
    local result, seen, count = job.run(recipe_of_three, 1, { alone = true }), {}, 0
    for number in result.err:gmatch "drew (%S+)" do
      assert.is_nil(seen[number], "twice: " .. number)
      seen[number], count = true, count + 1
    end
    assert.equal(6, count)
  end)

  it("do not depend on evaluations", function()
    local often = job.run(text(1, ", { type = 'EvaluationHook', interval = 2 }"), 1, { steps = 9 })
    assert.same(whole.loss, often.loss)
  end)
end)
