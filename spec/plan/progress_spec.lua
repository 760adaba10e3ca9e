--- What a search says of itself: findings at once, signs of life when nothing was said for some seconds.
local core = require "ganymede.core"
local progress_of = require "ganymede.plan.search.progress"
local shell = require "spec.support.shell"

local RECIPE = [[
return require("ganymede").recipe {
  model = { type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 },
  data = { train = { type = "Synthetic" }, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 1e-2 }, steps = 2,
}
]]

describe("the progress of a search", function()
  local now, clock, said = core.now, 100, {}
  before_each(function()
    clock, said = 100, {}
    core.now = function() return clock end
  end)
  after_each(function() core.now = now end)

  local function begun()
    return progress_of(function(text, slow) said[#said + 1] = (slow and "slow: " or "") .. text end)
  end

  it("is silent in a short search, and says a word each ten seconds after the first five", function()
    local progress, asked = begun(), 0
    for second = 0, 31 do
      clock = 100 + second
      progress:beat(function(text)
        asked = asked + 1
        return text .. second
      end, "at ")
    end
    assert.same({ "slow: at 5", "slow: at 15", "slow: at 25" }, said)
    assert.equal(3, asked) -- a text that nobody reads is not made
  end)

  it("says what is found at once, and no word right behind it", function()
    local progress = begun()
    clock = 104
    progress:found "best"
    clock = 108
    progress:beat(function() return "life" end)
    assert.same({ "best" }, said)
    clock = 109
    progress:beat(function() return "life" end)
    assert.same({ "best", "slow: life" }, said)
  end)

  it("says nothing where nobody listens", function()
    local progress = progress_of()
    clock = 1000
    progress:found "best"
    progress:beat(function() error "asked" end)
    assert.same({}, said)
  end)

  it("comes from a search: of its rehearsals on one rank, and of what is left", function()
    core.now = function() -- each look at the clock is a minute later
      clock = clock + 60
      return clock
    end
    local search, recipe = require "ganymede.plan.search", os.tmpname()
    finally(function() os.remove(recipe) end)
    shell.write(recipe, RECIPE)
    search { recipe = recipe, ranks = 2, machine = "cpu_ethernet", top = 3,
      tell = function(text, slow) said[#said + 1] = (slow and "slow: " or "") .. text end }
    local all = table.concat(said, "\n")
    assert.is_truthy(all:find("^the recipe's step is rehearsed on one rank\n"), all)
    assert.is_truthy(all:find("slow: the recipe's step is still rehearsed", 1, true), all)
    assert.is_truthy(all:find("slow: %d+ rehearsed, %d+ reckoned, 0 simulated; %d+ pieces of a batch; none is "
      .. "simulated yet; %d+ settings are left, which take [%d.e-]+ s at least"), all)
    assert.is_truthy(all:find "\n%d+ rehearsed, %d+ reckoned, %d+ simulated; best so far", all)
    local line = "slow: [^\n]*best so far (%S+) s; [^\n]* which take (%S+) s at least: at most (%S+) %% faster"
    for best, least, more in all:gmatch(line) do
      assert.near(math.max(0, 100 * (best / least - 1)), tonumber(more), 0.2) -- times have 4 digits
      said.percent = more
    end
    assert.is_truthy(said.percent, all)
  end)
end)
