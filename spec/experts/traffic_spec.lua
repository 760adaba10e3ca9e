-- What experts send, to the byte, by phase and kind of call.
-- ranks: 2 4
--
-- A choice whose expert is elsewhere sends a row of h numbers there and one back, in forward and in backward alike;
-- before that, in forward alone, ranks tell each other how many rows come, 8 bytes an expert. Rows are counted here
-- from the choices; spread evenly they are (n-1)/n k T of a rank's T tokens, 4 (n-1)/n k T h numbers in all.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local against = require "spec.tensor.against_serial"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local ops = gm.ops

local ranks = core.world()
local WIDTH, HIDDEN, BYTES = 6, 5, 8 -- f64

local meshes = {
  [2] = { { name = "expert 2", data = 2, expert = 2 } },
  [4] = { { name = "expert 4", data = 4, expert = 4 }, { name = "data 2, expert 2", data = 4, expert = 2 } },
}

local function rows() return { cuts = { { "data.expert" } } } end

local function sum_of(number)
  local sum = 0
  for _, text in ipairs(core.comm_exchange(core.comm_group(), ("%d"):format(number))) do sum = sum + tonumber(text) end
  return sum
end

-- Of all choices (a list of lists): those of this rank's tokens whose expert lies on another rank of its group, in
-- blocks of ceil(E / n). Padding of the batch is nobody's token.
local function elsewhere(choices, experts, n)
  local block, n_away = math.ceil(experts / n), 0
  local here = core.rank() % n -- the axis expert is the fastest here
  local first, own = core.batch_rows(#choices)
  for t = first + 1, first + own do
    for _, e in ipairs(choices[t]) do n_away = n_away + ((e >= 0 and math.floor(e / block) ~= here) and 1 or 0) end
  end
  return n_away
end

-- Bytes of this rank by "phase op" in the group of experts.
local function counted(fn, phase)
  core.comm_reset_traffic()
  local before = core.comm_set_phase(phase)
  fn()
  core.comm_set_phase(before)
  local by = {}
  for _, entry in ipairs(core.comm_traffic()) do
    if entry.bytes > 0 then
      assert.equal(phase, entry.phase)
      if entry.group == "expert" then by[entry.op] = (by[entry.op] or 0) + entry.bytes end
    end
  end
  return by
end

-- Forward and backward of y(); the sums over all ranks of what was sent as rows, and this rank's other calls.
local function passes(forward)
  return gm.scope(function()
    local y
    local there = counted(function() y = forward() end, "forward")
    local factor = gm.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = "f64", seed = 6 })
    local loss = auxiliary.add_to(ops.sum(ops.mul(y, factor)))
    local back = counted(function() loss:backward() end, "backward")
    return sum_of(there.all_to_all_rows or 0), sum_of(back.all_to_all_rows or 0), there, back
  end)
end

local function parameters(experts, axes)
  local function cut(seed, ...)
    local whole = gm.uniform({ experts, ... }, { low = -1, high = 1, dtype = "f64", seed = seed })
    return whole:redistribute({ cuts = { { axes } } }):detach():requires_grad(true)
  end
  return { up = cut(1, HIDDEN, WIDTH), up_bias = cut(2, HIDDEN), down = cut(3, WIDTH, HIDDEN),
    down_bias = cut(4, WIDTH), activation = "relu" }
end

