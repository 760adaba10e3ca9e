--- The frequencies of stretched rotary positions against those of transformers (llama.py).
local gm = require "ganymede"
local options = require "ganymede.base.options"
local read = require "spec.golden.read"
local rotary = require "ganymede.nn.rotary"

local file = read "llama"

-- transformers works in f32: a few roundings of 6e-8
local TOLERANCE = 1e-6

describe("rotary frequencies equal those of transformers:", function()
  for n, case in ipairs(file.meta.scalings) do
    it(("%s of heads of %d"):format(case.scaling.type, case.size), function()
      local opt = options.check("rotary", rotary.options, { base = case.base, scaling = case.scaling }, 1)
      local list, factor = rotary.frequencies("rotary", opt, case.size)
      local want = gm.scope(function() return file:tensor("frequency." .. n):totable() end)
      assert.equal(#want, #list)
      for j, f in ipairs(want) do assert.near(1, list[j] / f, TOLERANCE) end
      assert.near(case.factor, factor, 1e-12)
    end)
  end
end)
