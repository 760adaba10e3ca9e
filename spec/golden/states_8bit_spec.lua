--- States in blocks of 8 bits against bitsandbytes (states_8bit.py): its codes, and blocks that its library quantises.
--
-- Both compute a code in f32, in another order, and multiply it by the largest magnitude: some units of 6e-8 of it.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "states_8bit"

-- What a moment of 8 bits keeps of x: as a checkpoint writes it, or, of momentum, as a first step with the gradient x
-- does.
local function kept(x, optimizer, p)
  gm.scope(function() (p * (optimizer.name == "SGD" and x or gm.ones(x:shape()))):sum():backward() end)
  optimizer:step()
  local entry = optimizer:state()[1]
  if optimizer.name == "SGD" then return entry.tensor end
  entry.tensor:copy_(x)
  entry.store()
  return optimizer:state()[1].tensor
end

local kinds = {
  signed = function(p) return gm.optim.SGD({ lr = 0, momentum = 0.9, state_dtype = "8bit" }, { p }) end,
  unsigned = function(p) return gm.optim.RMSprop({ lr = 0, state_dtype = "8bit" }, { p }) end,
}

local function compare(want, got)
  want, got = numeric.flat(want), numeric.flat(got)
  assert.equal(#want, #got)
  for i, x in ipairs(want) do assert.near(x, got[i], 4e-7 * math.abs(x), "number " .. i) end
end

describe("states of 8 bits beside bitsandbytes", function()
  for _, kind in ipairs { "signed", "unsigned" } do
    it("have its codes: " .. kind, function()
      gm.scope(function()
        local codes = file:tensor("code." .. kind, "f32")
        local p = gm.zeros { 16, 256 }:requires_grad(true)
        local seen = {}
        for _, x in ipairs(codes:totable()) do seen[x] = true end
        local n = 0
        for _ in pairs(seen) do n = n + 1 end
        assert.equal(256, n)
        local all = codes:reshape(1, 256):expand(16, 256):contiguous()
        compare(all, kept(all, kinds[kind](p), p))
      end)
    end)

    -- The library looks a code up by the upper bits of a number, and so finds the code beside the nearest one now and
    -- then, among small numbers often. What is kept here must be as near or nearer.
    it("keep of blocks what its library keeps, or what is nearer: " .. kind, function()
      gm.scope(function()
        local p, given = gm.zeros { 16, 256 }:requires_grad(true), file:tensor("given." .. kind, "f32")
        local ours = kept(given, kinds[kind](p), p):totable()
        local theirs, same, large = file:tensor("kept." .. kind, "f32"):totable(), 0, 0
        for r, row in ipairs(given:totable()) do
          local scale = math.max(unpack(row))
          for c, x in ipairs(row) do
            local near, far = math.abs(ours[r][c] - x), math.abs(theirs[r][c] - x)
            assert.is_true(near <= far + 4e-7 * math.abs(x), ("row %d, number %d"):format(r, c))
            if math.abs(x) >= 1e-3 * scale then
              large = large + 1
              same = same + (math.abs(ours[r][c] - theirs[r][c]) <= 4e-7 * math.abs(x) and 1 or 0)
            end
          end
        end
        assert.is_true(large > 1900 and same >= 0.99 * large, ("%d of %d"):format(same, large))
      end)
    end)
  end
end)
