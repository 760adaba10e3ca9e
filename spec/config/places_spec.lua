--- Where a mistake was made: public functions called with one wrong argument from a file of a user. What the user then
-- reads begins with that file and line, and names no line of Ganymede's own.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local shell = require "spec.support.shell"

-- Each line is a mistake of its own.
local mistakes = [=[
local e = engine() e:backward(3)
local e = engine() e:backward(e(x))
local e = engine() e:backward(gm.ones {})
local e = engine() e:backward_by_grad(e(x), gm.ones { 3 })
local e = engine() e(gm.ones { 2, 5 })
local e = engine() e()
local e = engine() e("x")
local e = engine() e:criterion(e(x), gm.ones { 3 })
local e = engine() e:criterion(e(x), ids({ 0, 7 }))
local e = engine() e:criterion(e(x))
engine():step()
engine():execute_schedule(3)
engine():set_steps("a")
engine():gradient_norm("a")
gm.initialize { model = 3 }
gm.initialize { model = {} }
gm.initialize { model = mlp(), train_dataloader = {} }
gm.initialize { model = mlp(), test_dataloader = { next_step = print } }
engine():announce("a")
gm.initialize { model = mlp(), critrion = 1 }
gm.initialize { model = mlp(), optimizer = { type = "SDG" } }
gm.initialize { model = mlp(), optimizer = { type = "SGD", lrr = 1 } }
gm.initialize { model = mlp(), criterion = { type = "Nope" } }
gm.initialize { model = mlp(), lr_scheduler = { type = "StepLR", step_siz = 1 } }
gm.initialize { model = mlp(), lr_scheduler = { type = "CosineAnnealingLR" } }
local m = mlp(); m:freeze(); gm.initialize { model = m }
gm.initialize { model = mlp(), zero = 7 }
gm.initialize { model = mlp(), num_microbatches = 3, schedule = "nope" }
gm.initialize { model = mlp(), gradient_handler = { { type = "no" } } }
mlp()(gm.ones { 2, 5 })
nn.Linear { inputs = "a", outputs = 3 }
nn.Linear { inputs = 3 }
nn.Linear(3, -1)
nn.Embedding(4, 3)(ids({ 0, 9 }))
nn.Embedding(4, 3)(gm.ones { 2 })
nn.Embedding { count = 4, width = 3, padding_index = 9 }
nn.PositionEmbedding(4, 3)(gm.ones { 1, 9, 3 })
nn.MultiHeadAttention { width = 8, heads = 2 }(gm.ones { 2, 8 })
nn.MultiHeadAttention { width = 8, heads = 3 }
nn.MultiHeadAttention { width = 8, heads = 2 }(gm.ones { 1, 2, 8 }, gm.ones { 3 })
nn.Conv2d { in_channels = 3, out_channels = 4, kernel_size = 3 }(gm.ones { 1, 2, 8, 8 })
nn.Conv2d { in_channels = 3, out_channels = 4, kernel_size = 3 }(gm.ones { 1, 3, 2, 2 })
nn.Conv2d { in_channels = 3, out_channels = 4, kernel_size = 3, groups = 2 }
nn.LayerNorm(4)(gm.ones { 2, 5 })
nn.RMSNorm(4)(gm.ones { 2, 5 })
nn.GroupNorm { groups = 3, channels = 4 }
nn.BatchNorm2d(3)(gm.ones { 2, 3 })
nn.Dropout(2)
nn.Sequential { 3 }
nn.Sequential { nn.Linear(2, 3), nn.Linear(4, 5) }(gm.ones { 1, 2 })
nn.CrossEntropyLoss()(gm.ones { 2, 3 }, ids({ 0 }))
nn.CrossEntropyLoss()(gm.ones { 2, 3 })
nn.CrossEntropyLoss()(gm.ones { 2, 3 }, gm.ones { 2 })
nn.CrossEntropyLoss()(gm.ones { 2, 3 }, ids({ 0, 3 }))
nn.MSELoss()(gm.ones { 2, 3 }, gm.ones { 2, 4 })
nn.L1Loss()(gm.ones { 2, 3 }, gm.ones { 2, 4 })
nn.BCEWithLogitsLoss()(gm.ones { 2, 3 }, gm.ones { 2, 4 })
gpt()(ids({ { 1, 9 } }))
gpt()(ids({ { 1, 2, 3, 4, 5, 6 } }))
gm.models.GPT { vocabulary = 8, layer = 1 }
gm.models.MLP { inputs = 4, hidden = { 3 }, classes = 2 }(gm.ones { 2, 5 })
gm.models.MLP { inputs = 4, hidden = { "a" }, classes = 2 }
vit()(gm.ones { 1, 3, 9, 9 })
gm.optim.SGD { lr = 0.1 }
gm.optim.SGD({ lr = 0.1 }, {})
gm.optim.SGD({ lr = 0.1 }, { 3 })
gm.optim.SGD({ lr = -1 }, mlp())
gm.optim.SGD({ lr = 1, nesterov = true }, mlp())
gm.optim.SGD({ lr = 1, dampening = 0.5 }, mlp())
gm.optim.Adam({ betas = { 1, 2 } }, mlp())
gm.optim.Adam({ betas = { 0.1, 0.2, 0.3 } }, mlp())
gm.optim.AdamW({ groups = { { match = "zzz" } } }, mlp())
gm.optim.AdamW({ groups = { { lr = 1 } } }, mlp())
gm.optim.AdamW({}, { { params = mlp(), lrr = 1 } })
gm.optim.AdamW({ layer_decay = 0.5 }, { gm.ones({ 2 }, { requires_grad = true }) })
gm.optim.SGD({ lr = 1 }, mlp()):step { lrr = 1 }
gm.optim.SGD({ lr = 1 }, mlp()):set_momentum(0.5)
gm.optim.LARS({ min_trust = 2, max_trust = 1 }, mlp())
gm.optim.Muon({ adamw = { lrr = 1 } }, mlp())
gm.lr_scheduler.StepLR { step_size = 0 }
gm.lr_scheduler.MultiStepLR { milestones = { "a" } }
gm.lr_scheduler.LambdaLR { lr_lambda = function() return "a" end }:lr(3)
gm.lr_scheduler.OneCycleLR { total_steps = 10, pct_start = 0.1 }
gm.lr_scheduler.StepLR { step_size = 1 }:load_state { type = "x" }
gm.data.dataset { type = "Nope" }
gm.data.dataset(3)
gm.data.loader { dataset = { type = "Synthetic", length = 8, shape = { 4 } }, batch_size = 0 }
gm.data.loader { batch_size = 3 }
points():get(99)
points():get(0)
gm.data.dataset { type = "Synthetic", length = 8, shape = { 4 }, transforms = { { type = "Nope" } } }
gm.tensor { { 1, 2 }, { 3 } }
gm.tensor { "a" }
gm.zeros { -1 }
gm.zeros({ 1 }, { dtype = "f99" })
local _ = x:matmul(gm.ones { 3, 3 })
local _ = x + gm.ones { 3 }
local _ = x:reshape(3, 3)
local _ = x:get(9, 9)
local _ = gm.cat({ x, gm.ones { 3, 5 } }, 1)
local _ = gm.einsum("ab,bc->ac", x, gm.ones { 3, 3 })
gm.ones {}:backward()
local _ = gm.ops.linear(x, gm.ones { 2, 7 })
gm.scope(3)
local t; gm.scope(function() t = gm.ones { 2 } end); local _ = t:sum()
gm.no_grad(3)
gm.recipe(3)
gm.checkpoint.save(3)
gm.trainer(3)
gm.trainer(engine()):fit {}
gm.trainer(engine()):fit { train_dataloader = loader(), hooks = { 3 } }
gm.trainer(engine()):fit { train_dataloader = loader(), hooks = { { type = "NoHook" } } }
gm.trainer(engine()):fit { train_dataloader = loader(), epochs = 0 }
gm.trainer(engine()):remove_hook "x"
mlp():load_state_dict { weight = 3 }
local c = nn.class "Foo2"; c {}(x)
local _ = x:nope()
gm.lora(mlp(), { rank = 0 })
gm.lora(mlp(), { rank = 2, targets = { "zzz" } })
gm.freeze(mlp(), { "zzz" })
gm.metrics.accuracy(3)
gm.set_default_dtype "x"
gm.custom {}
gm.gradcheck(3)
gm.hooks.class(3)
gm.hooks.CheckpointHook { intervl = 3 }
gm.hooks.CheckpointHook { mode = "max" }
]=]

