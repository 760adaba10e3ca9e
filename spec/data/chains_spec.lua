--- Made-up tokens (Synthetic, kind = "tokens"): each token determines the next, whichever sample is read first and by
-- how many threads. Successors are made with the first sample.
local core = require "ganymede.core"
local data = require "ganymede.data"

local VOCABULARY, LENGTH = 300, 40

local function made(seed, split)
  return data.Synthetic { kind = "tokens", length = LENGTH, sequence_length = 50, vocab_size = VOCABULARY, noise = 0,
    seed = seed, split = split }
end

-- Which token follows which, of all samples in this order, as far as they say.
local function successors(dataset, first, last, step)
  local next_of, seen = {}, 0
  for i = first, last, step do
    local x, y = dataset:get(i)
    x, y = x:totable(), y:totable()
    for k = 1, #x do
      assert.is_true(next_of[x[k]] == nil or next_of[x[k]] == y[k], "one token has one successor")
      if next_of[x[k]] == nil then seen = seen + 1 end
      next_of[x[k]] = y[k]
      if k > 1 then assert.equal(y[k - 1], x[k]) end
    end
  end
  return next_of, seen
end

describe("chains of tokens", function()
  it("are a permutation of the vocabulary, the same whichever sample comes first", function()
    local forward, seen = successors(made(5), 1, LENGTH, 1)
    assert.is_true(seen > VOCABULARY / 2)
    local from, identity = {}, 0
    for token, follower in pairs(forward) do
      assert.is_nil(from[follower])
      from[follower] = token
      identity = identity + (token == follower and 1 or 0)
    end
    assert.is_true(identity < seen / 4) -- a fixed point is rare: 1 of 300 tokens is expected to be one
    assert.same(forward, (successors(made(5), LENGTH, 1, -1)))
  end)

  it("have one law in training and test, and another for another seed", function()
    local law, other, tested = (successors(made(5), 1, LENGTH, 1)), (successors(made(6), 1, LENGTH, 1)), 0
    for token, follower in pairs((successors(made(5, "test"), 1, LENGTH, 1))) do
      if law[token] then assert.equal(law[token], follower) end
      tested = tested + (law[token] and 1 or 0)
    end
    assert.is_true(tested > 50)
    assert.not_same(law, other)
  end)

  it("are the same with any number of threads, of which several ask for the first sample", function()
    local function batches(threads)
      local loader = data.loader { dataset = made(7), batch_size = 4, threads = threads, shuffle = false }
      local out = {}
      for x, y in loader:batches() do out[#out + 1] = { core.gather(x):totable(), core.gather(y):totable() } end
      loader:close()
      return out
    end
    local want = batches(1)
    assert.equal(LENGTH / 4, #want)
    for _ = 1, 5 do assert.same(want, batches(4)) end
  end)
end)
