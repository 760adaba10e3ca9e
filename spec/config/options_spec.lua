--- Options, registries and failures: what every module leans on.
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"

describe("options", function()
  local spec = {
    inputs = { type = "integer", min = 1, doc = "width" },
    rate = { type = "number", above = 0, max = 1, default = 0.5 }, bias = { type = "boolean", default = true },
    mode = { type = "string", one_of = { "ring", "ulysses" }, optional = true },
    act = { type = { "string", "function" }, optional = true },
  }

  it("fills defaults and copies", function()
    local given = { inputs = 3 }
    local opt = options.check("Linear", spec, given)
    assert.same({ inputs = 3, rate = 0.5, bias = true }, opt)
    assert.same({ inputs = 3 }, given)
  end)

  it("sorts keys of all kinds, numbers before strings", function()
    local keys = options.sorted_keys { ["1a"] = 1, [10] = 1, [2] = 1, ["-"] = 1, [true] = 1, [false] = 1 }
    assert.same({ false, true, 2, 10, "-", "1a" }, keys)
  end)

  local wrong = {
    { { input = 3 }, "Linear has no option 'input' (did you mean 'inputs'?)" },
    { { inputs = 3, padding = 1 }, "Linear has no option 'padding'; there are act, bias, inputs, mode, rate" },
    { { inputs = 0 }, "option 'inputs' must be an integer, at least 1; got 0" },
    { { inputs = 1.5 }, "got 1.5" }, { { inputs = 2 ^ 60 }, "must be an integer" }, { { inputs = 0 / 0 }, "got nan" },
    { { inputs = 1, rate = 0 }, "above 0" }, { { inputs = 1, rate = 1.01 }, "at most 1" },
    { { inputs = 1, rate = math.huge }, "must be a number" },
    { { inputs = 1, mode = "rng" }, "did you mean 'ring'?" }, { { inputs = 1, bias = 1 }, "a boolean; got 1" },
    { { inputs = 1, act = 3 }, "a string or a function" }, { {}, "option 'inputs' is missing: width" },
    { { inputs = 1, 7 }, "has no option [1]" }, { "x", "takes a table of options" },
  }
  for _, case in ipairs(wrong) do
    it("says: " .. case[2], function()
      local ok, message = pcall(options.check, "Linear", spec, case[1])
      assert.is_false(ok)
      assert.is_truthy(message:find(case[2], 1, true), message)
    end)
  end

  it("take no field and no hole in a list, wherever an option is one", function()
    local known = { size = { type = { "integer", "list" }, min = 1 } }
    for _, given in ipairs { 3, { 2, 2 }, {}, { { 1, 2 }, 3 } } do
      assert.same(given, options.check("Pool", known, { size = given }).size)
    end
    for why, given in pairs { ["a list has no field 'x'"] = { 2, 2, x = 2 },
      ["a list has no holes"] = { 1, nil, 3 } } do
      assert.error_matches(function() options.check("Pool", known, { size = given }) end,
        "Pool: option 'size' must be an integer or a list, at least 1; got .*; " .. why)
    end
  end)

  it("raises at the line of whoever calls the caller", function()
    local function layer(given)
      local opt = options.check("Linear", spec, given)
      return opt
    end
    local line = debug.getinfo(1, "l").currentline + 1
    local ok, message = pcall(function() local l = layer { inputs = 0 } return l end)
    assert.is_false(ok)
    assert.is_truthy(message:find("options_spec.lua:" .. line .. ":", 1, true), message)
  end)

  it("finds the nearest name, if any is near", function()
    local names = { "interval", "lr", "momentum", "weight_decay" }
    assert.equal("weight_decay", options.nearest("wieght_dacay", names))
    assert.equal("interval", options.nearest("Interval", names))
    assert.is_nil(options.nearest("batch", names))
    assert.equal("label_smoothing", options.nearest("smoothing", { "label_smoothing_of_all", "label_smoothing" }))
    assert.is_nil(options.nearest("xy", { "ab" })) -- two edits, but nothing of it would remain
  end)

  it("shows what differs from the default, sorted", function()
    assert.equal(" { inputs = 3, rate = 0.25 }", options.show(spec, { rate = 0.25, inputs = 3, bias = true }))
    assert.equal("", options.show(spec, { bias = true }))
  end)
end)

