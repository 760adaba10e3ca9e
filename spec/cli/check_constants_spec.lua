-- `check` takes what `run` takes: constants that a model makes and reads in its forward pass have their values on the
-- meta device; what depends on data has none, and reading it names the line; datasets in Lua of numbers and tensors.
local support = require "spec.cli.support"
local shell = support.shell

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local head = [[
local gm = require "ganymede"
local ops = gm.ops
local Net = gm.nn.class "Net"
function Net:build() self.head = gm.nn.Linear { inputs = 4, outputs = 3 } end
function Net:forward(x)
BODY
  return self.head(x)
end
return {
  model = function() return Net {} end,
  data = { train = DATA, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 }, steps = 2,
}
]]
local synthetic = [[{ type = "Synthetic", length = 16, shape = { 4 }, classes = 3 }]]

describe("check of a model that makes constants", function()
  local home
  after_each(function() shell.remove(home) end)

  local function recipe(body, data)
    return (head:gsub("%u%u%u%u", { BODY = body, DATA = data or synthetic }))
  end

  -- Both verbs say the same: status 0, and what the recipe printed first.
  local function agree(body, printed, words, data)
    home = support.home(recipe(body, data))
    local checked = support.run(home, { "check", "recipe.lua", unpack(words or {}) })
    assert.equal(0, checked.code, checked.err)
    assert.equal(printed, checked.out:match "^seen\t([^\n]*)", checked.out)
    local ran = support.run(home, { "run", "recipe.lua", "--threads", "1", unpack(words or {}) })
    assert.equal(0, ran.code, ran.err)
    assert.equal(printed, ran.out:match "seen\t([^\n]*)", ran.out)
  end

  it("knows those of gm.tensor, gm.arange, gm.zeros, gm.full, and what set writes", function()
    agree([[
      local t, z = gm.tensor { { 1, 2 }, { 3, 4 } }, gm.zeros { 2 }
      z:set(2, 7)
      print("seen", t:get(2, 1), gm.arange(5)[3]:item(), z:totable()[2], gm.full({ 3 }, 2.5):get(3), gm.ones({}):item())
    ]], "3\t2\t7\t2.5\t1")
  end)

  it("knows what ops make of constants alone, and views of them", function()
    agree([[
      local i = gm.arange(4):to "f32"
      local mask = i:reshape(1, 4):le(i:reshape(4, 1))
      local table_ = gm.tensor { { 0, 1 }, { 2, 3 }, { 4, 5 } }
      local b = gm.zeros { 2, 3 }
      b:narrow(2, 2, 1):fill_(5)
      print("seen", mask:to("f32"):sum():item(), (i * 2 + 1):max(1):item(),
        i:reshape(1, 4):matmul(i:reshape(4, 1)):item(),
        ops.embedding(table_, gm.tensor({ 2 }, { dtype = "i64" })):get(1, 2), b:get(2, 2), b:get(2, 3),
        ops.where(i:gt(1.5), i, -i):sum():item(), i:softmax(1):sum():item() > 0.999)
    ]], "10\t7\t14\t5\t5\t0\t4\ttrue")
  end)

  it("knows them on a rank of many, whole and cut", function()
    agree([[
      local t = gm.arange(8):redistribute { cuts = { { "data" } } }
      print("seen", gm.arange(3)[3]:item(), #t:shape())
    ]], "2\t1", { "-n", "2" })
  end)

  for what, body in pairs {
    data = "local top = x:get(1, 1)", ["what data went into"] = "local t = gm.zeros { 4 }; t:copy_(x[1]); t:get(1)",
    ["a random number"] = "gm.uniform({}, { seed = 1 }):item()",
    ["a parameter"] = "local w = self.head.weight:get(1, 1)",
    ["what was written in part"] = "local t = gm.uniform({ 4 }, { seed = 1 }); t:narrow(1, 1, 2):fill_(5); t:get(4)",
    ["a constant above 64 KiB"] = "gm.zeros({ 20000 }):get(1)",
  } do
    it("has no values of " .. what .. ", and names the line", function()
      home = support.home(recipe(body))
      local result = support.run(home, { "check", "recipe.lua" })
      assert.are_not.equal(0, result.code)
      has(result.err, "recipe.lua:6: this tensor has no values here")
    end)
  end

  it("forgets what other ranks would have changed", function()
    home = support.home(recipe "local t = gm.ones {}; gm.comm.all_reduce(t, 'DATA'); t:item()")
    local result = support.run(home, { "check", "recipe.lua", "-n", "2" })
    has(result.err, "recipe.lua:6: this tensor has no values here")
  end)

  for what, get in pairs {
    ["numbers and lists"] = "return { i, 0, 1, 2 }, i % 3",
    tensors = "return require('ganymede').tensor { i, 0, 1, 2 }, require('ganymede').tensor(i % 3, { dtype = 'i64' })",
  } do
    it("takes a dataset in Lua of " .. what, function()
      agree("print('seen', x:size(1))", "4", nil,
        "function() return { length = 16, get = function(i) " .. get .. " end } end")
    end)
  end

  it("says the same of a batch of a Lua dataset as of any data", function()
    home = support.home(recipe("x:get(1, 1)",
      "function() return { length = 16, get = function(i) return { i, 0, 1, 2 }, 1 end } end"))
    has(support.run(home, { "check", "recipe.lua" }).err, "recipe.lua:6: this tensor has no values here")
  end)
end)
