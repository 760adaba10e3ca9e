--- Classes of a user's own: a parent of another kind, an option that is declared wrongly and a misspelt field are
--- refused where the class is made (options of a module: where it is first built). They were ignored.
-- sanitizers: no, it holds Lua alone
local gm = require "ganymede"

local made = 0

-- A name that no class has.
local function name()
  made = made + 1
  return "SpecClass" .. made
end

local function refused(words, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "it was taken")
  assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
end

describe("a class of one's own", function()
  it("has a parent of its kind", function()
    refused("its parent must be a class of optimizers; got { state = 1 }", gm.optim.class, name(), {}, { state = 1 })
    refused("its parent must be a class of optimizers; got \"AdamW\"", gm.optim.class, name(), {}, "AdamW")
    refused("its parent must be a class of optimizers", gm.optim.class, name(), {}, gm.nn.Linear)
    refused("its parent must be a class of schedules", gm.lr_scheduler.class, name(), {}, gm.optim.AdamW)
    refused("its parent must be a class of modules; got {}", gm.nn.class, name(), {}, false)
    refused("its parent must be a class of modules", gm.nn.class, name(), gm.optim.AdamW, false)
    assert.is_table(gm.optim.class(name(), {}, gm.optim.AdamW))
    assert.is_table(gm.lr_scheduler.class(name(), {}, gm.lr_scheduler.StepLR))
    assert.is_table(gm.nn.class(name(), gm.nn.Linear, false))
  end)

  local wrong = {
    { "the option 'a' is declared as 5; write a table such as { type", 5 },
    { "the option 'a' is declared with 'defualt', which means nothing (did you mean 'default'?)",
      { type = "number", defualt = 3 } },
    { 'the option \'a\' is declared with the type "strng"; there are any, boolean,', { type = "strng" } },
    { "the option 'a' is declared with the type \"float\"", { type = { "string", "float" } } },
  }

  for _, case in ipairs(wrong) do
    it("declares its options rightly: " .. case[1], function()
      refused(case[1], gm.optim.class, name(), { a = case[2] })
      refused(case[1], gm.lr_scheduler.class, name(), { a = case[2] })
      refused(case[1], gm.hooks.class, name(), { a = case[2] })
      refused(case[1], gm.metrics.class, name(), { a = case[2] },
        { measure = function() end, compute = function() end, key = "k" })
      local Layer = gm.nn.class(name(), nil, false)
      Layer.options = { a = case[2] }
      refused(case[1], Layer, {})
    end)
  end

  it("names the line that makes it", function()
    local ok, err = pcall(function() gm.optim.class(name(), {}, 5) end)
    assert.is_false(ok)
    assert.matches("classes_spec%.lua:%d+: optim.class SpecClass", err)
    ok, err = pcall(function() gm.hooks.class(name(), { a = 5 }) end)
    assert.is_false(ok)
    assert.matches("classes_spec%.lua:%d+: hooks.class SpecClass", err)
  end)

  it("has fields of hooks that are spelt right, and any of its own", function()
    refused("there is no field 'needs_outputs' (did you mean 'needs_output'?)", gm.hooks.class, name(), {},
      { needs_outputs = false })
    assert.equal(7, gm.hooks.class(name(), {}, { colour = 7, needs_output = false, priority = 3 }).colour)
  end)
end)
