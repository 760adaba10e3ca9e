--- `ganymede run` as a user meets it: exit statuses, messages, the run's folder, --stats.
local device = require "spec.support.device"
local support = require "spec.cli.support"
local shell = support.shell

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

describe("ganymede run", function()
  local home
  after_each(function()
    if home then shell.remove(home) end
    home = nil
  end)

  local function run(text, ...)
    home = support.home(text)
    return support.run(home, { "run", "recipe.lua", "--threads", "1", ... })
  end

  -- Nothing but the recipe, and what is named, may be left.
  local function left_only(...)
    assert.equal(table.concat({ ... }, " "), support.names(home))
  end

  it("trains, and writes the run's folder", function()
    local result = run(nil, "--steps", "10")
    assert.equal(0, result.code, result.err)
    local runs = shell.lines("ls " .. home .. "/runs")
    assert.equal(2, #runs)
    assert.equal("latest", runs[1])
    assert.is_truthy(runs[2]:match "^points%-%d%d%d%d%d%d%d%d%-%d%d%d%d%d%d%-%x+$", runs[2])
    assert.equal("config.lua env.json metrics.jsonl stats.json", support.names(home .. "/runs/latest"))
    local settings = dofile(home .. "/runs/latest/config.lua")
    assert.same({ 3, 0.01, 1024 - 1024 }, { settings.seed, settings.optimizer.lr, settings.clip_grad_norm })
    local lines = shell.lines("cat " .. home .. "/runs/latest/metrics.jsonl")
    assert.equal(11, #lines) -- 10 steps, one evaluation
    local json = require "ganymede.base.json"
    for i = 1, 10 do assert.same({ i, 1, 32 * i }, { json.decode(lines[i]).step, json.decode(lines[i]).epoch,
      json.decode(lines[i]).samples }) end
    assert.is_number(json.decode(lines[11]).test.accuracy)
  end)

  it("goes on in the folder of its newest run with --resume auto", function()
    local sets = { "--set", "hooks={{type='CheckpointHook',interval=4}}", "--no-eval" }
    local whole = run(nil, "--steps", "8", "--stats", "s.json", unpack(sets))
    assert.equal(0, whole.code, whole.err)
    local want = support.json(home .. "/s.json").loss
    shell.remove(home)
    local first = run(nil, "--steps", "4", unpack(sets))
    assert.equal(0, first.code, first.err)
    local second = support.run(home, { "run", "recipe.lua", "--threads", "1", "--steps", "8", "--resume", "auto",
      "--stats", "s.json", unpack(sets) })
    assert.equal(0, second.code, second.err)
    has(second.err .. second.out, "at step 4")
    assert.equal(2, #shell.lines("ls " .. home .. "/runs")) -- one run, and latest
    assert.equal(8, #shell.lines("cat " .. home .. "/runs/latest/metrics.jsonl"))
    local got = support.json(home .. "/s.json").loss
    assert.equal(want[8], got[#got])
  end)

  it("goes on behind a run that failed in its first step with --resume auto, and keeps what explains the failure",
    function()
      local sets = { "--set", "hooks={{type='CheckpointHook',interval=2}}", "--no-eval" }
      local first = run(nil, "--steps", "2", unpack(sets))
      assert.equal(0, first.code, first.err)
      shell.run(("mv %s/runs/points-2* %s/runs/points-20200101-000000-0")
        :format(shell.quote(home), shell.quote(home))) -- earlier by a second at least
      local words = { "run", "recipe.lua", "--threads", "1", "--steps", "4", unpack(sets) }
      local failed = support.run(home, { "run", "recipe.lua", "--threads", "1", "--steps", "4", "--set",
        "optimizer={type='SGD',lr=1e30}", "--set", "model.hidden.1=33", "--set", "loss={type='MSELoss'}", "--no-eval" })
      assert.is_true(failed.code ~= 0)
      local stats = support.json(home .. "/runs/latest/stats.json")
      assert.equal(0, stats.steps)
      has(failed.err, stats.error:match "[^\n]+")
      words[#words + 1], words[#words + 2] = "--resume", "auto"
      local second = support.run(home, words)
      assert.equal(0, second.code, second.err)
      has(second.err .. second.out, "at step 2")
      assert.equal(4, #shell.lines("cat " .. home .. "/runs/points-20200101-000000-0/metrics.jsonl"))
    end)

  it("refuses an --out with checkpoints of another run, of which it loses nothing, and else starts afresh", function()
    local words = { "--steps", "4", "--no-eval", "--out", "here", "--set", "hooks={{type='CheckpointHook'}}" }
    assert.equal(0, run(nil, unpack(words)).code)
    local function sums()
      return shell.run(("cd %s/here && find . -type f ! -name .lock | sort | xargs cksum"):format(home)).out
    end
    local before = sums()
    local function start(...)
      return support.run(home, { "run", "recipe.lua", "--threads", "1", "--set", "seed=9", ... })
    end
    local again = start(unpack(words))
    assert.equal(2, again.code, again.err)
    has(again.err, "here holds checkpoints of an earlier run, the newest of step 4, and this run would begin at step 1")
    has(again.err, "--resume auto goes on from that step; to begin anew give another --out, or remove here/checkpoints")
    assert.equal(before, sums())
    assert.equal(2, start("--steps", "4", "--no-eval", "--out", "here").code) -- SIGTERM would save there
    shell.run("rm -r " .. home .. "/here/checkpoints")
    again = start(unpack(words))
    assert.equal(0, again.code, again.err)
    assert.equal(4, #shell.lines("cat " .. home .. "/here/metrics.jsonl"))
  end)

  it("refuses another number of ranks than its launcher started", function()
    home = support.home()
    local result = support.run(home, { "run", "recipe.lua", "-n", "2" }, { env = { OMPI_COMM_WORLD_SIZE = 4 } })
    assert.equal(2, result.code)
    has(result.err, "one of 4 ranks")
  end)

  it("names the package that several ranks need", function()
    home = support.home()
    shell.run(("ln -s $(command -v timeout) %s/timeout"):format(shell.quote(home))) -- which run_host uses
    local result = support.run(home, { "run", "recipe.lua", "-n", "2" }, { env = { PATH = home } })
    assert.equal(2, result.code)
    has(result.err, "openmpi-bin")
  end)

  it("evaluates once with --steps, however many epochs that takes, and not at all with --no-eval", function()
    for flag, evaluations in pairs { ["--checked"] = 1, ["--no-eval"] = 0 } do
      local result = run(nil, "--steps", "40", "--out", "here", flag) -- 2.5 epochs
      assert.equal(0, result.code, result.err)
      local _, found = shell.read(home .. "/here/metrics.jsonl"):gsub('"test"', "")
      assert.equal(evaluations, found, flag)
      shell.remove(home)
      home = nil
    end
  end)

  it("refuses --no-eval beside hooks that need evaluations, and --replan without --resume", function()
    home = support.home()
    local function with(hooks, ...)
      shell.write(home .. "/hooks.lua", (support.recipe:gsub("hooks = {", "hooks = { " .. hooks)))
      return support.run(home, { "run", "hooks.lua", "--out", "h", ... })
    end
    local early = '{ type = "EarlyStopHook" }, '
    for hooks, name in pairs { [early] = "EarlyStopHook", ['{ type = "EvaluationHook", interval = 3 }, '] =
      "EvaluationHook" } do
      local result = with(hooks, "--no-eval")
      assert.equal(2, result.code, result.err)
      assert.matches("%-%-no%-eval: the recipe's " .. name .. " has no effect without evaluations", result.err)
    end
    local own = with(early .. "{ after_train_iter = function() end }, ", "--no-eval") -- which may evaluate
    assert.equal(0, own.code, own.err)
    local replan = with("", "--replan")
    assert.equal(2, replan.code)
    assert.matches("%-%-replan belongs to %-%-resume", replan.err)
    local nothing = with("", "--replan", "--resume", "auto")
    assert.equal(2, nothing.code)
    assert.matches("%-%-replan plans anew what parallel = \"auto\" left to a plan", nothing.err)
    local empty = with("", "--resume", "")
    assert.equal(2, empty.code)
    assert.matches("%-%-resume takes a checkpoint, the folder of a run, or auto; it is empty", empty.err)
  end)

  it("says where it is, without control characters when standard output is no terminal", function()
    local result = run(nil, "--steps", "20", "--no-eval")
    has(result.out, "step 1/20  epoch 1  loss ")
    has(result.out, "step 20/20  epoch 2  loss ")
    assert.is_nil(result.out:find "[\r\27]")
  end)

  it("writes the document of --stats", function()
    local result = run(nil, "--steps", "20", "--stats", "s.json", "--out", "here")
    assert.equal(0, result.code, result.err)
    left_only("here", "recipe.lua", "s.json")
    local s = support.json(home .. "/s.json")
    assert.same({ 1, "done", 0, 1, device.name(), "f32", 1, 3, 32, 20 },
      { s.version, s.status, s.exit_code, s.world, s.device, s.dtype, s.threads, s.seed, s.global_batch, s.steps })
    assert.equal(require("ganymede.base.json").null, s.error)
    assert.equal(20, #s.loss)
    assert.is_true(s.loss[20] < s.loss[1])
    assert.is_true(s.metrics.test.accuracy > 0.2) -- of ten classes
    assert.is_truthy(s.recipe_hash:match "^%x+$")
    assert.equal(64, #s.recipe_hash)
    assert.equal(0.01, s.resolved.optimizer.lr)
    local rank = s.ranks[1]
    local parameters = (16 * 32 + 32) + (32 * 10 + 10)
    assert.same({ 4 * parameters, 4 * parameters, 8 * parameters },
      { rank.parameter_bytes, rank.gradient_bytes, rank.optimizer_bytes })
    assert.is_true(rank.peak_bytes > 16 * parameters and rank.flops > 0 and rank.kernels > 0)
    assert.is_true(s.seconds > 0 and s.samples_per_second > 0)
  end)

  it("gives equal runs equal losses and hashes, other settings others", function()
    local docs = {}
    for i, set in ipairs { "seed=3", "seed=3", "seed=4" } do
      local result = run(nil, "--steps", "5", "--no-eval", "--stats", "s.json", "--set", set)
      assert.equal(0, result.code, result.err)
      docs[i] = support.json(home .. "/s.json")
      shell.remove(home)
      home = nil
    end
    assert.same(docs[1].loss, docs[2].loss)
    assert.equal(docs[1].recipe_hash, docs[2].recipe_hash)
    assert.is_true(docs[1].loss[1] ~= docs[3].loss[1])
    assert.is_true(docs[1].recipe_hash ~= docs[3].recipe_hash)
  end)

  it("seeds by --seed as by --set seed", function()
    local result = run(nil, "--steps", "2", "--no-eval", "--stats", "s.json", "--seed", "4")
    assert.equal(0, result.code, result.err)
    local s = support.json(home .. "/s.json")
    assert.same({ 4, 4 }, { s.seed, s.resolved.seed })
    local both = support.run(home, { "run", "recipe.lua", "--seed", "4", "--set", "seed=5" })
    assert.equal(2, both.code, both.err)
    has(both.err, "--seed and --set seed=... were given; leave one of them out")
  end)

  describe("ends with status 2, starts nothing and leaves nothing, for", function()
    local function wrong(what, text, words, part)
      it(what, function()
        local result = run(text, unpack(words))
        assert.equal(2, result.code, result.err)
        has(result.err, "ganymede: ")
        has(result.err, part)
        assert.is_nil(result.err:find("ranks on %d+ core"), result.err) -- as a job says when it starts them
        left_only "recipe.lua"
      end)
    end
    wrong("a key that does not exist", nil, { "--set", "optimzer.lr=1" }, "optimzer is no key of a recipe")
    wrong("a value out of range", nil, { "--set", "optimizer.lr=-1" }, "optimizer.lr must be")
    wrong("a syntax error", "return {", {}, "recipe.lua:1: unexpected symbol near '<eof>'")
    wrong("a model that cannot be built", support.recipe:gsub("hidden = { 32 }", "hidden = { 0 }"), {},
      "hidden[1] must be a whole number")
    wrong("a transform that does not fit", nil,
      { "--set", "data.transforms={{type='RandomCrop',size=99}}" }, "random crop needs images (channels")
    wrong("compiled Lua", "\27LJ\2", {}, "is compiled Lua")
    wrong("a parallel recipe", nil, { "--set", "parallel.tensor={size=4,mode='2d'}" }, "start it with -n 4")
    wrong("a trace in no folder", nil, { "--trace", "nowhere/t.json" }, "--trace: cannot write nowhere/t.json: No such")
    wrong("statistics in no folder", nil, { "--stats", "nowhere/s.json" }, "--stats: cannot write nowhere/s.json: No")
    wrong("statistics in no folder, on ranks", nil, { "--stats", "nowhere/s.json", "-n", "2" }, "--stats: cannot")
    wrong("a profile in no folder", nil, { "--profile", "nowhere/p.txt" }, "--profile: cannot write nowhere/p.txt")
    wrong("a run folder that cannot be made", nil, { "--out", "recipe.lua/x" }, "cannot make the folder recipe.lua")
    wrong("an epoch without a batch", nil, { "--set", "data.batch_size=4096", "--set", "data.drop_last=true" },
      "data: an epoch has no batch")
    wrong("a key that is no name", nil, { "--set", "nan=1" }, "nan is no key of a recipe")
    wrong("a picture of no pipeline", nil, { "--trace", "t.svg" }, "this recipe runs none; name it .json")
    wrong("a device that does not exist", nil, { "--device", "tpu" }, "'cpu'")
    wrong("a flag that does not exist", nil, { "--stpes", "3" }, "did you mean '--steps'?")
    wrong("a folder whose name is no UTF-8", nil, { "--out", "a\255b" }, "'a\\xffb' on the command line is not UTF-8")
    wrong("a folder whose name is no UTF-8, on ranks", nil, { "-n", "2", "--out", "a\255b" }, "is not UTF-8")
    wrong("no steps", nil, { "--steps", "0" }, "--steps: '0' is no integer of at least 1")
    wrong("fewer than no steps", nil, { "--steps", "-3" }, "--steps: '-3' is no integer of at least 1")
    wrong("a limit that is no size", nil, { "--limit-memory", "lots" }, "no number of bytes")
    wrong("a data set that is not there", nil, { "--set", "data.train={type='FashionMNIST',root='/nowhere'}" },
      "/nowhere")
  end)

  it("ends with status 2 for a recipe that is not there", function()
    home = support.home()
    local result = support.run(home, { "run", "nothing.lua" })
    assert.equal(2, result.code)
    has(result.err, "nothing.lua")
  end)

  it("ends with status 1 for a Lua error in a model that the recipe builds itself", function()
    local text = support.recipe:gsub("model = %b{}", "model = function() local x return x.y end")
    local result = run(text, "--steps", "1")
    assert.equal(1, result.code)
    has(result.err, "recipe.lua:3: attempt to index local 'x'")
    left_only "recipe.lua"
  end)

  it("ends with status 1 for a Lua error, at its line, without a traceback", function()
    local result = run "local x\nreturn { name = x.name }"
    assert.equal(1, result.code)
    has(result.err, "recipe.lua:2: attempt to index local 'x'")
    assert.is_nil(result.err:find "traceback")
  end)

  it("adds the traceback with GM_LOG=3", function()
    home = support.home "local function f() error 'oh' end\nf()"
    local result = support.run(home, { "run", "recipe.lua" }, { env = { GM_LOG = 3 } })
    assert.equal(1, result.code)
    has(result.err, "stack traceback")
    has(result.err, "recipe.lua:2: in function")
  end)

  it("ends with status 1 when memory is short, and names the limit", function()
    local result = run(nil, "--limit-memory", "4K", "--stats", "s.json")
    assert.equal(1, result.code)
    has(result.err, "limit 4.0 KiB")
    assert.equal("error", support.json(home .. "/s.json").status)
  end)

  it("ends with status 8 when training diverges, and tells the losses before", function()
    local result = run(nil, "--set", "optimizer={type='SGD',lr=1e30}", "--steps", "20", "--stats", "s.json")
    assert.equal(8, result.code, result.err)
    has(result.err, "diverged")
    local s = support.json(home .. "/s.json")
    assert.same({ "diverged", 8 }, { s.status, s.exit_code })
    assert.is_true(#s.loss > 0 and #s.loss < 20 and s.steps == #s.loss)
    has(s.error, "diverged")
  end)

  it("ends with status 5 when data is damaged", function()
    home = support.home(nil, { ["tokens.bin"] = "GMTK damaged" })
    local result = support.run(home, { "run", "recipe.lua", "--set", "data.train={type='Tokens',path='tokens.bin'}" })
    assert.equal(5, result.code, result.err)
    has(result.err, "tokens.bin")
  end)

  it("ends with status 7 at its time limit, compiled loops included", function()
    local result = run("local i = 0 while true do i = i + 1 end", "--timeout", "0.5", "--stats", "s.json")
    assert.equal(7, result.code, result.err)
    has(result.err, "--timeout")
    assert.equal("hung", support.json(home .. "/s.json").status)
  end)

  it("writes settings and errors that are no UTF-8 as what can be read", function()
    local text = support.recipe:gsub("seed = 3", "seed = 3, user = { [\"k\\255\"] = \"v\\254\" }")
    local result = run(text, "--steps", "1", "--no-eval", "--stats", "s.json", "--out", "\195\164")
    assert.equal(0, result.code, result.err)
    assert.same({ ["k\\xff"] = "v\\xfe" }, support.json(home .. "/s.json").resolved.user)
    result = run("error('e\255', 0)", "--stats", "s.json")
    assert.equal(1, result.code, result.err)
    has(support.json(home .. "/s.json").error, "e\\xff")
  end)

  it("writes --stats also for a recipe that is wrong", function()
    local result = run(nil, "--set", "epochs=0", "--stats", "s.json")
    assert.equal(2, result.code)
    local s = support.json(home .. "/s.json")
    assert.same({ "wrong", 2, 0 }, { s.status, s.exit_code, s.steps })
    has(s.error, "epochs must be")
    assert.same({}, s.loss)
    left_only("recipe.lua", "s.json")
  end)

  it("refuses one file for two flags", function()
    local result = run(nil, "--steps", "1", "--stats", "s.json", "--trace", "t.json", "--profile", "s.json")
    assert.equal(2, result.code, result.err)
    has(result.err, "--stats and --profile name one file, s.json; name two")
    left_only("recipe.lua", "s.json") -- statistics are written in any case
  end)

  it("says when --stats cannot be written any more", function()
    local result = run([[
      os.execute "rm -r there"
      return ]] .. support.recipe:gsub("^return", ""), "--steps", "1", "--no-eval", "--stats", "there/s.json")
    assert.equal(2, result.code) -- there is no such folder yet
    os.execute("mkdir " .. shell.quote(home) .. "/there")
    result = support.run(home, { "run", "recipe.lua", "--steps", "1", "--no-eval", "--stats", "there/s.json" })
    assert.equal(1, result.code)
    has(result.err, "cannot write --stats there/s.json")
  end)

  it("ends with status 130 on SIGINT", function()
    home = support.home [[
      local ffi = require "ffi"
      ffi.cdef "int kill(int pid, int signal); int getpid(void);"
      ffi.C.kill(ffi.C.getpid(), 2)
      while true do os.time() end
    ]]
    local result = support.run(home, { "run", "recipe.lua" })
    assert.equal(130, result.code, result.err)
    has(result.err, "Ctrl-C")
  end)

  it("refuses more ranks than files may be open for, at once", function()
    home = support.home()
    local result = shell.run(("cd %s && ulimit -n 32 && GANYMEDE_ROOT=%s %s recipe.lua -n 3"):format(home,
      shell.quote(GANYMEDE_ROOT), shell.program "run"))
    assert.is_true(result.code ~= 0)
    has(result.err, "3 ranks need 42 open files, the limit is 32")
  end)

  it("refuses global variables of a recipe, at their line", function()
    local result = run "\nwidth = 64"
    assert.equal(1, result.code)
    has(result.err, "recipe.lua:2: global 'width' set")
  end)
end)

describe("a recipe in code", function()
  local home
  after_each(function() shell.remove(home) end)

  local text = [[
    local gm = require "ganymede"
    local c = gm.launch { width = 3, steps = 10 }
    print(c.width, c.steps, c.seed, c.world, gm.zeros({ 2 }):dtype())
  ]]

  local function run(recipe, ...)
    home = support.home(recipe)
    return support.run(home, { "run", "recipe.lua", "--threads", "1", ... })
  end

  it("gets its flags from gm.launch", function()
    local result = run(text, "--set", "width=5", "--steps", "7", "--seed", "9", "--set", "dtype=f64")
    assert.equal(0, result.code, result.err)
    assert.equal("5\t7\t9\t1\tf64\n", result.out)
  end)

  it("has the defaults without flags", function()
    assert.equal("3\t10\t1024\t1\tf32\n", run(text).out)
  end)

  it("is refused a key it does not have", function()
    local result = run(text, "--set", "wdith=5")
    assert.equal(2, result.code)
    has(result.err, "wdith is no key")
  end)

  it("has statistics of its engine in --stats", function()
    local result = run([[
      local gm = require "ganymede"
      local c = gm.launch { steps = 30, gradient_accumulation = 2 }
      local engine, loader = gm.initialize {
        model = gm.nn.Linear(16, 10), criterion = { type = "CrossEntropyLoss" },
        optimizer = { type = "SGD", lr = 0.1, momentum = 0.9 }, gradient_accumulation = c.gradient_accumulation,
        train_dataloader = gm.data.loader { dataset = { type = "Synthetic", shape = { 16 } }, batch_size = 8 },
      }
      local steps = 0
      for x, y in loader:batches() do
        engine:zero_grad()
        engine:backward(engine:criterion(engine(x), y))
        if engine:step() then steps = steps + 1 end
        if steps == c.steps then break end
      end
    ]], "--steps", "6", "--stats", "s.json")
    assert.equal(0, result.code, result.err)
    local s, parameters = support.json(home .. "/s.json"), 16 * 10 + 10
    assert.same({ "done", 6, 6, 16 }, { s.status, s.steps, #s.loss, s.global_batch })
    assert.is_true(math.abs(s.loss[1] - math.log(10)) < 1.5)
    assert.same({ 4 * parameters, 4 * parameters, 4 * parameters },
      { s.ranks[1].parameter_bytes, s.ranks[1].gradient_bytes, s.ranks[1].optimizer_bytes })
  end)

  it("reads keys that are not there as an error that names them and the file, nil for those of recipes", function()
    local result = run "local c = require('ganymede').launch { width = 3 } print(c.checkpoint, c.widht)"
    assert.equal(1, result.code)
    has(result.err, "recipe.lua:1: there is no setting 'widht' in recipe.lua (did you mean 'width'?)")
  end)

  it("is told when its flags had no effect", function()
    local result = run("print 'ran'", "--steps", "3")
    assert.equal(2, result.code)
    has(result.err, "--steps was given")
  end)

  it("may require modules beside it", function()
    home = support.home("print(require('beside'))", { ["beside.lua"] = "return 'found'" })
    local result = support.run(home, { "run", home .. "/recipe.lua" })
    assert.equal("found\n", result.out)
  end)
end)

describe("the command line", function()
  it("ends with status 1 when what it is there to print cannot be written", function()
    for _, words in ipairs { "version", "help", "help run", "run --help" } do
      local result = shell.run(shell.quote(shell.executable()) .. " " .. words .. " >/dev/full")
      assert.equal(1, result.code, words)
      has(result.err, "standard output cannot be written: No space left on device")
    end
  end)

  local function try(...)
    return require "spec.support.run_host"({ ... }, { env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
  end

  it("explains itself", function()
    local result = try "help"
    assert.equal(0, result.code)
    for _, verb in ipairs { "run", "check", "repl", "doctor", "test", "demo", "spec" } do
      has(result.out, "\n  " .. verb .. " ")
    end
    has(try("help", "run").out, "--limit-memory")
    has(try("help", "recipe").out, "clip_grad_norm       a number, at least 0 (default 0)")
    has(try("help", "recipe").out, "datasets       Arrays, CIFAR")
    has(try("help", "AdamW").out, "weight_decay")
    has(try("help", "AdamW").out, "gm.optim.AdamW: an optimizer")
    has(try("run", "--help").out, "--limit-memory")
    assert.equal(0, try("run", "-h").code)
    has(try("--version").out, "ganymede ")
  end)

  for words, part in pairs {
    ["rnu"] = "did you mean 'run'?", ["atach"] = "did you mean 'attach'?", ["--steps"] = "expected a verb",
    ["run"] = "missing argument 'recipe'", ["help rnu"] = "did you mean 'run'?",
  } do
    it("ends with status 2 for: " .. words, function()
      local list = {}
      for word in words:gmatch "%S+" do list[#list + 1] = word end
      local result = try(unpack(list))
      assert.equal(2, result.code)
      has(result.err, part)
      assert.equal("", result.out)
    end)
  end

  it("ends with status 2 without a verb, and lists them", function()
    local result = try()
    assert.equal(2, result.code)
    has(result.err, "usage: ganymede VERB")
  end)
end)
