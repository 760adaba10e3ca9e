--- Checkpoints of pipelines move to and from every other layout: a run whose stages, order and mesh change after every
-- second step has the losses, parameters and moments of one that stayed on one rank; its files hold each number once.
--
-- Embedding and head of the GPT are one tensor, which the first and the last stage hold; dropout is on. The mixture of
-- experts routes each micro-batch by itself, so that the run that stays takes the same ones.
-- sanitizers: no, numbers of several ranks are compared; spec/checkpoint and spec/pipeline look at the same code
local chain = require "spec.parallel.chain"

local each = 2

local function stop(name, ranks, parallel, mesh, schedule)
  local set = { "num_microbatches=4", schedule and "schedule=" .. schedule }
  return { name = name, ranks = ranks, parallel = parallel, mesh = mesh, set = set }
end

local function order(name) return ('{type="PipelineSchedule",order="%s"}'):format(name) end

local plain = { name = "serial", ranks = 1, parallel = "{data=1}", mesh = {} }
local pieces = stop("serial in micro-batches", 1, "{data=1}", {}, order "gpipe")

describe("checkpoints of pipelines #ranks", function()
  it("go round orders, stages and meshes: gpt", function()
    chain.run("gpt", {
      plain,
      stop("1f1b on 2", 2, "{pipeline=2}", { pipeline = 2 }),
      stop("1f1b on 2, data 2", 4, "{pipeline=2}", { data = 2, pipeline = 2 }),
      stop("zb-v on 2", 2, "{pipeline=2}", { pipeline = 2 }, order "zb-v"),
      stop("1f1b on 2, 1d on 2", 4, '{pipeline=2,tensor={size=2,mode="1d"}}', { pipeline = 2, tensor = 2 }),
      stop("interleaved on 2", 2, "{pipeline=2}", { pipeline = 2 },
        '{type="InterleavedPipelineSchedule",num_model_chunks=2}'),
      stop("zb-h1 on 2, 2d on 4", 8, '{pipeline=2,tensor={size=4,mode="2d"}}', { pipeline = 2, row = 2, col = 2 },
        order "zb-h1"),
      pieces,
    }, each)
  end)

  it("move mixtures of experts: gpt", function()
    chain.run("moe", {
      stop("1f1b on 2, experts on 2", 4, "{pipeline=2,data=2,expert=2}", { pipeline = 2, expert = 2 }),
      stop("experts on 2", 2, "{data=2,expert=2}", { expert = 2 }, order "gpipe"),
      stop("zb-h2 on 2", 2, "{pipeline=2}", { pipeline = 2 }, order "zb-h2"),
    }, each, pieces)
  end)

  it("go round hybrids of three kinds: bert #slow", function()
    chain.run("bert", {
      stop("1f1b on 2, ring on 2, data 2", 8, '{pipeline=2,sequence={size=2,mode="ring"}}',
        { data = 2, pipeline = 2, sequence = 2 }),
      stop("zb-h2 on 3", 3, "{pipeline=3}", { pipeline = 3 }, order "zb-h2"),
      stop("gpipe on 2, 1d with sequences on 2, data 2", 8, '{pipeline=2,tensor={size=2,mode="1d",sequence=true}}',
        { data = 2, pipeline = 2, tensor = 2 }, order "gpipe"),
      stop("2.5d on 8", 8, '{tensor={size=8,mode="2.5d",depth=2}}', { depth = 2, row = 2, col = 2 }, order "gpipe"),
      stop("1f1b on 4, by a list", 4, "{pipeline={size=4,split={1,1,1,1}}}", { pipeline = 4 }),
      plain,
    }, each)
  end)
end)
