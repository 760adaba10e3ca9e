-- Experts in 16 bits: the op and a whole layer against f64, computed from the same rounded numbers.
-- ranks: 1 2
--
-- Rows are rounded where ops end: gathered rows not at all, pre-activations, activations, results and sums once each;
-- every product adds up in f32 and rounds once. So y is off by some 4 roundings of numbers of its size, a gradient by
-- some 6; random as they are, 8 half units of the largest are above what comes out, and far below an error of meaning.
-- What decides is in f32: the router's scores, and the weights of choices.
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"
local against = require "spec.tensor.against_serial"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ranks = core.world()
local TOKENS, WIDTH, HIDDEN, EXPERTS, K = 22, 12, 10, 4, 2
local unit = { bf16 = 2 ^ -8, f16 = 2 ^ -11 }

local function rows(t) return t:redistribute { cuts = { { "data.expert" } } }:detach() end
local function cut_experts(t) return t:redistribute { cuts = { { "expert" } } }:detach() end

-- The same choices for all: each token two experts, some dropped, one expert much liked.
local function choices()
  return numeric.integers({ TOKENS, K }, function(i)
    local t, j = math.floor(i / K), i % K
    if (t + j) % 7 == 5 then return -1 end
    return ((t % 3 == 0 and 0 or t * t) + j * (t % 3 + 1)) % EXPERTS
  end)
end

local function drawn(seed, dtype, scale, ...)
  return gm.normal({ ... }, { dtype = "f64", seed = seed, std = scale }):to(dtype)
end

-- y and the gradients of x, weights and parameters, all gathered. dtype: of the numbers; f64 gets those of `rounded`.
local function run(dtype, rounded, room)
  local function number(t) return t:to(dtype):requires_grad(true) end
  local wide = dtype == "f64" and "f64" or "f32"
  local x = number(rows(drawn(1, rounded, 1, TOKENS, WIDTH)))
  local weight = rows(drawn(2, "f32", 1, TOKENS, K)):to(wide):requires_grad(true)
  local layer = {
    up = number(cut_experts(drawn(3, rounded, 0.3, EXPERTS, HIDDEN, WIDTH))),
    up_bias = number(cut_experts(drawn(4, rounded, 0.3, EXPERTS, HIDDEN))),
    down = number(cut_experts(drawn(5, rounded, 0.3, EXPERTS, WIDTH, HIDDEN))),
    down_bias = number(cut_experts(drawn(6, rounded, 0.3, EXPERTS, WIDTH))),
    activation = "gelu", room = room,
  }
  local y = core.experts(x, rows(choices()), weight, layer)
  assert.equal(dtype, y:dtype())
  y:backward(rows(drawn(7, rounded, 1, TOKENS, WIDTH)):to(dtype))
  local out = { y = core.gather(y:detach()):totable(), x = core.gather(x:grad()):totable() }
  assert.equal(wide, weight:grad():dtype())
  out.weight = core.gather(weight:grad()):totable()
  for _, name in ipairs { "up", "up_bias", "down", "down_bias" } do
    out[name] = core.gather(layer[name]:grad()):totable()
  end
  return out
end

describe("experts in 16 bits:", function()
  against.throughout(ranks == 1 and { data = 1 } or { data = ranks, expert = ranks }, setup, teardown)

  for _, dtype in ipairs { "bf16", "f16" } do
    for _, room in ipairs { 0, TOKENS } do
      it(("the op in %s%s"):format(dtype, room > 0 and ", with a room" or ""), function()
        gm.scope(function()
          core.begin_step()
          local want, got = run("f64", dtype), run(dtype, dtype, room)
          for name, value in pairs(want) do
            local ok, why = pcall(numeric.agree, got[name], value, 8 * unit[dtype])
            assert(ok, name .. ": " .. tostring(why))
          end
        end)
      end)
    end

    it("a layer in " .. dtype .. " chooses as one of f32 does, and has its losses", function()
      gm.scope(function()
        local whole = drawn(11, dtype, 1, TOKENS, WIDTH)
        local function forward(of)
          core.begin_step()
          core.set_seed(5)
          local before = gm.default_dtype()
          gm.set_default_dtype(of)
          local layer = gm.nn.MoE { width = WIDTH, hidden = HIDDEN, experts = EXPERTS, capacity = 1, min_capacity = 1,
                                    router = { type = "TopKRouter", k = K, balance = 2, z = 1 } }
          layer:materialize()
          gm.set_default_dtype(before)
          layer.router.weight:detach():copy_(drawn(12, dtype, 0.5, EXPERTS, WIDTH):to(of))
          auxiliary.clear()
          local x = rows(whole:to(of)):requires_grad(true)
          local index, weight = layer.router(x)
          auxiliary.clear()
          local y = layer(x)
          local loss = auxiliary.take()
          assert.equal("f32", weight:dtype())
          assert.equal("f32", loss:dtype())
          assert.equal(of, y:dtype())
          ops.add(ops.sum(ops.cast(y, "f32")), loss):backward()
          assert.equal(of, layer.router.weight:grad():dtype())
          return core.gather(index):totable(), loss:item(), core.gather(x:grad()):totable()
        end
        local want, want_loss, dx = forward "f32"
        local got, loss, narrow_dx = forward(dtype)
        assert.same(want, got)
        numeric.agree(loss, want_loss, 1e-6)
        -- parameters are drawn in f32 and rounded: another rounding of each beside those above
        numeric.agree(narrow_dx, dx, 12 * unit[dtype])
      end)
    end)
  end
end)
