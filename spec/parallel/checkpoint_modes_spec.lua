--- Checkpoints move between layouts: a run that goes on in another mode after every third step has the losses, the
-- parameters and the moments of one that never left its one rank, and its files hold no padding.
-- sanitizers: no, numbers of several ranks are compared; spec/checkpoint looks at the same code
local chain = require "spec.parallel.chain"
local equality = require "spec.parallel.equality"

-- The stops of a chain by their names in spec/parallel/equality.lua.
local function go(model, names)
  local stops = {}
  for i, name in ipairs(names) do
    stops[i] = name == "serial" and { name = name, ranks = 1, parallel = "{data=1}", mesh = {} }
      or assert(equality[name], name)
  end
  chain.run(model, stops, 3)
end

describe("checkpoints in tensor and sequence modes #ranks", function()
  it("go round all modes: gpt", function()
    go("gpt", { "serial", "1d on 4", "3d on 8", "2d on 4", "ring on 2", "2.5d on 8", "1d with sequences on 2",
                "ulysses on 2, data 2", "serial" })
  end)

  it("go from mode to mode the other way: vit", function()
    go("vit", { "2.5d on 8", "2d on 4", "3d on 8", "1d on 2", "ring on 3" })
  end)

  it("go between modes with data parallelism: bert #slow", function()
    go("bert", { "2d on 4, data 2", "1d with sequences on 2, data 2", "ring on 2, 2d on 4", "3d on 8",
                 "ulysses on 2, 1d on 2", "2.5d on 8", "1d on 4" })
  end)
end)
