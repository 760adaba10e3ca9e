--- Standard files that are closed, that nobody reads, or whose reader leaves.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- A shell script in the folder of a recipe, where $GM is the program -> check({ code, out, err }, a file by its name).
local function run_script(body, script, check)
  local home = support.home(body)
  local words = {}
  for name, value in pairs(support.environment(home, { GM = shell.executable() })) do
    words[#words + 1] = shell.quote(name .. "=" .. value)
  end
  local ok, why = pcall(function()
    local result = shell.run(("cd %s && env %s timeout -k 5 60 sh -c %s"):format(shell.quote(home),
      table.concat(words, " "), shell.quote(script)))
    check(result, function(name) return shell.read(home .. "/" .. name) end)
    assert.same({}, support.left(home))
    support.check_folder(home)
  end)
  shell.remove(home)
  if not ok then error(why, 2) end
end

local training = support.training "":gsub('{ type = "Fault" }', '{ type = "CheckpointHook", interval = 4 }')

describe("closed standard files", function()
  for _, ranks in ipairs { 1, 3 } do
    it(("damage nothing, on %d rank%s"):format(ranks, ranks == 1 and "" or "s"), function()
      local closed = ranks == 1 and ">&- 2>&-" or "<&- >&- 2>&-"
      local script = ([[
        "$GM" run recipe.lua --threads 1 --out out --steps 8 -n %d %s || exit 1
        "$GM" run recipe.lua --threads 1 --out out --steps 10 --resume auto]]):format(ranks, closed)
      run_script(training, script, function(result, read)
        assert.equal(0, result.code, result.err)
        assert.is_truthy(result.out:find("at step 8", 1, true), result.out .. result.err)
        for line in read("out/metrics.jsonl"):gmatch "[^\n]+" do json.decode(line, "metrics.jsonl") end
      end)
    end)
  end
end)

describe("a reader that leaves", function()
  for _, ranks in ipairs { 1, 3 } do
    it(("does not end the run, on %d rank%s"):format(ranks, ranks == 1 and "" or "s"), function()
      local body = "for i = 1, 3000 do print('line', i) end sum(gm.ones { 1 }) io.open('through' .. rank, 'w'):close()"
      local script = ('("$GM" run recipe.lua --threads 1 -n %d; echo $? >status) | head -1'):format(ranks)
      run_script(body:gsub("sum", ranks > 1 and "sum" or "print", 1), script, function(result, read)
        assert.equal("0\n", read "status", result.err)
        assert.equal("line\t1\n", result.out)
        for rank = 0, ranks - 1 do assert.equal("", read("through" .. rank)) end
      end)
    end)
  end
end)

describe("a reader that is slow", function()
  local script = [[("$GM" run recipe.lua --threads 1 -n 2; echo $? >status) | (sleep 2; date +%s.%N >began; wc -c)]]

  local function write(lines, check)
    local body = ([[
      if rank == 0 then for _ = 1, %d do print(("x"):rep(99999)) end fault() end
      sum(gm.ones { 1 })]]):format(lines)
    run_script(body, script, function(result, read)
      assert.equal("0\n", read "status", result.err)
      assert.equal(lines * 100000, tonumber(result.out))
      if check then check(tonumber(read("fault"):match "%S+"), tonumber(read "began")) end
    end)
  end

  it("gets what ranks wrote that have long ended", function() write(5) end)

  it("is waited for by a rank that has written more than the supervisor and pipes hold", function()
    write(30, function(written, began) assert.is_true(written > began) end)
  end)
end)

describe("output that cannot be written", function()
  for _, ranks in ipairs { 1, 3 } do
    it(("is said once, costs no training, and ends the run with status 1, on %d rank%s"):format(ranks,
      ranks == 1 and "" or "s"), function()
      local script = ('"$GM" run recipe.lua --threads 1 --out out --steps 8 -n %d >/dev/full'):format(ranks)
      run_script(training, script, function(result, read)
        assert.equal(1, result.code, result.err)
        local why = "standard output cannot be written: No space left on device"
        assert.is_truthy(result.err:find("ganymede: " .. why .. "\n", 1, true), result.err)
        if ranks == 1 then assert.is_truthy(result.err:find(why .. "; the run goes on", 1, true), result.err) end
        local steps = 0
        for line in read("out/metrics.jsonl"):gmatch "[^\n]+" do
          steps = math.max(steps, json.decode(line, "metrics.jsonl").step)
        end
        assert.equal(8, steps)
        assert.is_truthy(read "out/checkpoints/step-00000008/index.json")
      end)
    end)
  end

  it("is a failure of what a program in code prints, too", function()
    run_script("print 'done'", '"$GM" run recipe.lua >/dev/full', function(result)
      assert.equal(1, result.code, result.err)
    end)
  end)
end)

-- More than pipes and the supervisor hold, a step.
local loud = support.training [[
  local file = assert(io.open("pid" .. rank, "w"))
  file:write(core.process().pid)
  file:close()
  io.open("begun", "w"):close()
  print(("x"):rep(100000))]]:gsub("epochs = 4", "epochs = 100000")

describe("output that nobody reads", function()
  local function stop(what, ranks, how, code, text)
    it(("does not keep %s from ending %d rank%s"):format(what, ranks, ranks == 1 and "" or "s"), function()
      local script = ([[
        mkfifo pipe; sleep 60 <pipe & reader=$!
        env --default-signal=INT "$GM" run recipe.lua --threads 1 --out out -n %d >pipe & job=$!
        ]] .. shell.wait_until "test -e begun" .. [[

        sleep 1
        date +%%s.%%N >fault
        %s
        wait $job; code=$?
        kill $reader
        exit $code]]):format(ranks, how)
      run_script(loud, script, function(result, read)
        assert.equal(code, result.code, result.err)
        assert.is_truthy(result.err:find(text, 1, true), result.err)
        assert.is_true(core.wall() - tonumber(read "fault") < 10)
      end)
    end)
  end

  stop("Ctrl-C", 1, "kill -INT $job", 130, "stopped by Ctrl-C")
  stop("SIGTERM", 1, "kill -TERM $job", 75, "stopped after step")
  stop("Ctrl-C", 3, "kill -INT $job", 130, "stopped by Ctrl-C")
  stop("a killed rank", 3, "kill -KILL $(cat pid0)", 6, "rank 0: killed by signal 9")

  it("does not keep SIGTERM from ending a run in which lines of `ganymede attach` have run", function()
    local later = loud:gsub("print", "if io.open 'loud' then %0", 1):gsub("rep%(100000%)%)", "%0 end", 1)
    local script = [[
      mkfifo pipe; sleep 60 <pipe & reader=$!
      "$GM" run recipe.lua --threads 1 --out out >pipe & job=$!
      ]] .. shell.wait_until "test -e begun" .. [[

      "$GM" attach --limit 30 --run "world + 10"
      : >loud; sleep 1
      kill -TERM $job
      wait $job; code=$?
      kill $reader
      exit $code]]
    run_script(later, script, function(result)
      assert.equal(75, result.code, result.err)
      assert.equal("11\n", result.out)
    end)
  end)
end)
