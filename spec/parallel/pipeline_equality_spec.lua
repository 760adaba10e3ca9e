--- Training in stages is training on one rank: GPT (tied), BERT (several tensors cross a border) and ViT, by every
-- order of passes, on 2, 3 and 4 stages. spec/parallel/pipelines.lua has models, limits and what a run must show; the
-- hybrids are in hybrid_spec.lua. The cases without a tag take each order once and each number of stages with each
-- model; #slow has the rest.
-- sanitizers: no, numbers of several ranks are compared; spec/pipeline looks at the same code
local pipelines = require "spec.parallel.pipelines"

-- order -> chunks of a rank
local orders = { { "gpipe", 1 }, { "1f1b", 1 }, { "zb-h1", 1 }, { "zb-h2", 1 }, { "interleaved", 2 }, { "zb-v", 2 } }

local function case(model, stages, order, more)
  local chunks
  for _, entry in ipairs(orders) do chunks = entry[1] == order and entry[2] or chunks end
  local given = {
    model = model, order = order, mesh = { pipeline = stages },
    parallel = chunks > 1 and ("{pipeline={size=%d,chunks=%d}}"):format(stages, chunks) or
      ("{pipeline=%d}"):format(stages),
  }
  for key, value in pairs(more or {}) do given[key] = value end
  return given
end

describe("training in pipelines #ranks", function()
  local fast = {
    case("gpt", 2, "zb-h1"), case("gpt", 3, "1f1b"), case("gpt", 4, "interleaved"),
    case("vit", 2, "gpipe"), case("vit", 3, "zb-v"), case("vit", 4, "1f1b"),
    case("bert", 2, "interleaved"), case("bert", 3, "zb-h2"), case("bert", 4, "zb-v"),
    case("gpt", 2, "1f1b", { dtype = "f32" }), case("vit", 2, "zb-v", { dtype = "f32" }),
  }
  pipelines.examples(it, fast)

  local done, slow = {}, {}
  for _, given in ipairs(fast) do done[table.concat({ given.model, given.mesh.pipeline, given.order }, " ")] = true end
  for _, model in ipairs { "gpt", "vit", "bert" } do
    for stages = 2, 4 do
      for _, entry in ipairs(orders) do
        local key = table.concat({ model, stages, entry[1] }, " ")
        if not done[key] then slow[#slow + 1] = case(model, stages, entry[1]) end
      end
    end
  end
  pipelines.examples(it, slow, "slow")
end)
