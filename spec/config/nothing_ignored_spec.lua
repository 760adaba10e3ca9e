-- Nothing that a user passes is ignored: every function and class that the program exports refuses a misspelt option
-- and an argument too many, and names the word. A function that is new is in here without a line: what is listed are
-- modules that users do not call, and functions that take any number of arguments.
local core = require "ganymede.core"
local fails = require "spec.support.fails"
local gm = require "ganymede"
local public = require "ganymede.base.public"
local signature = require "ganymede.base.signature"


local WORD = "no_such_word_" -- in no name of ours

-- Values by which a call gets past the checks of the arguments before; none is looked at when the call is refused.
local function filler(argument, tensor)
  local kind = argument.types[1]
  local made = { tensor = tensor, object = tensor, number = 1, integer = 1, string = "text", boolean = true, table = {},
    ["function"] = function() end, any = {}, module = gm.nn.Identity() }
  return made[kind]
end

local function is_options(argument) return argument.name:match "opt" or argument.name == "given" end

-- fn(fillers..., the word) must raise an error that has it.
local function refuses_surplus(name, fn, sig)
  local arguments = {}
  for i, argument in ipairs(sig.arguments) do
    if not argument.optional then arguments[i] = filler(argument, gm.ones { 2 }) end
  end
  arguments[sig.most + 1] = WORD
  local ok, why = pcall(fn, unpack(arguments, 1, sig.most + 1))
  assert.is_false(ok, name .. " takes an argument too many")
  assert.is_truthy(tostring(why):find(WORD, 1, true), name .. " does not name it: " .. tostring(why))
end

