-- What runs spec files several at a time: order, how many at once, what a job printed and how it ended.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local pool = require "ganymede.cli.pool"
local shell = require "spec.support.shell"
local spec = require "ganymede.cli.spec"

describe("a pool of jobs", function()
  local folder

  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  --- Runs commands -> list of { name, status, text } as they were handed out; jobs are { name, command, wide }.
  local function run(width, jobs)
    local seen, list = {}, {}
    for i, job in ipairs(jobs) do list[i] = { name = job[1], command = job[2], wide = job.wide } end
    pool.run(list, width, function(job, status, text, seconds)
      assert(seconds >= 0)
      seen[#seen + 1] = { job.name, status, text }
    end)
    return seen
  end

  -- A job that goes on when a file is there, and then makes another.
  local function waits(for_file, makes)
    return ("sh -c 'while ! [ -e %s/%s ]; do sleep 0.01; done; touch %s/%s; echo %s'"):format(folder, for_file, folder,
      makes, makes)
  end

  it("hands out in order what ended in another, and each its own text and status", function()
    shell.write(folder .. "/begin", "")
    assert.same({ { "a", 0, "second\n" }, { "b", 0, "first\n" }, { "c", 3, "x\ny\n" }, { "d", 0, "" } }, run(2, {
      { "a", waits("first", "second") }, { "b", waits("begin", "first") },
      { "c", "sh -c 'echo x; echo y >&2; exit 3'" }, { "d", "true" },
    }))
  end)

  it("runs no more at once than it may, and wide jobs last, two at a time", function()
    local job = ("sh -c 'mkdir %s/$$; ls %s | wc -l; sleep 0.05; rmdir %s/$$'"):format(folder, folder, folder)
    local jobs = { { "wide", job, wide = true }, { "wide", job, wide = true }, { "wide", job, wide = true } }
    for _ = 1, 6 do jobs[#jobs + 1] = { "shared", job } end
    local function most(results)
      local at_once = 0
      for i, result in ipairs(results) do
        assert.equal(i <= 6 and "shared" or "wide", result[1])
        assert(tonumber(result[3]) <= (i <= 6 and 3 or 2), result[1] .. ": " .. result[3])
        if i > 6 then at_once = math.max(at_once, tonumber(result[3])) end
      end
      return at_once
    end
    most(run(3, jobs))
    assert.equal(1, most(run(1, jobs)))
  end)

  it("counts what all processes of a job worked, and not what they waited", function()
    local cpu = {}
    local count = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done"
    local list = { { command = ("sh -c 'sh -c \"%s\" & wait'"):format(count:gsub("%$", "\\$")) },
      { command = "sleep 0.5" } }
    pool.run(list, 1, function(_, status, text, _, seconds)
      assert.equal(0, status, text)
      cpu[#cpu + 1] = seconds
    end)
    assert.is_true(cpu[1] > 0.02 and cpu[2] < cpu[1], ("%g and %g"):format(cpu[1], cpu[2]))
  end)

  it("says how a job ended that was killed", function()
    assert.equal(137, run(1, { { "killed", "sh -c 'kill -9 $$'" } })[1][2])
  end)

  it("ends what still runs when something goes wrong", function()
    local jobs = {
      { name = "quick", command = ("sh -c 'while ! [ -e %s/pid ]; do sleep 0.01; done'"):format(folder) },
      { name = "long", command = ("sh -c 'echo $$ >%s/new; mv %s/new %s/pid; exec sleep 600'"):format(folder, folder,
        folder) },
    }
    assert.has_error(function()
      pool.run(jobs, 2, function() error("enough", 0) end)
    end, "enough")
    assert.not_equal(0, shell.run("kill -0 " .. shell.read(folder .. "/pid")).code)
    assert.equal("pid\n", shell.run("ls " .. folder).out)
  end)
end)

describe("the comment that a spec file opens with", function()
  it("says things by words, or nothing", function()
    local path = os.tmpname()
    shell.write(path, "-- Something.\n-- ranks: 1 3\n-- sanitizers: no, for a reason\nlocal x\n-- later: not seen\n")
    assert.same({ 1, 3 }, spec.ranks_of(path))
    assert.equal(" no, for a reason", spec.said(path, "sanitizers"))
    assert.is_nil(spec.said(path, "later"))
    os.remove(path)
  end)
end)
