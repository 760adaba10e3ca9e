-- Ring attention as Lua calls it, against attention on one rank: values, every gradient, bytes, FLOPs and memory.
-- ranks: 2 3 4
--
-- spec/unit/ring_test.c has every size and the bytes of each rank; here is what models do with it: sequences that do not
-- divide, grouped heads, masks, dropout, a packed projection, other axes besides.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local seed = 4200
local function normal(...)
  seed = seed + 1
  return gm.normal({ ... }, { dtype = "f64", seed = seed })
end

local sequence = { cuts = { {}, { "sequence" } } }

local function size_of_world() return core.world() end

describe("ring attention:", function()
  both.in_f64(setup, teardown, function() both.mesh { "sequence", size_of_world() } end)

  local function agrees(s, options, kv_heads)
    local q, k, v = normal(2, s, 4, 3), normal(2, s, kv_heads or 4, 3), normal(2, s, kv_heads or 4, 3)
    both.agree {
      inputs = { q, k, v }, cuts = { sequence, sequence, sequence }, expect = "-,sequence,-,-",
      fn = function(a, b, c)
        options.key_mask = options.mask and options.mask(a) or nil
        return core.ring_attention(a, b, c, options)
      end,
    }
  end

  for _, balance in ipairs { true, false } do
    for _, s in ipairs { 24, 10, 7 } do
      it(("causal, %d positions, %s"):format(s, balance and "zigzag" or "contiguous"), function()
        agrees(s, { causal = true, balance = balance })
        agrees(s, { causal = true, balance = balance, dropout = 0.3, scale = 0.4 }, 2)
      end)
    end
  end

  it("all keys", function()
    agrees(12, {})
    agrees(10, { dropout = 0.5 }, 1)
  end)
end)
