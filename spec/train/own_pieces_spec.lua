--- What a user's own functions return: those of a recipe that make its parts, datasets, transforms, samplers, loaders
-- and forward passes. What cannot be used is refused by name, before it trains on nothing or for ever.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local agree = require("spec.support.numeric").agree
local gm = require "ganymede"
local job = require "spec.parallel.job"
local registry = require "ganymede.base.registry"

local RECIPE = [[
local gm = require "ganymede"
local function get(i) return { i, 2, 3, 4 }, i %% 3 end
return gm.recipe {
  model = gm.nn.Linear(4, 3), data = { train = { length = 8, get = get }, %s batch_size = 4 },
  loss = "CrossEntropyLoss", optimizer = { type = "SGD", lr = 0.1 }, epochs = 3, %s
}
]]

local function refused(in_data, beside, words, code, flags, count)
  local found = job.run(RECIPE:format(in_data, beside), count or 1, { code = code or 2, flags = flags })
  assert.is_truthy(found.err:find(words, 1, true), found.err)
  assert.is_nil(found.err:find("stack traceback", 1, true), found.err)
end

describe("a function that makes a part of a recipe", function()
  local Linear = gm.nn.Linear
  local wrong = {
    { "models", "model: the function returned nothing; it must be a module", function() end },
    { "models", "model: the function returned {}; it must be a module", function() return {} end },
    { "models", "model: the function returned a tensor", function() return gm.ones { 2 } end },
    { "models", "model: the function returned the class Linear", function() return Linear end },
    { "optimizers", "optimizer: the function returned nothing; it must be an optimizer", function() end },
    { "optimizers", "optimizer: the function returned 1", function() return 1 end },
    { "lr_schedulers", "lr_scheduler: the function returned nothing; it must be a schedule", function() end },
    { "lr_schedulers", "lr_scheduler: the function returned 0.1; it must be a schedule.*LambdaLR",
      function() return 0.1 end },
    { "datasets", "dataset: the function returned nothing; it must be a dataset", function() end },
    { "datasets", "dataset: the function returned 3", function() return 3 end },
  }

  it("is refused by name where it returns something else", function()
    for _, case in ipairs(wrong) do
      assert.error_matches(function() registry[case[1]]:build(case[3]) end, case[2])
    end
  end)

  it("gives what it returns otherwise", function()
    local model = Linear(2, 2)
    local optimizer = gm.optim.SGD({ lr = 0.1 }, model)
    local schedule = gm.lr_scheduler.StepLR({ step_size = 2 }, optimizer)
    local dataset = { length = 1, get = function() return { 1 }, 0 end }
    for kind, object in pairs { models = model, optimizers = optimizer, lr_schedulers = schedule,
      datasets = dataset } do
      assert.equal(object, registry[kind]:build(function() return object end))
    end
  end)

  it("takes no object of another kind for a part", function()
    for _, kind in ipairs { "optimizers", "lr_schedulers" } do
      assert.error_matches(function() registry[kind]:build(Linear(1, 1)) end, "got the object Linear; it must be")
    end
  end)

  it("ends a run with status 2, where the setting would have had no effect", function()
    refused("", "lr_scheduler = function() end", "lr_scheduler: the function returned nothing")
  end)
end)