local head = [=[
local gm = require "ganymede"
local nn = gm.nn
local x = gm.ones { 2, 4 }
local function mlp() return nn.Linear(4, 3) end
local function points() return gm.data.dataset { type = "Synthetic", length = 8, shape = { 4 }, classes = 3 } end
local function loader() return gm.data.loader { dataset = points(), batch_size = 4 } end
local function ids(t) return gm.tensor(t, { dtype = "i64" }) end
local function gpt() return gm.models.GPT { vocabulary = 8, layers = 1, width = 8, heads = 2, length = 4 } end
local function vit()
  return gm.models.VisionTransformer { image_size = 8, patch_size = 4, width = 8, layers = 1, heads = 2, classes = 2 }
end
local function engine()
  return gm.initialize { model = mlp(), criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD" } }
end
cases = {}
function case(n)
  io.stderr:write("CASE ", n, "\n")
  cases[n]()
  io.stderr:write "no error\n"
end
]=]

local lines = {}
for line in mistakes:gmatch "[^\n]+" do lines[#lines + 1] = line end

-- What a user reads of each mistake, by its number, and the line of mine.lua that has it.
local read, first
local function messages()
  if read then return read end
  local home = shell.temporary_folder()
  local text, input = { head }, { ':load mine.lua' }
  for n, line in ipairs(lines) do
    text[#text + 1] = ("cases[%d] = function() %s end\n"):format(n, line)
    input[#input + 1] = ("case(%d)"):format(n)
  end
  shell.write(home .. "/mine.lua", table.concat(text))
  shell.write(home .. "/input", table.concat(input, "\n") .. "\n")
  local result = shell.run(("cd %s && GANYMEDE_ROOT=%s GANYMEDE_HISTORY= timeout -k 5 120 %s --threads 1 <input")
    :format(shell.quote(home), shell.quote(GANYMEDE_ROOT), shell.program "repl"))
  assert.equal(0, result.code, result.err)
  first, read = select(2, head:gsub("\n", "")), {}
  for n, said in result.err:gsub("CASE (%d+\n)", "\0%1"):gmatch "%z(%d+)\n([^%z]*)" do read[tonumber(n)] = said end
  return read
end

describe("a mistake is said with the user's line:", function()
  for n, line in ipairs(lines) do
    it(line, function()
      local said = messages()[n] or "nothing"
      assert.equal(("mine.lua:%d: "):format(first + n), said:match "^mine%.lua:%d+: ", said)
      assert.not_matches("lua/ganymede/", said)
    end)
  end

  it("also where a program catches the error of a module", function()
    local _, err = pcall(function()
      local y = gm.nn.Embedding(4, 3)(gm.ones { 2 })
      return y
    end)
    local line = debug.getinfo(1, "l").currentline - 3
    assert.matches(("places_spec.lua:%d: embedding: index is f32, should be i32 or i64"):format(line), err, 1, true)
  end)

  -- Calls that a program may well catch, each on a line of its own, which has `-- caught` behind it.
  local caught = {
    function() local e = gm.initialize { model = gm.nn.Linear(4, 3), optimizer = { type = 3 } } return e end, -- caught
    function() local e = gm.zeros { 1e9, 1e9 } return e end, -- caught
    function() local e = gm.fit { model = { type = "MLP" } } return e end, -- caught
    function() local e = gm.pretrained "/no/model" return e end, -- caught
    function() local e = gm.tokenizer "/no/tokenizer" return e end, -- caught
    function() local e = gm.data.CSV { path = "/no.csv", x = { "a" } } return e end, -- caught
    function() local e = gm.data.loader { dataset = { type = "Nope" }, batch_size = 2 } return e end, -- caught
    function() local e = gm.load_adapter(gm.nn.Linear(4, 3), "/no/adapter") return e end, -- caught
    function() local e = gm.generate(gm.nn.Linear(4, 3), { prompts = {} }) return e end, -- caught
    function()
      local trainer = gm.trainer(gm.initialize { model = gm.nn.Linear(4, 3), optimizer = { type = "SGD" } })
      local e = trainer:fit { max_stepz = 3 } return e -- caught
    end,
  }

  it("also where a program catches the error of a call, and once", function()
    local failure, at = require "ganymede.base.failure", {}
    for line in io.lines(debug.getinfo(1, "S").source:sub(2)) do
      at.line = (at.line or 0) + 1
      if line:find "%-%- caught$" then at[#at + 1] = at.line end
    end
    assert.equal(#caught, #at)
    for k, fn in ipairs(caught) do
      local ok, err = pcall(fn)
      assert.is_false(ok)
      local _, places = failure.text(err):gsub("places_spec%.lua:%d+: ", "")
      assert.equal(1, places, failure.text(err))
      assert.matches(("^[^\n:]*places_spec%%.lua:%d: "):format(at[k]), failure.text(err))
      assert.not_matches("lua/ganymede/", failure.text(err))
    end
  end)

  it("not so a stop, or what another rank has said", function()
    local failure = require "ganymede.base.failure"
    for _, err in ipairs { failure.new(75, "stopped"), failure.new(7, "late"), failure.new_peer(2, "elsewhere") } do
      local said = err.message
      local ok, again = pcall(failure.blaming(function() error(err, 0) end))
      assert.is_false(ok)
      assert.equal(said, again.message)
    end
  end)

  it("not so a defect of Ganymede, which keeps its place", function()
    local own = require "ganymede.base.own"
    local place = "/x/lua/ganymede/nn/mlp.lua:12: "
    for _, text in ipairs { "attempt to index local 't' (a nil value)", "bad argument #1 to 'f' (x)" } do
      assert.equal(place .. text, own.blamed(place .. text))
    end
    local line = debug.getinfo(1, "l").currentline + 1
    assert.matches((":%d: so it is"):format(line), own.blamed(place .. "so it is"), 1, true)
    assert.equal("mine.lua:3: so it is", own.blamed "mine.lua:3: so it is")
    assert.equal("not enough memory", own.blamed "not enough memory")
  end)
end)
