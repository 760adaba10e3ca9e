-- Objects written as plain tables, as their modules document them, in a recipe: datasets, hooks, handlers, schedules;
-- metrics of one's own where another stage of a pipeline has the output; layers that mix tokens on a mesh.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local assert = require "luassert"
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local head = [[
local gm = require "ganymede"
local recipe = {
  model = { type = "MLP", inputs = 4, hidden = { 8 }, classes = 3 }, steps = 3, seed = 2, dtype = "f64",
  data = { train = { length = 24, get = function(i) return { i / 24, 0, 1, i % 5 }, i % 3 end },
    test = { length = 6, get = function(i) return { i / 6, 1, 0, i % 2 }, i % 3 end }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
}
]]

describe("a recipe", function()
  local home
  after_each(function() shell.remove(home) end)

  local function run(body, ...)
    home = support.home(head .. body .. "\nreturn recipe")
    return support.run(home, { "run", "recipe.lua", "--threads", "1", "--stats", "s.json", ... })
  end

  local function stats(result)
    assert.equal(0, result.code, result.err)
    return json.decode(shell.read(home .. "/s.json"))
  end

  it("takes plain tables for datasets, hooks, handlers and schedules, and does not copy them", function()
    local document = stats(run [[
      local hook = { seen = 0 }
      function hook.after_train_iter(self) self.seen = self.seen + 1 end
      function hook.after_train() print("seen " .. hook.seen) end
      local handler = { handle_gradient = function(_, engine) gm.gradient_handlers.sum(engine.parameters, "DATA") end }
      gm.registry.schedules:register("Own", function()
        return { forward_backward_step = function(_, engine, iter)
          local x, y = iter()
          if x == nil then return nil end
          local output = engine(x)
          local loss = engine:criterion(output, y)
          if engine.training then engine:backward(loss) end
          return output, y, loss
        end }
      end)
      recipe.hooks, recipe.gradient_handler, recipe.schedule = { hook }, { handler }, { type = "Own" }
    ]])
    assert.equal(3, #document.loss)
    local plain = stats(run "")
    assert.same(plain.loss, document.loss)
  end)

  it("says so of a hook that has no such point", function()
    local result = run "recipe.hooks = { { after_train_step = print } }"
    assert.equal(2, result.code, result.err)
    has(result.err, "there is no point 'after_train_step'")
  end)

  local reads = "recipe.hooks = { { after_test_iter = function(_, _, output) output:size(1) end } }"

  it("explains on a stage that has no output what a hook that reads it must do", function()
    local result = run(reads, "-n", "2", "--set", "parallel.pipeline=2", "--set", "num_microbatches=2")
    assert.are_not.equal(0, result.code)
    has(result.err, "output is nil on this rank: another stage of the pipeline has it")
    has(result.err, "recipe.lua:8")
  end)

  it("is told what a loss without a count lacks, which a module's own count of parameters is not", function()
    local result = run [[
      local Own = gm.nn.class("OwnLoss", nil, "losses")
      function Own:forward(output, label) return gm.ops.cross_entropy(output, label):sum() end
      recipe.loss = { type = "OwnLoss" }
    ]]
    assert.equal(2, result.code)
    has(result.err, "OwnLoss has no method count")
    has(result.err, "function OwnLoss:count(target)")
  end)

  local own_loss = [[
    local Own = gm.nn.class("OwnLoss", nil, "losses")
    function Own:count(label) return %s end
    function Own:forward(output, label, count) return %s end
    recipe.loss = { type = "OwnLoss" }
  ]]
  local sum = "gm.ops.cross_entropy(output, label):sum() / count"
  local returns = "OwnLoss must return the loss, a tensor of one number such as each:sum() / count; it returned "
  local counts = "count of OwnLoss must return the number of targets, such as target:numel(); it returned "
  for i, case in ipairs {
    { "8", "3", returns .. "3" }, { "8", "nil", returns .. "nothing" },
    { "'8'", sum, counts .. '"8"' }, { "nil", sum, counts .. "nothing" }, { "-1", sum, counts .. "-1" },
    { "label:to('f32'):sum()", sum, counts .. "a tensor (n:item() is its number)" },
  } do
    it(("is told what a loss of one's own returns wrongly, %d"):format(i), function()
      local result = run(own_loss:format(case[1], case[2]))
      assert.equal(1, result.code)
      has(result.err, case[3])
      assert.is_nil(result.err:find("traceback", 1, true), result.err)
    end)
  end

  it("is told so on a stage of a pipeline, and in code of a plain function", function()
    local result = run(own_loss:format("8", "3"), "-n", "2", "--set", "parallel.pipeline=2", "--set",
      "num_microbatches=2")
    assert.equal(1, result.code)
    has(result.err, returns .. "3")
    local gm = require "ganymede"
    local engine = gm.initialize { model = gm.nn.Linear { inputs = 2, outputs = 1 },
      criterion = function() return 3 end }
    assert.error_matches(function() engine:criterion(engine(gm.ones { 1, 2 }), gm.ones { 1, 1 }) end,
      "the criterion must return the loss, a tensor of one number .* it returned 3")
  end)

  for i, case in ipairs { { "nil", "nothing" }, { "'0.1'", '"0.1"' }, { "-1", "-1" }, { "0 / 0", "nan" } } do
    it(("is told what a schedule of one's own returns wrongly, %d"):format(i), function()
      local result = run(([[
        local Own = gm.lr_scheduler.class("OwnRate", {})
        function Own:at(step, base) if step == 2 then return %s end return base end
        recipe.lr_scheduler = { type = "OwnRate" }
      ]]):format(case[1]))
      assert.equal(1, result.code)
      has(result.err, "OwnRate:at(2, 0.1) must return a learning rate, a number that is at least 0; it returned "
        .. case[2])
      assert.is_nil(result.err:find("traceback", 1, true), result.err)
    end)
  end

  it("whose hook raises a table is told what is in it", function()
    local result = run "recipe.hooks = { { after_train_iter = function() error { code = 7 } end } }"
    assert.equal(1, result.code)
    has(result.err, "an error that is a table: { code = 7 }")
  end)

  it("has a metric of its own, the same on one rank, on stages and on data ranks", function()
    local body = [[recipe.hooks = { { type = "MetricHook", name = "first", measure = function(output)
      return output:select(2, 1):sum(), output:size(1) end },
      { type = "MetricHook", name = "right", measure = function(output, label)
        return require("ganymede.nn.metrics").correct(output, label) end } }]]
    local one = stats(run(body)).metrics
    assert.is_true(one.test.first ~= 0 and one.test.right >= 0)
    for _, words in ipairs { { "-n", "2", "--set", "parallel.pipeline=2", "--set", "num_microbatches=2" },
      { "-n", "2" }, { "-n", "3" } } do
      shell.remove(home)
      local other = stats(run(body, unpack(words))).metrics
      for _, part in ipairs { "train", "test" } do
        for name, value in pairs(one[part]) do assert.near(value, other[part][name], 1e-12, part .. name) end
      end
    end
  end)
end)

describe("a layer that mixes tokens", function()
  local home
  after_each(function() shell.remove(home) end)

  local mix = [[
local gm = require "ganymede"
local nn = gm.nn
local Mix = nn.class "Mix"
function Mix:build()
  self.embed, self.mlp = nn.Embedding { count = 32, width = 16 }, nn.Linear { inputs = 8, outputs = 8 }
  self.head = nn.Classifier { inputs = 16, classes = 32 }
end
function Mix:forward(x)
  x = self.embed(x)
  x = BODY
  return self.head(x)
end
return { model = { type = "Mix" }, steps = 3, seed = 3, dtype = "f64", loss = { type = "CrossEntropyLoss" },
  data = { train = { type = "Synthetic", kind = "tokens", length = 64, sequence_length = 8, vocab_size = 32 },
    batch_size = 8 }, optimizer = { type = "AdamW", lr = 0.01 } }
]]

  local function run(body, ...)
    home = support.home((mix:gsub("BODY", body)))
    return support.run(home, { "run", "recipe.lua", "--threads", "1", "--stats", "s.json", ... })
  end

  local bare = "x + self.mlp(x:transpose(2, 3)):transpose(2, 3)"
  local cured = "x + nn.stream.to(self.mlp(x:transpose(2, 3)):transpose(2, 3))"
  local attention = "local q = x:reshape(x:size(1), 8, 2, 8)\n x = %s(q, q, q):reshape(x:size(1), 8, 16)"

  local function losses(...)
    local result = run(...)
    assert.equal(0, result.code, result.err)
    local loss = json.decode(shell.read(home .. "/s.json")).loss
    shell.remove(home)
    return loss
  end

  local function agree(a, b)
    assert.equal(3, #b)
    for i = 1, 3 do assert.near(a[i], b[i], 1e-12) end
  end

  for mode, words in pairs {
    ["2d"] = { "-n", "4", "--set", "parallel={tensor={size=4,mode='2d'}}" },
    sequence = { "-n", "2", "--set", "parallel={sequence={size=2}}" },
  } do
    it("is told the cure in " .. mode .. ", and trains with it as on one rank", function()
      local result = run(bare, unpack(words))
      assert.are_not.equal(0, result.code)
      has(result.err, "gm.nn.stream.to(x)")
      has(result.err, "recipe.lua:10")
      shell.remove(home)
      agree(losses(bare), losses(cured, unpack(words)))
    end)
  end

  it("that is attention works along the sequence as it is", function()
    local words = { "-n", "2", "--set", "parallel={sequence={size=2}}" }
    local alone = losses("x\n " .. attention:format "gm.ops.attention")
    agree(alone, losses("x\n " .. attention:format "gm.ops.attention", unpack(words)))
    agree(alone, losses("x\n " .. attention:format "nn.sequence_parallel.attention", unpack(words)))
  end)
end)
