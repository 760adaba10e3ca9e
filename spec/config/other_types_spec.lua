--- Names of other programs in `type = NAME`: the error says what to write; ganymede.base.other_types is true.
local others = require "ganymede.base.other_types"
local registry = require "ganymede.base.registry"

describe("a type that is named as elsewhere", function()
  it("is told by what it is here, before its nearest neighbour", function()
    assert.equal("models: no type 'ViT': write { type = \"VisionTransformer\" }", registry.models:problem "ViT")
    assert.equal("losses: no type 'BCELoss': write nn.BCEWithLogitsLoss, which takes logits",
      registry.losses:problem "BCELoss")
    assert.matches("^optimizers: no type 'RAdam': there are SGD, Adam,", registry.optimizers:problem "RAdam")
    assert.equal("models: no type 'Lama' (did you mean 'Llama'?)", registry.models:problem "Lama")
  end)

  it("is there no more once a class has this name", function()
    local own = registry.new "models"
    own:register("ViT", function() end)
    assert.is_nil(own:problem "ViT")
  end)

  -- Each name is nobody's; each `type = NAME` that is to be written is somebody's, and takes the options beside it.
  it("is in a list that is true", function()
    local checked = 0
    for kind, list in pairs(others.lists) do
      for name, text in pairs(list) do
        assert.is_false(registry[kind]:has(name), kind .. " have " .. name)
        for written in text:gmatch '{ type = "(%w+)"' do
          checked = checked + 1
          local class = written ~= "Pretrained" and registry[kind]:get(written) or nil
          local option = text:match ', ([%l_]+) = "8bit"'
          if option then assert.is_truthy(class.options[option], text) end
        end
      end
    end
    assert.is_true(checked > 20)
  end)
end)
