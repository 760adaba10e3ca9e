--- Convolution layers: shapes, initial weights as PyTorch's, and what is refused where it was written.
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local function fails(pattern, fn) assert.error_matches(function() gm.scope(fn) end, pattern) end

describe("convolution layers", function()
  it("begin with weights within 1/sqrt(fan_in), the second size of W times the kernel", function()
    gm.scope(function()
      local function check(layer, shape, fan)
        assert.same(shape, layer.weight:shape())
        for _, t in ipairs { layer.weight, layer.bias } do assert.is_true(numeric.size(t) <= 1 / math.sqrt(fan)) end
        assert.is_true(numeric.size(layer.weight) > 0.95 / math.sqrt(fan))
      end
      check(nn.Conv2d { in_channels = 12, out_channels = 40, kernel_size = 3, groups = 4 }, { 40, 3, 3, 3 }, 27)
      check(nn.Conv1d(4, 50, 5), { 50, 4, 5 }, 20)
      check(nn.ConvTranspose2d { in_channels = 40, out_channels = 12, kernel_size = { 3, 2 }, groups = 4 },
        { 40, 3, 3, 2 }, 18)
    end)
  end)

  it("take an activation, which is the op's", function()
    gm.scope(function()
      local layer = nn.Conv1d { in_channels = 2, out_channels = 3, kernel_size = 2, activation = "silu" }
      local x = gm.uniform({ 2, 2, 5 }, { low = -1, high = 1, seed = 3 })
      local plain = gm.ops.convolution(x, layer.weight, layer.bias)
      numeric.agree(layer(x), gm.ops.silu(plain), 1e-6)
    end)
  end)

  it("refuse options that do not fit, at the line that gave them", function()
    local function conv(more)
      local opt = { in_channels = 4, out_channels = 6, kernel_size = 3 }
      for k, v in pairs(more) do opt[k] = v end
      return function()
        local layer = nn.Conv2d(opt)
        return layer
      end
    end
    fails("Conv2d: in_channels = 4 cannot be divided into 3 groups", conv { groups = 3 })
    fails("Conv2d: out_channels = 6 cannot be divided into 4 groups", conv { groups = 4 })
    fails("Conv2d: stride has 3 numbers, and there are 2 dimensions of space", conv { stride = { 1, 1, 1 } })
    fails("Conv2d: kernel_size must hold whole numbers from 1 on; got 0", conv { kernel_size = { 3, 0 } })
    fails('Conv2d: padding = "same" needs a stride of 1', conv { padding = "same", stride = 2 })
    fails('padding must be a number, a list, "same" or "valid"; got "full"', conv { padding = "full" })
    fails("padding of a dimension is a number or { in front, behind }", conv { padding = { { 1 }, 0 } })
    fails("option 'padding' must be.*got %-1", conv { padding = -1 })
    fails("has no option 'kernel' %(did you mean 'kernel_size'%?%)", conv { kernel = 3 })
    fails("has no option 'output_padding'", conv { output_padding = 1 })
    fails("ConvTranspose2d: output_padding of dimension 2 is 2, and must be less than the "
      .. "stride, 2", function()
        nn.ConvTranspose2d { in_channels = 4, out_channels = 2, kernel_size = 3, stride = { 3, 2 }, output_padding = 2 }
      end)
    for _, wrong in ipairs { { groups = 3 }, { stride = { 1 } }, { kernel_size = { 1, 0 } }, { padding = "full" },
      { padding = { 1, -1 } }, { padding = { { 1 }, 0 } } } do
      local _, message = pcall(conv(wrong))
      assert.is_truthy(message:find "convolution_spec.lua:%d+: Conv2d: ", message)
    end
  end)

  it("refuse inputs of other shapes", function()
    fails("x must be %(batch, 3, height, width%); got %(2, 4, 8, 8%)", function()
      nn.Conv2d(3, 2, 3)(gm.ones { 2, 4, 8, 8 })
    end)
    fails("x must be %(batch, 3, length%); got %(3, 8%)", function() nn.Conv1d(3, 2, 3)(gm.ones { 3, 8 }) end)
    fails("reaches over 3 elements of dimension 3, which has 2 with its padding", function()
      nn.Conv1d(3, 2, 3)(gm.ones { 1, 3, 2 })
    end)
  end)

  it("as ops refuse options that do not fit", function()
    local x, w = gm.ones { 1, 2, 5 }, gm.ones { 3, 2, 2 }
    local function refused(options, pattern)
      assert.error_matches(function() gm.ops.convolution(x, w, nil, options) end, pattern)
    end
    refused({ stride = { 1, 2 } }, "stride has 2 numbers, and the tensor has 1 dimension of space")
    refused({ stride = { 1.5 } }, "stride holds whole numbers")
    refused({ padding = { { 1, 2, 3 } } }, "padding of a dimension is a number or { in front, behind }")
    refused({ padding = "same" }, "option 'padding' must be")
    refused({ groups = { 1 } }, "option 'groups' must be an integer")
    refused({ strides = 1 }, "has no option 'strides' %(did you mean 'stride'%?%)")
    refused({ activation = "rleu" }, "there is no activation 'rleu'")
    refused({ output_padding = 1 }, "has no option 'output_padding'")
  end)
end)

describe("lists of sizes", function()
  it("take no named fields: in layers, in options of ops, in the pairs of a padding", function()
    local function conv(more)
      local opt = { in_channels = 1, out_channels = 1, kernel_size = 2 }
      for name, value in pairs(more) do opt[name] = value end
      return opt
    end
    for _, case in ipairs { { "MaxPool2d", { kernel = { 2, 2, x = 2 } } }, { "AvgPool3d", { kernel = 2,
      stride = { 2, 2, 2, x = 2 } } }, { "AdaptiveAvgPool2d", { size = { 2, 2, x = 2 } } },
      { "Conv2d", conv { kernel_size = { 2, 2, x = 2 } } }, { "ConvTranspose2d", conv { stride = { 2, 2, x = 2 } } },
      { "PatchEmbedding", { image_size = { 8, 8, x = 8 }, patch_size = 2, channels = 1, width = 2 } } } do
      fails(case[1] .. ": option '[%a_]+' must be an integer or a list.*no field 'x'", function()
        nn[case[1]](case[2])
      end)
    end
    fails("padding of a dimension is a number or { in front, behind }", function()
      nn.Conv2d(conv { padding = { { 1, 1, x = 1 }, 1 } })
    end)
    for _, call in ipairs { { stride = { 1, 1, x = 2 } }, { padding = { { 1, 1, x = 2 }, 1 } } } do
      fails("has the field 'x'", function()
        gm.ops.convolution(gm.zeros { 1, 1, 4, 4 }, gm.zeros { 1, 1, 2, 2 }, nil, call)
      end)
    end
    local x = gm.zeros { 2, 3 }
    fails("ops.pad: a list has no named fields", function() gm.ops.pad(x, { 1, 1, x = 2 }) end)
    fails("ops.stack: a list has no named fields", function() gm.ops.stack { x, y = x } end)
    fails("ops.roll: a list has no named fields", function() gm.ops.roll(x, { 1, 1, x = 2 }, { 1, 2 }) end)
    fails("ops.roll: a list has no named fields", function() gm.ops.roll(x, { 1, 1 }, { 1, 2, x = 2 }) end)
  end)
end)
