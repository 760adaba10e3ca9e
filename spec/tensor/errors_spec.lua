-- What tensor modes refuse: the message says what, where, and what to try.
-- ranks: 4 8
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"
local parallel = require "ganymede.job.parallel"

local world = core.world()

local function install(mode, more)
  local tensor = { size = world, mode = mode }
  for key, value in pairs(more or {}) do tensor[key] = value end
  against.install { tensor = tensor }
end

-- The message begins with the line of `fn` that was wrong, where it has one.
local function fails(pattern, fn, no_line)
  local ok, message = pcall(gm.scope, fn)
  assert.is_false(ok, "nothing failed")
  assert.matches(pattern, message)
  if no_line then return end
  assert.is_truthy(message:find("errors_spec.lua:" .. debug.getinfo(fn, "S").linedefined .. ": ", 1, true), message)
end

local function refused(tensor, ranks)
  local plan, message = parallel.resolve({ tensor = tensor }, ranks)
  assert.is_nil(plan)
  return message
end

describe("tensor modes refuse", function()
  if world == 4 then
    it("heads that do not divide, and say which sizes would do", function()
      install "1d"
      fails("6 heads cannot be divided evenly over 4 ranks; with these heads the ranks may be 1, 2, 3, 6, and on 4 "
        .. "ranks the number of heads must be a multiple of 4",
        function() nn.MultiHeadAttention { width = 12, heads = 6 } end)
      fails("8 heads and 2 key heads cannot be .* the ranks may be 1, 2,",
        function() nn.MultiHeadAttention { width = 16, heads = 8, kv_heads = 2 } end)
      install "2d" -- 2 parts
      fails("5 heads cannot be divided evenly over 2 ranks",
        function() nn.MultiHeadAttention { width = 10, heads = 5 } end)
      nn.MultiHeadAttention { width = 12, heads = 6 }
    end)

    it("one head, in an autoencoder that has an option for it", function()
      install "1d"
      fails("MultiHeadAttention: 1 head cannot be divided evenly over 4 ranks; with this head the ranks may be 1, and",
        function() nn.MultiHeadAttention { width = 4, heads = 1 } end)
      local small = { width = 4, multipliers = { 1 }, blocks = 1, groups = 2 }
      fails("AutoencoderKL: its attention has one head, which 4 ranks of parallel.tensor cannot divide; .*"
        .. "%(attention = false%)", function() gm.models.AutoencoderKL(small) end)
      small.attention = false
      gm.models.AutoencoderKL(small)
    end)

    it("heads of which they leave too few for Ulysses", function()
      against.install { tensor = { size = 2, mode = "1d" }, sequence = { size = 2, mode = "ulysses" } }
      fails("but 2 key heads, of which parallel.tensor leaves 1 on a rank, cannot be divided evenly over 2; with them "
        .. "parallel.sequence.size may be 1, and", function()
          nn.MultiHeadAttention { width = 8, heads = 2 }
        end, true)
      nn.MultiHeadAttention { width = 8, heads = 4 }
    end)

    it("a class of another mode", function()
      install "2d"
      fails("Linear3D belongs to tensor mode 3d, and this job's mode is 2d; the generic name builds the class",
        function() nn.Linear3D(4, 4) end)
      fails("VocabParallelEmbedding1D belongs to tensor mode 1d",
        function() nn.VocabParallelEmbedding1D { count = 4, width = 4 } end)
      fails("Linear1D_Col belongs to tensor mode 1d", function() nn.Linear1D_Col(4, 4) end)
      fails("MLP2p5D belongs to tensor mode 2.5d", function() nn.MLP2p5D { width = 4 } end)
      assert.equal("Linear2D", nn.Linear2D(4, 4).name)
    end)

    it("to share a table that is cut in another way", function()
      install "2d"
      local plain, wide = nn.Embedding { count = 9, width = 4 }, nn.VocabParallelEmbedding2D { count = 9, width = 4 }
      fails("VocabParallelClassifier2D cannot share the weight of Embedding2D",
        function() nn.VocabParallelClassifier2D { inputs = 4, classes = 9, weight = plain } end)
      fails("Classifier2D cannot share the weight of VocabParallelEmbedding2D.*generic name",
        function() nn.Classifier2D { inputs = 4, classes = 9, weight = wide } end)
    end)

    it("activations without a batch", function()
      install "2d"
      fails("activations are %(batch, ..., width%); got %(4%)", function() nn.Linear(4, 4)(gm.zeros { 4 }) end, true)
    end)

    it("settings that have no meaning", function()
      assert.matches("tensor.sequence: cuts the stream between the layers of mode 1d; in 2d the stream is cut already",
        refused({ size = 4, mode = "2d", sequence = true }, 4))
      assert.matches('tensor.mode: must be one of "1d", .*; got "2D" %(did you mean .2d.%?%)',
        refused({ size = 4, mode = "2D" }, 4))
      assert.matches("tensor.depth: belongs to mode 2.5d, not to 3d", refused({ size = 8, mode = "3d", depth = 2 }, 8))
      assert.matches("legal sizes: 1, 4, 9, 16", refused({ size = 6, mode = "2d" }, 6))
      assert.matches("legal depths for size 8: 2 %(q = 2%), 8 %(q = 1%)", refused({ size = 8, mode = "2.5d" }, 8))
    end)

    it("nothing where no layer is cut: explicit names build the plain layer", function()
      for _, given in ipairs { {}, { sequence = 4 } } do
        against.install(given)
        for _, name in ipairs { "Linear1D", "Linear2D", "Linear2p5D", "Linear3D", "Linear1D_Col", "Linear1D_Row" } do
          gm.scope(function()
            local layer = nn[name](3, 5)
            local x = gm.uniform({ 2, 5, 3 }, { seed = 4 })
            numeric.agree(core.gather(layer(x)), gm.ops.linear(x, layer.weight, layer.bias), 1e-6)
            assert.same({ {}, {} }, core.layout(layer.weight).cuts, name)
          end)
        end
      end
    end)
  else
    it("to add the two forms of 3D, which differ after an odd number of Linears", function()
      install "3d"
      local x = gm.uniform({ 8, 3, 4 }, { seed = 3 })
      local one, two = nn.Linear(4, 4), nn.Linear { inputs = 4, outputs = 4, partition = "row" }
      fails("weight.input, %-, output.*weight.output, %-, input.*redistribute", function()
        local stream = nn.LayerNorm(4)(x)
        return stream + one(stream)
      end, true)
      gm.scope(function() -- after two they are the same again
        local stream = nn.LayerNorm(4)(x)
        assert.same({ 8, 3, 4 }, (stream + two(one(stream))):shape())
      end)
    end)
  end
end)
