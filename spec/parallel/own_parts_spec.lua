--- A recipe that asks for its place along the pipeline and builds that part alone: a transformer for images in two
-- stages trains as the whole model does on one rank.
-- sanitizers: no, numbers of several ranks are compared; spec/pipeline looks at the same code
local assert = require "luassert"
local job = require "spec.parallel.job"
local pipelines = require "spec.parallel.pipelines"

-- The names are those of VisionTransformer, and so are the initial weights and what is dropped.
local own_model = [[
local gm = require "ganymede"
local nn, ops = gm.nn, gm.ops

local Part = nn.class "ImagePart"
Part.options = { width = { type = "integer", doc = "width of the stream" } }

local function block(width, i)
  return nn.TransformerBlock {
    width = width, heads = 4, dropout = 0.1, attention_dropout = 0.1, drop_path = 0.1 * (i - 1) / 5,
    weight_initializer = { type = "xavier_uniform" }, bias_initializer = { type = "zeros" },
  }
end

function Part:build(opt)
  local width = opt.width
  self.place, self.places = gm.context.get_local_rank "pipeline", gm.context.get_world_size "pipeline"
  if self.place == 0 then
    self.patches = nn.PatchEmbedding { image_size = 28, patch_size = 7, channels = 1, width = width,
      weight_initializer = { type = "lecun_normal" }, bias_initializer = { type = "zeros" } }
    self.dropout = nn.Dropout(0.1)
  end
  self.blocks = nn.ModuleList()
  for i = 1 + self.place * 6 / self.places, (self.place + 1) * 6 / self.places do
    self.blocks[i] = block(width, i)
  end
  if self.place == self.places - 1 then
    self.norm = nn.LayerNorm { width = width, eps = 1e-5 }
    self.head = nn.Classifier { inputs = width, classes = 10, weight_initializer = { type = "xavier_uniform" },
                                bias_initializer = { type = "zeros" } }
  end
end

function Part:forward(x)
  if self.patches then x = self.dropout(self.patches(x)) end
  for _, each in self.blocks:each() do x = each(x) end
  if not self.head then return x end
  return self.head((self.norm(ops.select(x, 2, 1))))
end
]]

local recipe = pipelines.recipes.vit:gsub("^return", function() return own_model .. "\nreturn" end)
recipe = recipe:gsub("model = {.-drop_path = 0.1 }", "model = function() return Part { width = 24 } end")

describe("a recipe that builds its own part #ranks", function()
  pipelines.examples(it, {
    { model = "vit", recipe = recipe, order = "1f1b", parallel = "{pipeline=2}", mesh = { pipeline = 2 } },
    { model = "vit", recipe = recipe, order = "zb-h1", parallel = "{data=2,pipeline=2}",
      mesh = { data = 2, pipeline = 2 } },
  })

  it("is refused where every stage built the whole model", function()
    local whole = recipe:gsub("gm%.context%.get_local_rank \"pipeline\", gm%.context%.get_world_size \"pipeline\"",
      "0, 1")
    local stats = job.run(whole, 2, { steps = 1, code = 2, set = { "parallel={pipeline=2}" } })
    assert.truthy((stats.out .. stats.err):find("every stage holds the whole model", 1, true))
  end)
end)