local function refuses_option(name, fn, sig, at)
  local arguments = {}
  for i, argument in ipairs(sig.arguments) do arguments[i] = filler(argument, gm.ones { 2 }) end
  arguments[at] = { [WORD] = true }
  local ok, why = pcall(fn, unpack(arguments, 1, #sig.arguments))
  assert.is_false(ok, name .. " takes a misspelt option")
  assert.is_truthy(tostring(why):find(WORD, 1, true), name .. " does not name it: " .. tostring(why))
end

-- Each function of a table: declared, and refusing.
local function check_all(prefix, list, left_out)
  local count = 0
  for key, fn in pairs(list) do
    local name = prefix .. key
    if type(fn) == "function" and key:sub(1, 2) ~= "__" and not left_out[name] then
      local sig = signature.of(fn)
      assert.is_truthy(sig, name .. " is not declared: ganymede.base.signature")
      assert.is_falsy(sig.name:find("?", 1, true), name)
      if sig.rest then error(name .. " takes any number of arguments: list it with what it refuses") end
      refuses_surplus(name, fn, sig)
      if sig.options_at then refuses_option(name, fn, sig, sig.options_at) end
      count = count + 1
    end
  end
  return count
end

-- ---------------------------------------------------------------- functions of C

-- Any number of arguments; what they refuse is below.
local variadic = { ["core.scope_close"] = true, ["core.get"] = true, ["core.set"] = true, ["ops.reshape"] = true,
  ["ops.expand"] = true, ["ops.permute"] = true, ["gm.scope"] = true, ["gm.no_grad"] = true, ["gm.enable_grad"] = true,
  ["ops.einsum"] = true, ["gathered.gathered"] = true, ["recompute.recompute"] = true,
  ["registry:build"] = true, ["recipe.run"] = true, ["engine.initialize"] = true,
  ["launch.launch"] = true, ["launch.launch_from_torch"] = true, ["launch.launch_from_slurm"] = true,
  ["launch.launch_from_openmpi"] = true }

describe("functions of C", function()
  it("refuse an argument too many and a misspelt option, ops", function()
    assert.is_true(check_all("ops.", gm.ops, variadic) > 50)
  end)

  it("refuse them, all others of ganymede.core", function()
    assert.is_true(check_all("core.", core, variadic) > 200)
  end)

  it("refuse what cannot be a size where any number of them may stand", function()
    local x = gm.ones { 2, 3 }
    for _, name in ipairs { "reshape", "expand", "permute" } do
      fails(WORD, gm.ops[name], x, { [WORD] = 1 })
      fails("'" .. name .. "'", gm.ops[name], x, { 3, 2 }, 1)
      fails(WORD, gm.ops[name], x, 2, WORD)
    end
    fails(WORD, gm.ops.einsum, "ij->" .. WORD, x)
    fails(WORD, gm.ops.einsum, "ij,ij->i", x, { [WORD] = 1 })
    fails("1 operand", gm.ops.einsum, "ij->i", x, x)
    fails(WORD, core.get, x, 1, WORD)
    fails(WORD, core.set, x, 1, 1, WORD)
  end)

  it("refuse options without a meaning: fractions of whole numbers, what is not finite or out of range", function()
    local x, target = gm.ones { 2, 2 }, gm.zeros({ 2 }, { dtype = "i64" })
    fails("'ignore_index' must be an integer; got 0.5", gm.ops.cross_entropy, x, target, { ignore_index = 0.5 })
    for _, alpha in ipairs { 0 / 0, 1 / 0, -1 / 0 } do
      fails("'alpha' must be a number; got " .. tostring(alpha), gm.ops.matmul, x, x, { alpha = alpha })
    end
    fails("label_smoothing", gm.ops.cross_entropy, x, target, { label_smoothing = 1 })
    local q = gm.ones { 1, 2, 1, 4 }
    fails("[0, 1)", gm.ops.attention, q, q, q, { dropout = 1 })
    fails("'rows' must be an integer, at least 1; got -1", gm.ops.linear_cross_entropy, x, x, nil, target,
      { rows = -1 })
  end)

  it("have metatables' methods that refuse too", function()
    local control = core.step_control()
    fails(WORD, control.add, control, 1, WORD)
    fails("control:decide(norm", function() control:decide() end)
    control:close()
  end)
end)

-- ---------------------------------------------------------------- functions of Lua

describe("functions between ranks", function()
  it("refuse a value of a wrong type at each place", function()
    local comm, count = require "ganymede.job.comm", 0
    for name, fn in pairs(comm) do
      local sig = signature.of(fn)
      for i, argument in ipairs(sig.arguments) do
        local arguments = {}
        for k, other in ipairs(sig.arguments) do arguments[k] = filler(other, gm.ones { 2 }) end
        arguments[i] = coroutine.create(fn) -- of a type that no argument has
        if argument.types[1] ~= "any" then
          fails(("argument #%d to 'comm.%s' (%s must be"):format(i, name, argument.name), fn,
            unpack(arguments, 1, sig.most))
          count = count + 1
        end
      end
    end
    assert.is_true(count > 30)
  end)
end)

-- ---------------------------------------------------------------- tensors

describe("tensors", function()
  local x = gm.ones { 2, 3 }

  it("have methods that are all declared and refuse", function()
    local methods, left_out = require("ganymede.tensor").methods, {}
    for name in pairs(variadic) do left_out[name:gsub("^%a+%.", "t:")] = true end
    assert.is_true(check_all("t:", methods, left_out) > 55)
  end)

  it("are not summed along no dimension because of a name", function()
    fails("'dim'", function() return (x:sum { dim = 1 }) end)
    fails("'dim'", function() return (x:mean { dim = 1 }) end)
    fails("gather takes 0 arguments; got 2", function() return (x:gather(1, x)) end)
    fails("ops.embedding(table, index)", function() return (x:gather(1, x)) end)
    assert.same({ 2, 2, 2 }, x:sum({ 1 }):totable())
    assert.equal(6, x:sum(nil, nil):item()) -- nil says nothing
    assert.equal(6, x:sum(nil, nil, nil):item())
  end)

  it("are made with the options that there are", function()
    fails("'dtyp' (did you mean 'dtype'?)", gm.zeros, { 2 }, { dtyp = "f64" })
    fails("'sed' (did you mean 'seed'?)", gm.uniform, { 2 }, { sed = 1 })
    fails("gm.zeros({ 2, 3 })", gm.zeros, 2, 3)
    local nine = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }
    for name, call in pairs { ["gm.zeros"] = function() return (gm.zeros(nine)) end,
      ["gm.tensor"] = function() return (gm.tensor({ 1 }, { shape = nine })) end } do
      fails("nothing_ignored_spec.lua:", call) -- the line of the call
      fails(name .. ": a tensor has at most 8 dimensions; the shape has 9", call)
    end
    assert.equal(8, gm.zeros({ 1, 1, 1, 1, 1, 1, 1, 1 }):dim())
    fails("truncated", gm.normal, { 2 }, { low = 1 })
    assert.same({ 2, 2 }, gm.zeros({ 2, 2 }, { dtype = "f64" }):shape())
  end)

  it("say what is wrong by the name that the user wrote, whatever the call", function()
    local function said(fn, ...) return tostring(select(2, pcall(fn, ...))) end
    assert.matches("'sum' %(dimension 7", said(x.sum, x, 7))
    assert.matches("^spec[^\n]*: mean: x is i64", said(gm.ops.mean, gm.zeros({ 2 }, { dtype = "i64" })))
    assert.matches("'fill_' %(value must be a number; got a tensor%): fill_%(", said(x.fill_, x, x))
    assert.matches("bad argument #1 to 'to' %(there is no dtype", said(function()
      local y = x:to "f23" -- as a method the tensor is not counted
      return y
    end))
    assert.matches("bad argument #1 to 'sum' %(dim must be", said(function()
      local y = x:sum "rows"
      return y
    end))
    assert.matches("bad argument #1 to 'transpose' %(a must be", said(function()
      local y = x:transpose("rows", 2)
      return y
    end))
    assert.matches("bad argument #2 to 'transpose' %(a must be", said(x.transpose, x, "rows", 2))
    for _, name in ipairs { "zeros", "ones", "empty", "uniform", "normal" } do
      assert.matches("nothing_ignored_spec.lua:%d+: gm." .. name .. ": the shape .*a list has no field 'x'",
        said(function()
          local y = gm[name] { 2, x = 3 }
          return y
        end))
    end
    assert.matches("option 'dtype' must be one of .*; got 5", said(gm.zeros, { 2 }, { dtype = 5 }))
    assert.matches("^attention: option 'causal' must be a boolean; got \"yes\"", said(gm.ops.attention,
      gm.ones { 1, 2, 1, 4 }, gm.ones { 1, 2, 1, 4 }, gm.ones { 1, 2, 1, 4 }, { causal = "yes" }))
    assert.matches("'casual' %(did you mean 'causal'%?%)", said(gm.ops.attention, x, x, x, { casual = true }))
  end)
end)

-- ---------------------------------------------------------------- functions of Lua

-- Public modules that hand on what they are given, or whose functions are looked at elsewhere in this file.
local elsewhere = {}
for name in ([[colossal core config engine gradient_handlers log models nn precision schedules trainer version hooks
  lr_scheduler]]):gmatch "%S+" do elsewhere["gm." .. name] = true end

-- module: a table of functions; the classes that it makes objects of are in `classes`.
local function modules()
  local list = { lr_scheduler = require "ganymede.lr_scheduler.base", init = gm.nn.init,
    tensor = require "ganymede.tensor", hooks = require "ganymede.hooks.base",
    pipeline = require "ganymede.train.pipeline_model", energy = require "ganymede.observe.energy" }
  for name, path in pairs(public.modules) do
    if not elsewhere["gm." .. name] then list[name] = require(path) end
  end
  for _, entry in pairs(public.from) do
    local name = entry[1]:match "^ganymede%.%l+%.(%l+)$"
    if name then list[name] = require(entry[1]) end
  end
  return list
end

-- What a constructor or function makes of a table is checked inside of it, before anything else happens.
local inside = { -- module.function -> which argument
  ["engine.initialize"] = 1, ["fit.fit"] = 2, ["gradcheck.gradcheck"] = 3,
  ["pipeline.build_pipeline_model"] = 2, ["checkpoint.start"] = 3, ["checkpoint.save"] = 3, ["checkpoint.open"] = 2,
  ["write.save"] = 3, ["data.loader"] = 1, ["data.write_tokens"] = 3, ["profile.attach"] = 2, ["trace.attach"] = 2,
}

describe("modules that users call", function()
  it("have functions that are all declared and refuse an argument too many", function()
    local count = 0
    for name, module in pairs(modules()) do
      assert.is_true(type(module) == "table", name .. " is a function: list it as internal, or declare it")
      count = count + check_all((name == "tensor" and "gm" or name) .. ".", module, variadic)
    end
    assert.is_true(count > 100, tostring(count))
  end)

  it("refuse a misspelt option, named in a table that they check themselves", function()
    local found = modules()
    for path, at in pairs(inside) do
      local module, name = path:match "^(.-)%.(.*)$"
      local fn = found[module][name]
      refuses_option(path, fn, signature.of(fn), at)
    end
  end)

  it("refuse settings of gm.launch that are known ones with a typing error", function()
    local config = require "ganymede.config"
    for wrong, right in pairs { sead = "seed", gradient_acumulation = "gradient_accumulation", dtipe = "dtype" } do
      fails(("'%s'"):format(right), config.resolve, { [wrong] = 1 }, { in_code = true })
    end
    assert.equal(3, config.resolve({ my_own = 3 }, { in_code = true }).config.my_own)
  end)

  it("refuse one of communication", function()
    for name, fn in pairs(gm.comm) do
      local sig = signature.of(fn)
      local last = sig.arguments[#sig.arguments]
      if last and last.name == "options" then refuses_option("comm." .. name, fn, sig, #sig.arguments) end
    end
  end)

  it("have no argument of options that nobody checks", function()
    for name, module in pairs(modules()) do
      for key, fn in pairs(module) do
        local sig = type(fn) == "function" and signature.of(fn)
        for i, argument in ipairs(sig and sig.arguments or {}) do
          local path = name .. "." .. key
          assert.is_truthy(not is_options(argument) or sig.options_at == i or inside[path] == i or name == "comm"
            or name == "init" or path == "data.dataset" or path == "lr_scheduler.class" or path == "hooks.class"
            or path == "optim.class" or path == "metrics.class" or path == "context.load_config"
            or path == "launch.launch", path .. ": " .. argument.name)
        end
      end
    end
  end)

  it("have initializers that refuse one", function()
    for name, make in pairs(gm.nn.init) do
      if gm.registry.initializers:has(name) then fails(WORD, make, { [WORD] = 1 }) end
    end
  end)
end)

describe("objects", function()
  local classes = { engine = require("ganymede.train.engine").Engine,
    trainer = require("ganymede.train.trainer").Trainer,
    module = gm.nn.Module, list = gm.nn.ModuleList, loader = require "ganymede.data.loader",
    steps = require "ganymede.train.step_loader",
    context = getmetatable(require("ganymede.job.context").current()).__index,
    registry = getmetatable(gm.registry.layers).__index, SGD = gm.optim.SGD,
    dataset = getmetatable(gm.data.Synthetic {}).__index,
    scheduler = getmetatable(gm.lr_scheduler.StepLR).__index }
  -- what classes below override with more arguments, or is called with what the user's own code takes
  local overridden = { ["registry:build"] = true, ["module:build"] = true, ["module:forward"] = true,
    ["list:build"] = true, ["list:forward"] = true, ["list:sections"] = true, ["scheduler:build"] = true,
    ["scheduler:momentum_at"] = true, ["trainer:call"] = true, ["SGD:attrs"] = true, ["SGD:set_momentum"] = true,
    ["SGD:takes_rows"] = true }

  for name, class in pairs(classes) do
    it("have methods that are declared and refuse an argument too many, " .. name, function()
      assert.is_true(check_all(name .. ":", class, overridden) >= (name == "SGD" and 0 or 1))
    end)
  end

  it("are called with what forward takes", function()
    local layer = gm.nn.Linear(2, 3)
    fails(WORD, layer, gm.ones { 1, 2 }, WORD)
    fails(WORD, gm.nn.ReLU(), gm.ones { 1, 2 }, WORD)
    fails(WORD, gm.nn.MSELoss {}, gm.ones { 1, 2 }, gm.ones { 1, 2 }, nil, nil, nil, WORD)
    assert.same({ 1, 3 }, layer(gm.ones { 1, 2 }, nil):shape())
  end)
end)

-- ---------------------------------------------------------------- classes

local kinds = { "layers", "models", "losses", "optimizers", "lr_schedulers", "datasets", "transforms", "samplers",
  "gradient_handlers", "schedules", "hooks", "routers" }

describe("classes", function()
  for _, kind in ipairs(kinds) do
    for _, name in ipairs(gm.registry[kind]:names()) do
      local class = gm.registry[kind]:get(name)
      if type(class) == "table" then
        it(("refuse a misspelt option and an argument too many, %s %s"):format(kind, name), function()
          fails(WORD, class, { [WORD] = 1 }, kind == "optimizers" and { gm.ones { 2 } } or nil)
          fails(WORD, class, {}, nil, nil, WORD)
        end)
      end
    end
  end

  it("take PyTorch's positions, or refuse with the table that would be right", function()
    assert.is_false(gm.nn.Linear(2, 3, false).opt.bias)
    assert.equal(0, gm.nn.Embedding(10, 4, 0).opt.padding_index)
    assert.same({ 0, 0, 0, 0 }, gm.nn.Embedding(10, 4, 0).weight:select(1, 1):totable())
    fails("Linear { inputs = 2, outputs = 3, bias = true, ... }", gm.nn.Linear, 2, 3, true, "gelu")
    fails("GELU { ... }", gm.nn.GELU, "tanh")
    fails("nothing after it; got 3", gm.nn.Linear, { inputs = 2, outputs = 3 }, 3)
    fails("nothing after it; got 3", gm.nn.Sequential, { gm.nn.ReLU() }, 3)
    for _, name in ipairs(gm.registry.layers:names()) do
      local class = gm.registry.layers:get(name)
      if type(class) == "table" and not class.each then -- lists take any number of layers
        local given = {}
        for i = 1, #(class.positional or {}) do given[i] = 1 end
        given[#given + 1] = WORD
        fails(WORD, class, unpack(given))
      end
    end
  end)
end)
