--- ZeRO: what check says of it, checkpoints from stage to stage, and loops of one's own.
--
-- zero_equality_spec.lua compares training with plain data parallelism, zero_bytes_spec.lua counts what ranks hold and
-- send.
-- Losses of a run that goes on in another stage are those of one rank: 1e-12 in f64 over 10 steps, 1e-9 over 50.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local zero = require "spec.parallel.zero_runs"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]
local STEPS = job.steps(50)
local LIMIT = STEPS > 10 and 1e-9 or 1e-12

local function run(ranks, stage)
  return job.run(gpt, ranks, { steps = STEPS, set = { zero.setting(stage) }, flags = { "--no-eval" } })
end

describe("ZeRO #ranks", function()
  it("is rehearsed by check as it runs", function()
    local folder = shell.temporary_folder()
    for stage = 1, 3 do
      job.write(folder, gpt)
      local words = { "check", "recipe.lua", "-n", "3", "--json", "--set", zero.setting(stage) }
      local result = run_host(words, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total, rank = json.decode(result.out, "check").totals, run(3, stage).ranks[1]
      for _, what in ipairs { "parameter_bytes", "gradient_bytes", "optimizer_bytes" } do
        assert.equal(rank[what], total[what], what)
      end
    end
    shell.remove(folder)
  end)

  -- A collector frees what nobody holds any more at another time on each rank; all must gather the same blocks. An
  -- evaluation leaves one under way, for which nobody asks any more: it must not take the room of others for ever.
  it("gathers alike where one rank has freed a model of before and another has not", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/recipe.lua", [[
      local core, gm = require "ganymede.core", require "ganymede"
      collectgarbage "stop"
      local function collect_on_one_rank()
        if core.rank() > 0 then return end
        collectgarbage()
        collectgarbage()
        collectgarbage "stop"
      end
      local function made(keep)
        local function loader()
          return gm.data.loader { batch_size = 4,
            dataset = { type = "Synthetic", length = 12, shape = { 6 }, classes = 3 } }
        end
        return gm.initialize { zero = { stage = 3, whole_below = 0, keep = keep },
          optimizer = { type = "SGD", lr = 0.1 },
          model = gm.models.MLP { inputs = 6, hidden = { 9, 9, 9 }, classes = 3 }, -- 1092 bytes
          criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader(), test_dataloader = loader() }
      end
      local function gathers()
        local n = 0
        for _, e in ipairs(core.comm_traffic()) do n = n + (e.op == "all_gather" and e.calls or 0) end
        core.comm_reset_traffic()
        return n
      end
      local function trained()
        gm.launch { parallel = { data = 2 } }
        local engine, train, test = made(804)
        collect_on_one_rank()
        gathers()
        gm.trainer(engine):fit { train_dataloader = train, test_dataloader = test, max_steps = 3 }
        return gathers()
      end
      local first = trained()
      for _ = 1, 2 do assert(trained() == first) end

      local teacher, student, x = made(1600), made(1600), gm.zeros { 2, 6 }
      local function look(engine) gm.no_grad(function() engine.model(x) end) end
      look(student)
      look(teacher) -- some blocks of the student leave
      teacher = nil
      collect_on_one_rank()
      look(student)]])
    local result = run_host({ "run", "recipe.lua", "-n", "2", "--threads", "1" }, { cwd = folder })
    shell.remove(folder)
    assert.equal(0, result.code, result.err)
  end)

  -- Each batch of an evaluation gathers the first layer ahead for the next one; behind the last batch nobody needs it.
  it("leaves nothing under way that a program's next mesh would stumble over", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/recipe.lua", [[
      local gm = require "ganymede"
      local function trained(parallel, zero)
        gm.launch { parallel = parallel }
        local function loader()
          return gm.data.loader { batch_size = 4,
            dataset = { type = "Synthetic", length = 12, shape = { 6 }, classes = 3 } }
        end
        local engine, train, test = gm.initialize { zero = zero, optimizer = { type = "SGD", lr = 0.1 },
          model = gm.models.MLP { inputs = 6, hidden = { 6, 6, 6, 6, 6 }, classes = 3 },
          criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader(), test_dataloader = loader() }
        gm.trainer(engine):fit { train_dataloader = train, test_dataloader = test, max_steps = 3 }
        return engine
      end
      local first = trained({ data = 2 }, { stage = 3, whole_below = 0 })
      local second = trained({ tensor = { size = 2, mode = "1d" } })
      assert(first ~= second) -- both live]])
    local result = run_host({ "run", "recipe.lua", "-n", "2", "--threads", "1" }, { cwd = folder })
    shell.remove(folder)
    assert.equal(0, result.code, result.err)
  end)

  it("goes on from the checkpoint of another stage, on other ranks", function()
    local folder = shell.temporary_folder()
    local whole = run(1, 0)
    local recipe = gpt:gsub("epochs = 2,", "epochs = 2, checkpoint = { interval = 1 },")
    local losses, at = {}, 0
    for i, leg in ipairs { { 4, 2, 2 }, { 3, 3, 4 }, { 3, 1, 6 }, { 2, 3, 7 }, { 2, 0, STEPS } } do
      local stats = job.run_in(folder, recipe, leg[1], { steps = leg[3], set = { zero.setting(leg[2]) },
        flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
      for k = 1, leg[3] - at do losses[at + k] = stats.loss[#stats.loss - (leg[3] - at) + k] end
      at = leg[3]
    end
    shell.remove(folder)
    assert.is_true(job.largest_difference(whole, { loss = losses }, STEPS) <= LIMIT)
  end)
end)

-- A recipe in code: parameters that no loss touches, on all ranks or on some, one that is frozen, others of one number.
local in_code = [[
local gm = require "ganymede"
gm.launch { steps = 6, seed = 4, dtype = "f64", parallel = { data = "auto" }, zero = %s }
local nn = gm.nn
local Model = gm.nn.class("Model", nil)
Model.options = {}
function Model:build()
  self.used = nn.Linear { inputs = 16, outputs = 10 }
  self.unused = nn.Linear { inputs = 16, outputs = 3 }
  self.frozen = nn.Linear { inputs = 16, outputs = 10 }
  self.some = nn.Linear { inputs = 16, outputs = 10 }
  self:param("scale", { 1 }, nn.init.ones {})
end
function Model:forward(x)
  local y = self.used(x) * self.scale + self.frozen(x)
  return gm.context.get_local_rank "DATA" == 1 and y + self.some(x) * 0.5 or y
end
local points = { type = "Synthetic", length = 60, shape = { 16 } }
local model = Model {}
for _, p in ipairs(model.frozen:parameters()) do p:requires_grad(false) end
local engine, loader = gm.initialize {
  model = model, optimizer = { type = "AdamW", lr = 0.05 }, criterion = { type = "CrossEntropyLoss" },
  train_dataloader = gm.data.loader { dataset = points, batch_size = 10, seed = 4 }, clip_grad_norm = 0.5, %s
}
for x, y in loader:batches() do
  engine:zero_grad()
  local loss = engine:criterion(engine(x), y)
  engine:backward(loss)
  %s
  engine:step()
end
for _, p in ipairs(model:named_parameters()) do
  local sum = p.tensor:detach():sum():item()
  if gm.context.get_local_rank "GLOBAL" == 0 then print(p.name, ("%%.12g"):format(sum)) end
end
]]

describe("ZeRO in a loop of one's own #ranks", function()
  local function run_code(stage, options, line, code, change)
    local folder = shell.temporary_folder()
    local text = in_code:format(tostring(stage), options or "", line or "")
    shell.write(folder .. "/recipe.lua", change and job.changed(text, change) or text)
    local result = run_host({ "run", "recipe.lua", "-n", "3", "--threads", "1" }, { cwd = folder })
    shell.remove(folder)
    assert.equal(code or 0, result.code, result.err)
    return result
  end

  it("leaves what nobody used, and what is frozen, as it was", function()
    local plain = run_code(0).out
    assert.truthy(plain:find("unused.weight", 1, true))
    for stage = 1, 3 do assert.equal(plain, run_code(stage).out) end
    local alike = function(stage) -- no rank's own
      return run_code(stage, "", "", 0, { '"DATA" == 1', '"DATA" < 3' }).out
    end
    assert.equal(alike(0), alike "{ stage = 3, whole_below = 0 }")
  end)

  it("takes writes into parameters that rest in parts, and reads of them", function()
    local line = [[
      gm.no_grad(function()
        model.used.weight:copy_(model.used.weight * 0.99)
        model.used.weight:set(3, 2, 0.5)
        assert(model.used.weight:get(3, 2) == 0.5)
        model.scale:fill_(1.25)
      end)]]
    assert.equal(run_code(0, "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0, keep = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("says which ranks did not use a parameter that others use", function()
    local result = run_code("{ stage = 3, whole_below = 0 }", "", "", 1)
    assert.truthy(result.err:find("all_gather", 1, true), result.err)
  end)

  it("reads a checkpoint into a parameter that has been used, and saves one", function()
    local line = [[
      local path = gm.checkpoint.save("ck", { tensors = { { name = "w", tensor = model.used.weight } },
        meta = { step = engine.steps_done } })
      local before = model.used.weight:detach():sum():item()
      gm.no_grad(function() model.used.weight:fill_(7) end)
      assert(model.used.weight:detach():sum():item() == 7 * 160)
      local ck = gm.checkpoint.open(path)
      ck:read_into("w", model.used.weight)
      ck:close()
      assert(model.used.weight:detach():sum():item() == before)]]
    assert.equal(run_code(0, "", "", 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("holds parameters for code that works on their bytes", function()
    local line = [[
      gm.gathered({ model.used.weight, model.scale }, function()
        local ffi = require "ffi"
        ffi.cast("double *", (model.used.weight:detach():data()))[7] = 0.25
        ffi.cast("double *", (model.scale:detach():data()))[0] = 2
      end)]]
    assert.equal(run_code(0, "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0, keep = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("refuses the address of a parameter that rests in parts", function()
    local result = run_code("{ stage = 3, whole_below = 0 }", "", "model.used.weight:detach():data()", 1,
      { '"DATA" == 1', '"DATA" < 3' })
    assert.truthy(result.err:find("rests in parts", 1, true), result.err)
  end)

  it("shows gradients as tensors, laid out as they are held", function()
    local show = [[
      local g = model.used.weight:grad()
      local cuts = g:layout().cuts
      assert(#cuts[1] + #cuts[2] == 1 and g:numel() == 160)
      local sum = g:gather():sum():item()
      if gm.context.get_local_rank "GLOBAL" == 0 then print(("%%.12g"):format(sum)) end]]
    local plain = show:gsub("#cuts%[1%] %+ #cuts%[2%] == 1 and ", "")
    assert.equal(run_code(0, "", plain).out, run_code(2, "", show).out)
  end)

  it("refuses handlers that sum gradients themselves", function()
    local result = run_code(1, 'gradient_handler = { { type = "DataParallelGradientHandler" } },', "", 1)
    assert.truthy(result.err:find("zero divides the sums of gradients", 1, true), result.err)
  end)

  it("refuses a parameter that is frozen after its gradient has got an owner", function()
    local result = run_code(2, "", "model.used.bias:requires_grad(false)", 1)
    assert.truthy(result.err:find("was frozen", 1, true), result.err)
  end)
end)
