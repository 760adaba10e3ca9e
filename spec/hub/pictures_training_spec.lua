--- Models of images from files of torchvision and timm are trained further as PyTorch trains them: ten steps of AdamW
-- in f64, and what the running numbers of batch norms and all weights then give (spec/golden/hub_pictures.py).
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"

-- AdamW divides by the square root of squares of gradients: where these are small, roundings of 1e-16 in them grow.
local TOLERANCE = 1e-9

local function read(name, file)
  local path = ("spec/golden/hub/%s/%s.json"):format(name, file)
  return json.decode(machine.read(path), path)
end

-- pixels (n, c, h, w) whose columns are moved to the right by so many, those that leave come in at the left
local function rolled(pixels, by)
  local w = pixels:size(4)
  by = by % w
  if by == 0 then return pixels end
  return gm.ops.cat({ pixels:narrow(4, w - by + 1, by), pixels:narrow(4, 1, w - by) }, 4)
end

describe("ten steps of AdamW are those of PyTorch:", function()
  for _, name in ipairs { "tv_resnet", "timm_resnet", "tv_vgg", "timm_vgg", "tv_convnext", "timm_convnext", "tv_swin",
    "timm_swin", "timm_mixer", "timm_vit", "timm_vit_gap" } do
    it(name, numeric.f64(function() -- the running numbers, too
      gm.scope(function()
        local given, want = read(name, "expected"), read(name, "training")
        local pixels = gm.tensor(given.pixels, { dtype = "f64" })
        local targets = gm.tensor(given.targets, { dtype = "i64" })
        local model = gm.pretrained("spec/golden/hub/" .. name)
        local optimizer = gm.optim.AdamW({ lr = want.lr, weight_decay = want.weight_decay }, model)
        local criterion = gm.nn.CrossEntropyLoss {}
        for step, loss in ipairs(want.losses) do
          local own = gm.scope(function()
            optimizer:zero_grad()
            local value = criterion(model(rolled(pixels, step - 1)), targets)
            value:backward()
            optimizer:step()
            return value:item()
          end)
          assert.is_true(math.abs(own - loss) <= TOLERANCE * (1 + loss), ("step %d: %.17g, not %.17g"):format(step, own,
            loss))
        end
        numeric.agree(gm.no_grad(model:eval(), pixels), gm.tensor(want.outputs, { dtype = "f64" }), TOLERANCE)
      end)
    end))
  end
end)