describe("a registry", function()
  local shelf
  before_each(function()
    shelf = registry.new "things"
    shelf:register("Box", function(opt, more) return { opt = opt, more = more } end)
  end)

  it("builds from a table without its type, a name, a function, or gives an object back", function()
    local cfg = { type = "Box", size = 3 }
    assert.same({ opt = { size = 3 }, more = "m" }, shelf:build(cfg, "m"))
    assert.equal("Box", cfg.type)
    assert.same({ opt = {} }, shelf:build "Box")
    assert.equal("made", shelf:build(function() return "made" end))
    local object = setmetatable({}, {})
    assert.equal(object, shelf:build(object))
  end)

  it("refuses duplicates, unknown names and tables without a type", function()
    assert.error_matches(function() shelf:register("Box", print) end, "'Box' is registered already")
    assert.error_matches(function() shelf:get "Bx" end, "no type 'Bx' %(did you mean 'Box'%?%)")
    assert.error_matches(function() shelf:build { size = 1 } end, "has no 'type'; there are Box")
    assert.error_matches(function() shelf:register("Ball", 3) end, "must be a class or a function")
  end)
end)

describe("a failure", function()
  it("carries its status through pcall; anything else means 1", function()
    local ok, err = pcall(failure, 5, "file %s is short", "x%d")
    assert.is_false(ok)
    assert.equal(5, failure.code(err))
    assert.equal("file x%d is short", failure.text(err))
    assert.equal("50 % of it", failure.text(failure.new(1, "50 % of it")))
    for _, other in ipairs { "text", { exit_code = 77 }, { exit_code = "2" }, 3 } do
      assert.equal(1, failure.code(other))
    end
    assert.equal(1, failure.code(nil))
    assert.is_string(failure.text(nil))
  end)

  it("has one of the statuses that docs/command_line.md lists", function()
    local listed, taken = {}, {}
    local file = assert(io.open "docs/command_line.md")
    local rows = file:read "*a":match "\n## Exit status\n(.-)\n\n%a"
    file:close()
    for status in rows:gmatch "\n| (%d+) |" do listed[#listed + 1] = tonumber(status) end
    for status = 1, 255 do
      if pcall(failure.new, status, "text") then taken[#taken + 1] = status end
    end
    assert.equal(0, table.remove(listed, 1)) -- done: no failure
    assert.same(listed, taken)
  end)

  it("that ends the run is told from the mistakes that code explains", function()
    for _, err in ipairs { failure.new(7, "too long"), failure.new(75, "saved"), failure.new(130, "stopped"),
                           failure.new(143, "stopped"), failure.new_peer(1, "rank 2 failed") } do
      local _, passed = pcall(failure.let_stops_pass, err)
      assert.equal(err, passed)
    end
    for _, err in ipairs { "text", failure.new(2, "wrong"), failure.new(8, "diverged"), { exit_code = 130 }, 3 } do
      failure.let_stops_pass(err)
    end
    failure.let_stops_pass(nil)
  end)

  it("keeps the traceback of the place where it was raised, through protected calls on the way", function()
    local function deepest() failure(2, "wrong") end
    local function middle() failure.protect(function() end, function() local x = deepest() return x end) end
    local ok, err = xpcall(function() local x = middle() return x end, failure.handler)
    assert.is_false(ok)
    local line = debug.getinfo(deepest, "S").linedefined
    assert.is_truthy(failure.traceback(err):find("options_spec.lua:" .. line .. ":", 1, true), failure.traceback(err))
    assert.equal("", failure.traceback(failure.new(2, "another")))
  end)

  it("runs the end of a protected call, and hands results on, nil included", function()
    local ended = 0
    local function finish() ended = ended + 1 end
    assert.same({ 3, n = 3 }, (function(...) return { [1] = 3, n = select("#", ...) } end)(
      failure.protect(finish, function(...) return ... end, 3, nil, nil)))
    pcall(failure.protect, finish, error, "x")
    assert.equal(2, ended)
  end)
end)
