--- The paper's multilayer perceptron, recipes/mlp_2d.lua: on four ranks it trains to the losses of one rank, cut as its
-- layers say.
-- sanitizers: no, numbers of four ranks are compared; spec/tensor looks at the same code
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

describe("recipes/mlp_2d.lua", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function run(...)
    local result = run_host({ "run", GANYMEDE_ROOT .. "/recipes/mlp_2d.lua", "--steps", "3", "--threads", "1",
                              "--stats", folder .. "/stats.json", ... }, { cwd = folder, timeout = 300 })
    assert.equal(0, result.code, result.err)
    return json.decode(shell.read(folder .. "/stats.json"))
  end

  it("has on four ranks the losses of one, a quarter of the parameters on each, and sends", function()
    local four, one = run("-n", "4"), run("--set", "parallel.tensor.size=1")
    assert.equal(3, #one.loss)
    assert.is_true(one.loss[3] < one.loss[1])
    for k, loss in ipairs(one.loss) do assert.near(loss, four.loss[k], 1e-5 * loss) end -- f32: design, section 5
    local count = 2 * 1024 * 8192 + 8192 + 2 * 8192 + 1024
    assert.equal(4 * count, one.ranks[1].parameter_bytes)
    assert.equal(0, #one.ranks[1].comm)
    assert.equal(4, #four.ranks)
    for _, rank in ipairs(four.ranks) do
      assert.equal(count, rank.parameter_bytes) -- 4 bytes a number, every parameter cut over all 4 ranks
      local axes = {}
      for _, entry in ipairs(rank.comm) do
        if entry.op == "broadcast" and entry.bytes_logical > 0 then axes[table.concat(entry.axes, ".")] = true end
      end
      assert.same({ row = true, col = true }, axes) -- SUMMA over both axes of the grid
    end
  end)
end)
