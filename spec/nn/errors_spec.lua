--- Wrong options and wrong shapes: the message says what, and in which module.
local device = require "spec.support.device"
local gm = require "ganymede"
local nn = require "ganymede.nn"

local function fails(pattern, fn) assert.error_matches(function() gm.scope(fn) end, pattern) end

describe("options of layers", function()
  it("unknown: the nearest name", function()
    local _, message = pcall(function() nn.Linear { inputs = 3, output = 2 } end)
    assert.equal("Linear has no option 'output' (did you mean 'outputs'?)", (message:gsub("^.-:%d+: ", "")))
  end)

  it("the message begins with the line that was wrong", function()
    for _, fn in ipairs {
      function() nn.Linear { inputs = 3, output = 2 } end,
      function() nn.Linear { inputs = 3, in_features = 3, outputs = 2 } end,
      function() nn.MultiHeadAttention { width = 10, heads = 3 } end,
      function() nn.Sequential { nn.ReLU(), 3 } end,
      function() nn.ModuleList():append(3) end,
      function() nn.Embedding { count = 5, width = 2, padding_index = 5 } end,
      function() nn.PatchEmbedding { image_size = 28, patch_size = 5, width = 8 } end,
      function() nn.Classifier { inputs = 5, classes = 7, weight = nn.ReLU() } end,
      function() nn.TransformerBlock { width = 6, heads = 2, mlp_ratio = 1.3 } end,
      function() nn.TransformerBlock { width = 6, heads = 2, input_norms = false } end,
      function() nn.MultiHeadAttention { width = 6, heads = 2, qk_norm_joint = true } end,
      function() gm.models.MLP { inputs = 3, classes = 2, hidden = { 0 } } end,
    } do
      local _, message = pcall(fn)
      local line = debug.getinfo(fn, "S").linedefined
      assert.is_truthy(message:find("errors_spec.lua:" .. line .. ": ", 1, true), message)
    end
  end)

  it("factors of LongRoPE that are not one for each pair", function()
    local function layer(more)
      local scaling = { type = "longrope", length = 8, factor = 2, short = { 1, 1 }, long = { 2, 3 } }
      for key, value in pairs(more) do scaling[key] = value end
      return function() nn.MultiHeadAttention { width = 8, heads = 2, rotary = { scaling = scaling } } end
    end
    fails("rotary.scaling.short has 1 factors, and 2 pairs of a head are turned", layer { short = { 1 } })
    fails("rotary.scaling.long%[2%] must be a number above 0; got 0", layer { long = { 1, 0 } })
    fails("option 'length' must be an integer, at least 2; got 1", layer { length = 1 })
  end)

  it("missing, of the wrong type, out of range", function()
    fails("Linear: option 'outputs' is missing", function() nn.Linear { inputs = 3 } end)
    fails("option 'inputs' must be an integer, at least 1; got 0", function() nn.Linear(0, 2) end)
    fails("option 'activation' must be one of.*did you mean 'relu'", function()
      nn.Linear { inputs = 1, outputs = 1, activation = "rleu" }
    end)
  end)

  it("PyTorch's names are aliases, positions work", function()
    assert.equal("Linear { inputs = 3, outputs = 2 }", nn.Linear { in_features = 3, out_features = 2 }:describe())
    assert.equal("Linear { inputs = 3, outputs = 2 }", nn.Linear(3, 2):describe())
    assert.equal("Embedding { count = 5, padding_index = 0, width = 2 }",
      nn.Embedding { num_embeddings = 5, embedding_dim = 2, padding_idx = 0 }:describe())
    assert.equal("LayerNorm { width = 8 }", nn.LayerNorm { normalized_shape = 8 }:describe())
    fails("are the same option", function() nn.Linear { in_features = 3, inputs = 3, outputs = 2 } end)
  end)

  it("that contradict each other", function()
    fails("padding_index 5 is not a row of a table of 5", function()
      nn.Embedding { count = 5, width = 2, padding_index = 5 }
    end)
    fails("patches of 5 x 5 do not tile an image of 28 x 28; patch_size must divide each side", function()
      nn.PatchEmbedding { image_size = 28, patch_size = 5, channels = 1, width = 8 }
    end)
    fails("image_size must be an integer or a list of 2, one for each dimension of the image", function()
      nn.PatchEmbedding { image_size = { 28 }, space = 2, patch_size = 4, width = 8 }
    end)
    fails("image_size lists 4 dimensions; an image has one to three", function()
      nn.PatchEmbedding { image_size = { 8, 8, 8, 8 }, patch_size = 4, width = 8 }
    end)
    fails("a window of 4 x 4 has two sides, and shift = 4 is not below them", function()
      nn.WindowAttention { width = 8, heads = 2, window = 4, shift = 4 }
    end)
    fails("the weight to share has the shape %(7, 4%), and this layer needs %(7, 5%)", function()
      nn.Classifier { inputs = 5, classes = 7, weight = nn.Embedding(7, 4) }
    end)
    fails("has no parameter 'weight' to share", function()
      nn.Classifier { inputs = 5, classes = 7, weight = nn.ReLU() }
    end)
    fails("not both: the owner of the weight", function()
      nn.Classifier { inputs = 4, classes = 7, weight = nn.Embedding(7, 4), weight_initializer = "zeros" }
    end)
  end)

  it("every one has a sentence", function()
    local registry = require "ganymede.base.registry"
    require "ganymede.models"
    for _, kind in ipairs { "layers", "models", "losses" } do
      for _, name in ipairs(registry[kind]:names()) do
        local class = registry[kind]:get(name)
        for option, entry in pairs(type(class) == "table" and class.options or {}) do
          assert.is_truthy(entry.doc and #entry.doc > 0, ("%s.%s has no doc"):format(name, option))
        end
      end
    end
  end)
end)

it("a load that fails leaves recording as it was", function()
  local layer = nn.Linear(2, 2)
  layer:materialize()
  fails("no such file", function() layer:load(function() error("no such file") end) end)
  gm.scope(function()
    layer(gm.ones { 1, 2 }):sum():backward()
    assert.same({ 1, 1 }, layer.bias:grad():totable())
  end)
end)

describe("a wrong shape", function()
  local function model()
    return gm.models.VisionTransformer {
      image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 8, depth = 2, heads = 2,
    }
  end

  it("names the module in which it happened, level by level", function()
    local levels = { "in blocks%.2%.mlp%.up: Linear", "in blocks%.2%.mlp: MLP", "in blocks%.2: TransformerBlock",
      "in the model: VisionTransformer" }
    fails(table.concat(levels, ".*\n  "), function()
      local vit = model()
      vit.blocks[2].mlp.up.weight = gm.ones { 32, 9 }
      vit(gm.ones { 2, 1, 8, 8 })
    end)
  end)

  it("of an image says what was wanted and what came", function()
    fails("images must be %(batch, 1, 8, 8%); got %(2, 3, 8, 8%)\n  in patches: PatchEmbedding",
      function() model()(gm.ones { 2, 3, 8, 8 }) end)
  end)

  it("of x in attention, Linear and norms", function()
    fails("x must be %(batch, sequence, 8%); got %(3, 8%)", function()
      nn.MultiHeadAttention(8, 2)(gm.ones { 3, 8 })
    end)
    fails("4.*3.*\n  in the model: Linear", function() nn.Linear(3, 2)(gm.ones { 5, 4 }) end)
    fails("in the model: LayerNorm", function() nn.LayerNorm(3)(gm.ones { 5, 4 }) end)
  end)

  it("of an argument that is missing or no tensor says what came", function()
    local x = gm.ones { 2, 3 }
    local calls = {
      ["must be a tensor, .*; got nothing\n  in the model: CrossEntropyLoss$"] = { nn.CrossEntropyLoss {}, x },
      ["MSELoss, which was called with a tensor %(2, 3%), 3$"] = { nn.MSELoss {}, x, 3 },
      ["Conv2d {.*}, which was called with 3\n  in the model: Downsample {[^}]*}$"] = { nn.Downsample(2), 3 },
      ["Conv1d {.*}, which was called with nothing$"] = { nn.Conv1d(1, 1, 1) },
    }
    for said, call in pairs(calls) do
      fails(said, function() call[1](unpack(call, 2)) end)
    end
  end)

  it("of a sequence longer than the positions", function()
    fails("a sequence of 5 is longer than the 4 positions", function()
      nn.PositionEmbedding(4, 2)(gm.ones { 1, 5, 2 })
    end)
  end)

  it("an index outside the table", function()
    -- a GPU finds it when it gets there: the module has returned, and the op is named where something waits
    local said = device.is_cpu() and "in the model: Embedding" or "embedding: index 4 at position 1 .* a table of 4"
    fails(said, function()
      nn.Embedding(4, 2)(gm.tensor({ 0, 4 }, { dtype = "i64" })):totable()
    end)
  end)
end)