describe("data of one's own", function()
  -- The first batch of samples that get returns.
  local function first(get, more)
    local dataset = { length = 4, get = get }
    for key, value in pairs(more or {}) do dataset[key] = value end
    return gm.data.loader({ dataset = dataset, batch_size = 4 }):next()
  end

  local function fails(get, words, more)
    assert.error_matches(function() gm.scope(first, get, more) end, words)
  end

  it("keeps no fractions out of labels in silence, also those of tensors", function()
    local function fraction() return { 1 }, gm.tensor { 0.75, 2 } end
    fails(fraction, "y of sample 1 holds 0.75; it is i64 unless the dataset says y_dtype")
    local _, y = first(fraction, { y_dtype = "f32" })
    assert.same({ { 0.75, 2 }, { 0.75, 2 }, { 0.75, 2 }, { 0.75, 2 } }, y:totable())
    local _, labels = first(function(i) return { 1 }, gm.tensor(i) end) -- f32, and whole
    assert.same({ "i64", { 1, 2, 3, 4 } }, { labels:dtype(), labels:totable() })
    fails(function() return { 1 }, gm.tensor { 0 / 0 } end, "y of sample 1 holds nan")
  end)

  it("keeps them out of tokens, too", function()
    fails(function() return { 1, 2.5 }, 0 end, "x of sample 1 holds 2.5; it is i64 unless the dataset says x_dtype",
      { x_dtype = "i64" })
    fails(function() return gm.tensor { 1, 2.5 }, 0 end, "x of sample 1 holds 2.5", { x_dtype = "i64" })
  end)

  it("names the sample whose tensor has another shape, or that is none", function()
    fails(function(i) return gm.ones { i < 3 and 2 or 3 }, 0 end,
      "x of sample 3 has the shape %(3%), that of sample 1 %(2%)")
    fails(function(i) return { 1 }, gm.ones { i < 4 and 1 or 2 } end,
      "y of sample 4 has the shape %(2%), that of sample 1 %(1%)")
    for turn = 0, 1 do
      fails(function(i) return i % 2 == turn and { 1 } or gm.ones { 1 }, 0 end,
        "of samples 1 and 2 one gives x as a tensor, and the other as a number or list")
    end
  end)

  it("that is empty is refused, also for tests", function()
    local empty = "{ length = 0, get = get }"
    refused("test = " .. empty .. ",", "", "data: an epoch has no batch: data.test has no sample")
    refused("drop_last = true,", "", "data.train has 8 samples, fewer than a batch", 2,
      { "--set", "data.batch_size=9" })
  end)

  it("goes through no transform that forgets to return", function()
    for _, kind in ipairs { "transforms", "test_transforms" } do
      refused("test = { length = 8, get = get }, " .. kind .. " = { function(x) return x end, function() end },", "",
        "a transform in Lua (2 of 2) returned nothing; it must return x, or x and y", 1)
    end
  end)

  it("has no sampler whose order is none", function()
    refused("sampler = { order = function() end },", "", "of the sampler must return a list of samples from 1; it "
      .. "returned nothing")
  end)

  it("has no sampler that gives ranks different orders", function()
    local order = "sampler = { order = function(_, _, n) local list = {} for k = 1, n do list[k] = %s end "
      .. "return list end },"
    local own = order:format "gm.context.get_global_rank() == 0 and k or n + 1 - k"
    refused(own, "", "epoch 1: the sampler gave the ranks different orders of the samples", 1, nil, 2)
    local one = order:format "n + 1 - k"
    local want = job.run(RECIPE:format(one, 'dtype = "f64",'), 1, {}).loss
    agree(job.run(RECIPE:format(one, 'dtype = "f64",'), 2, {}).loss, want, 1e-12)
  end)
end)

describe("an epoch", function()
  it("of a sampler has as many steps as the first one", function()
    for way, found in pairs { ["- 3 * epoch"] = "epoch 3 has 1 steps, and the first one 2",
      ["+ 3 * epoch"] = "epoch 2 has 3 steps, and the first one 2" } do
      refused(([[sampler = { order = function(_, epoch, n)
        local list = {}
        for k = 1, n %s do list[k] = (k - 1) %% n + 1 end
        return list
      end },]]):format(way), "", found, 1)
    end
  end)

  -- A loader of two samples a batch that says `says` batches, nil for none, and gives `gives` in the first epoch, or in
  -- each one. seek: it can go to a batch.
  local function fit(says, gives, given, seek)
    local at, reads = 0, 0
    local loader = {
      length = says and function() return says end,
      set_epoch = says and function() at = 0 end,
      seek = seek and function(_, batch) at = batch end,
      next = function()
        at, reads = at + 1, reads + 1
        if reads > 99 then error "it is read for ever" end
        if at <= gives then return gm.ones { 2, 4 }, gm.tensor({ 0, 1 }, { dtype = "i64" }) end
      end,
    }
    local engine, train = gm.initialize { model = gm.nn.Linear(4, 3), criterion = { type = "CrossEntropyLoss" },
      optimizer = { type = "SGD", lr = 0.1 }, train_dataloader = loader }
    given.train_dataloader = train
    gm.Trainer(engine):fit(given)
    return engine.steps_done
  end

  it("of a loader that gives fewer batches than it says, or none, ends the run", function()
    assert.equal(6, fit(3, 3, { epochs = 2 }))
    for _, seek in ipairs { false, true } do
      assert.error_matches(function() fit(4, 3, { epochs = 2 }, seek) end,
        "the training loader gave 3 steps in epoch 1, and its length says 4")
    end
    assert.equal(3, fit(nil, 3, { epochs = 1 }))
    assert.error_matches(function() fit(nil, 3, { max_steps = 9 }) end, "the training loader gave 0 steps in epoch 2")
  end)
end)

