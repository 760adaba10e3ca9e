--- Which machines of an allocation have died, as scontrol tells it, and what goes on with the others.
-- sanitizers: no, it holds Lua alone
local batch = require "ganymede.job.batch_attempts"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local memory_file = require "ganymede.job.memory_file"
local shell = require "spec.support.shell"
local slurm_nodes = require "ganymede.job.slurm_nodes"
local steps = require "ganymede.job.steps"

local function line(name, state)
  return ("NodeName=%s Arch=x86_64 CPUAlloc=2 State=%s ThreadsPerCore=1\n"):format(name, state)
end

describe("machines of an allocation of Slurm", function()
  it("are dead where they are down, fail or do not answer", function()
    local alive, dead = slurm_nodes.sorted(line("n1", "ALLOCATED") .. line("n2", "DOWN*") .. line("n3", "MIXED+DRAIN")
      .. line("n4", "ALLOCATED*") .. line("n5", "DOWN+NOT_RESPONDING") .. line("n6", "FAILING") .. line("n7", "IDLE"))
    assert.same({ "n1", "n3", "n7" }, alive)
    assert.same({ "n2", "n4", "n5", "n6" }, dead)
  end)

  describe("that have died are left out by the next ranks", function()
    local home, look, getenv
    before_each(function()
      home, look, getenv = shell.temporary_folder(), slurm_nodes.look, os.getenv
      os.getenv = function(name) -- luacheck: ignore 122
        return name == "SLURM_JOB_ID" and "7" or getenv(name)
      end
      batch.begin(home)
    end)
    after_each(function()
      slurm_nodes.look, os.getenv = look, getenv -- luacheck: ignore 122
      shell.remove(home)
    end)

    -- Ranks of 3 machines with 2 places each have died, and so have these machines.
    local function ended(dead, worlds)
      local alive = {}
      for _, name in ipairs { "n1", "n2", "n3" } do
        if not dead:find(name) then alive[#alive + 1] = name end
      end
      slurm_nodes.look = function() return alive, dead == "" and {} or { dead } end
      if worlds then
        shell.write(home .. "/fewer.json", json.encode { world = 6, worlds = json.array(worlds), why = "5 does not" })
      end
      return batch.ended(home, 6, 6, { most = 2, delay = 0.5, nodes = 3 })
    end

    it("as few as there must be", function()
      assert.equal(0.5, (ended("n2", { { ranks = 4, sets = { "parallel.data.size=2" } }, { ranks = 2, sets = {} } })))
      assert.same({ job = "7", ranks = 4, sets = { "parallel.data.size=2" }, nodes = { "n1", "n3" } },
        json.decode(machine.read(home .. "/resized.json"), "resized.json"))
      local words = table.concat((steps.last_size(home)), " ")
      assert.is_truthy(words:find("srun --overlap --jobid=7 --nodes=2 --nodelist=n1,n3 --ntasks=4", 1, true), words)
    end)

    it("not while all are there", function()
      assert.equal(0.5, (ended("", { { ranks = 4, sets = {} } })))
      assert.is_nil(machine.read(home .. "/resized.json"))
    end)

    it("not where no smaller number fits, or none is known", function()
      local pause, why = ended("n2", { { ranks = 5, sets = {} } })
      assert.is_nil(pause)
      assert.equal("n2 died, the other machines have 4 places for ranks, and no smaller number fits (5 does not)", why)
      os.remove(home .. "/fewer.json")
      pause, why = ended "n2"
      assert.is_nil(pause)
      assert.matches("had not begun to train", why)
    end)

    it("and what they had in memory counts as progress", function()
      for step = 1, 5 do
        memory_file.write(home, "00ff", step)
        assert.equal(0.5, (batch.ended(home, 6, 6, { most = 1, delay = 0.5 })))
      end
      assert.equal(0.5, (batch.ended(home, 6, 6, { most = 1, delay = 0.5 })))
      assert.is_nil((batch.ended(home, 6, 6, { most = 1, delay = 0.5 })))
    end)
  end)
end)