-- The op on `tokens` tokens of the whole batch with the choices that chosen(t, j) names.
local function routed(tokens, k, experts, chosen)
  local list = {}
  for t = 0, tokens - 1 do
    for j = 0, k - 1 do list[#list + 1] = chosen(t, j) end
  end
  local whole_index = gm.tensor(list, { dtype = "i64", shape = { tokens, k } })
  local function leaf(n, seed)
    local whole = gm.normal({ tokens, n }, { dtype = "f64", seed = seed })
    return whole:redistribute(rows()):detach():requires_grad(true)
  end
  local x, weight, layer = leaf(WIDTH, 7), leaf(k, 8), parameters(experts, "expert")
  local index = whole_index:redistribute(rows())
  return whole_index:totable(), function() return core.experts(x, index, weight, layer) end
end

for _, mesh in ipairs(meshes[ranks]) do
  describe("experts over " .. mesh.name .. " send", function()
    local n, groups = mesh.expert, ranks / mesh.expert
    against.throughout(mesh, setup, teardown)

    -- The sums over all ranks must be those of the choices -> rows that changed ranks.
    local function check(tokens, k, experts, chosen)
      return gm.scope(function()
        local choices, forward = routed(tokens, k, experts, chosen)
        local away = sum_of(elsewhere(choices, experts, n))
        local sent, sent_back, there, back = passes(forward)
        assert.equal(2 * away * WIDTH * BYTES, sent)
        assert.equal(2 * away * WIDTH * BYTES, sent_back)
        assert.equal((n - 1) * math.ceil(experts / n) * 8, there.all_to_all)
        there.all_to_all_rows, there.all_to_all, back.all_to_all_rows = nil, nil, nil
        assert.same({}, there)
        assert.same({}, back)
        return away
      end)
    end

    for _, case in ipairs { { 4, 1 }, { 4, 2 }, { 8, 3 }, { 5, 2 } } do
      local experts, k = unpack(case)
      it(("rows there and back for choices that are elsewhere: %d of %d"):format(k, experts), function()
        local function uneven(t, j) return (t * t + 2 * math.floor(t / 3) + j) % experts end
        assert.is_true(check(24, k, experts, uneven) > 0)
        check(23, k, experts, uneven) -- no multiple of the ranks: what pads a block is sent nowhere
      end)
    end

    it("4 (n-1)/n k T h numbers a rank where experts are chosen equally often", function()
      local tokens, k, experts = 16 * ranks, 2, 8
      local away = check(tokens, k, experts, function(t, j) return (t + 4 * j) % experts end)
      assert.equal((n - 1) / n * k * tokens, away) -- sent four times, of WIDTH numbers: check() has compared it
    end)

    it("as much as that on average where they are chosen at random", function()
      local tokens, k, experts, state = 256 * ranks, 2, 8, 12345
      local away = check(tokens, k, experts, function(_, j)
        state = (1103515245 * state + 12345) % 2 ^ 31
        return (math.floor(state / 2 ^ 16) + (j == 1 and 1 or 0)) % experts
      end)
      -- rows that leave are counts of k T draws with probability (n-1)/n: five deviations of their sum
      local expected = (n - 1) / n * k * tokens
      assert.is_true(math.abs(away - expected) <= 5 * math.sqrt(expected / n), ("%d of %g"):format(away, expected))
    end)

    it("nothing for choices that are dropped, or that stay", function()
      assert.equal(0, check(24, 2, 4, function() return -1 end))
      local block = 24 / groups -- tokens of each group, in its order; a rank has block / n of them
      assert.equal(0, check(24, 1, n, function(t) return math.floor(t % block / (block / n)) end))
    end)

    it("every row but its own to one expert that all have chosen", function()
      assert.equal(24 - 24 / n, check(24, 1, 4, function() return 3 end))
    end)

    it("with a capacity only what it lets through, and the gathered counts of choices", function()
      gm.scope(function()
        local tokens, k, experts, room = 24, 2, 4, 6
        core.set_seed(3)
        core.begin_step()
        local layer = gm.nn.MoE { width = WIDTH, hidden = HIDDEN, experts = experts, capacity = 0.5, min_capacity = 1,
          router = { type = "Top2Router", balance = 0 } }
        layer:materialize()
        layer.router.weight:detach():copy_(gm.normal({ experts, WIDTH }, { dtype = "f64", seed = 9 }))
        assert.equal(room, layer:room(tokens, k))
        local whole = gm.normal({ tokens, WIDTH }, { dtype = "f64", seed = 10, mean = 0.4 })
        local x = whole:redistribute(rows()):detach():requires_grad(true)
        local served = core.experts_capacity((layer.router(x)), experts, room)
        local taken, choices = {}, core.gather(served):totable()
        for _, token in ipairs(choices) do
          for _, e in ipairs(token) do taken[e] = (taken[e] or 0) + 1 end
        end
        assert.is_true((taken[-1] or 0) > 0)
        for e = 0, experts - 1 do assert.is_true((taken[e] or 0) <= room) end
        local away = sum_of(elsewhere(choices, experts, n))
        assert.is_true(away > 0 and away <= experts * room)
        local sent, sent_back = passes(function() return layer(x) end)
        assert.equal(2 * away * WIDTH * BYTES, sent)
        assert.equal(2 * away * WIDTH * BYTES, sent_back)
        -- what decides is gathered by all that share the batch: k E counts of each of the others
        core.comm_reset_traffic()
        core.experts_capacity((layer.router(x)), experts, room)
        local gathered = 0
        for _, entry in ipairs(core.comm_traffic()) do gathered = gathered + entry.bytes end
        assert.equal((ranks - 1) * k * experts * 8, gathered)
      end)
    end)
  end)
end