describe("a model", function()
  it("whose forward returns nothing is named, and not its loss", function()
    local Forgets = gm.nn.class "SpecForgets"
    function Forgets:build() self.layer = gm.nn.Linear(4, 3) end
    function Forgets:forward(x) self.layer(x) end
    local labels = gm.tensor({ 0, 1 }, { dtype = "i64" })
    assert.error_matches(function()
      gm.nn.CrossEntropyLoss {}(Forgets {}(gm.ones { 2, 4 }), labels)
    end, "CrossEntropyLoss: the model returned nothing; the forward of its class, or the last section, needs a return")
  end)
end)

describe("a hook", function()
  local function wrong(hooks, words, more, code)
    refused("test = { length = 8, get = get },", "hooks = {" .. hooks .. "}, " .. (more or ""), words, code or 1)
  end

  it("of measures names what its function does not return", function()
    local function hook(body)
      return ('{ type = "MetricHook", name = "a", measure = function(o, t) %s end }'):format(body)
    end
    wrong(hook "", "MetricHook a: measure must return the sum over a batch, a number or a tensor of one; it returned "
      .. "nothing")
    wrong(hook 'return "x", 2', 'it returned "x"')
    wrong(hook "return 1, true", "measure must return the number of its terms second, a number or a tensor of one; it "
      .. "returned true")
  end)

  it("has functions for points", function()
    wrong("{ before_train = 3 }", "before_train must be a function(self, trainer); got 3", nil, 2)
  end)

  it("says which loader it evaluates", function()
    wrong("{ after_train_iter = function(_, t) t:evaluate() end }", "trainer:evaluate(loader) needs the loader")
  end)
end)

describe("a metric of one's own", function()
  local function class(name, fields) return gm.metrics.class(name, {}, fields) end
  local function nothing() end

  it("is refused where its fields are none", function()
    assert.error_matches(function() class "SpecNoFields" end, "the third argument is a table of fields: key, terms")
    assert.error_matches(function()
      class("SpecOneTerm", { key = "m", terms = "a", measure = nothing, compute = nothing })
    end, 'metrics.class SpecOneTerm: terms is a list of names; got "a"')
  end)

  it("computes a number and no tensor", function()
    local metric = class("SpecTensor", { key = "m", terms = { "a" }, measure = function() return { a = 3 } end,
      compute = function(_, totals) return gm.ones { 1 } * totals.a[1] end }) {}
    metric:update(gm.ones { 1 }, gm.ones { 1 })
    assert.error_matches(function() metric:value() end, "compute must return a number; it returned a tensor")
  end)
end)

describe("stages of a model that cannot be cut", function()
  local whole = [[
local gm = require "ganymede"
local Net = gm.nn.class "Net"
function Net:build() self.first, self.last = gm.nn.Linear(4, 8), gm.nn.Linear(8, 3) end
%s
return gm.recipe {
  model = Net, data = { train = { length = 8, get = function(i) return { i, 2, 3, 4 }, 1 end }, batch_size = 4 },
  loss = "CrossEntropyLoss", optimizer = { type = "SGD", lr = 0.1 }, parallel = { pipeline = 2 }, num_microbatches = 2,
}
]]

  local function told(method, ...)
    local err = job.run(whole:format(method), 2, { code = 2 }).err
    for _, words in ipairs { ... } do assert.is_truthy(err:find(words, 1, true), err) end
  end

  it("are told what to write, with the model's own parts", function()
    told("function Net:forward(x) return self.last(self.first(x)) end",
      "parallel.pipeline is 2, and every stage holds the whole model, which cannot be cut: Net names no sections (a "
      .. "method `sections`); name them in order", "{ modules = { self.first }, forward = self.first },")
  end)

  it("are told what is wrong with its sections", function()
    told("function Net:sections() return { { modules = { self.first }, forward = self.first } } end",
      "which cannot be cut: no section reads weight of last")
  end)
end)
