-- Micro-batches: the pieces that a loader reads a batch in, and those that a batch from elsewhere is split into.
-- ranks: 1 2 4
--
-- The truth is the loader's own whole batches on a mesh whose axes cut no batch, and sizes and blocks worked out here.
-- On 4 ranks pieces of 3 and 2 samples leave some ranks with padding only.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local micro_batches = require "ganymede.data.micro_batches"
local StepLoader = require "ganymede.train.step_loader"

local world, rank = core.world(), core.rank()
local uncut, cut = { "pipeline", world }, { "data", world }
local N, BATCH = 23, 10 -- batches of 10, 10 and 3

local function all_batches(loader)
  local out = {}
  loader:seek(0)
  for x, y in loader:batches() do
    out[#out + 1] = { x = core.gather(x):totable(), y = core.gather(y):totable(), numbers = loader:sample_numbers() }
  end
  return out
end

-- { first from 1, samples } of each of at most m pieces, larger ones first, by dealing samples out one at a time.
local function pieces_of(n, m)
  local sizes, first, out = {}, 1, {}
  for s = 0, n - 1 do sizes[s % m + 1] = (sizes[s % m + 1] or 0) + 1 end
  for k, size in ipairs(sizes) do
    out[k] = { first, size }
    first = first + size
  end
  return out
end

local function rows_of(list, first, n)
  local out = {}
  for i = 1, n do out[i] = list[first + i - 1] end
  return out
end

local function zeros_like(row)
  if type(row) ~= "table" then return 0 end
  local out = {}
  for i, part in ipairs(row) do out[i] = zeros_like(part) end
  return out
end

-- What this rank's block of rows (nested lists) must be: ceil(n / world) of them, those beyond the last of all zero.
local function block_of(rows)
  local size, out = math.ceil(#rows / world), {}
  for i = 1, size do out[i] = rows[rank * size + i] or zeros_like(rows[1]) end
  return out
end

-- x is a cut piece with these rows.
local function check_piece(x, rows)
  assert.equal(#rows, x:size(1))
  assert.same(rows, core.gather(x):totable())
  assert.same(block_of(rows), x:local_tensor():totable())
end

local function check_batch(xs, ys, whole, m)
  assert.is_true(micro_batches.is_list(xs) and micro_batches.is_list(ys))
  local wanted = pieces_of(#whole.y, m)
  assert.equal(#wanted, #xs)
  assert.equal(#wanted, #ys)
  for k, piece in ipairs(wanted) do
    check_piece(xs[k], rows_of(whole.x, piece[1], piece[2]))
    check_piece(ys[k], rows_of(whole.y, piece[1], piece[2]))
  end
end

-- Every batch of a loader with these options, in 1 piece up to more than it has samples, is the whole batch; options()
-- makes a table anew; begin() is called before each pass over the batches.
local function same_in_pieces(options, batches, begin)
  if begin then begin() end
  both.mesh(uncut)
  local reference = gm.data.loader(options())
  reference:set_epoch(2)
  local whole = all_batches(reference)
  reference:close()
  both.mesh(cut)
  assert.equal(batches, #whole)
  local loader = gm.data.loader(options())
  loader:set_epoch(2)
  for _, m in ipairs { 1, 3, 4, 100 } do
    if begin then begin() end
    for b, batch in ipairs(whole) do
      local xs, ys = loader:next_pieces(m)
      check_batch(xs, ys, batch, m)
      assert.same(batch.numbers, loader:sample_numbers())
      assert.equal(#batch.y, loader:samples())
      assert.equal(b, loader.position)
    end
    assert.is_nil(loader:next_pieces(m))
    loader:seek(0)
  end
  loader:close()
end

local function synthetic() return { type = "Synthetic", length = N, shape = { 2, 4, 5 } } end
local flips = { { type = "RandomCrop", size = { 4, 5 }, padding = 2 }, "RandomHorizontalFlip" }

local function scoped(fn)
  return function() gm.scope(fn) end
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("pieces of batches", function()
  setup(function() both.mesh(cut) end)

  for _, prefetch in ipairs { 0, 3 } do
    it("are the batch, random transforms included, prefetch " .. prefetch, scoped(function()
      same_in_pieces(function()
        return { dataset = synthetic(), batch_size = BATCH, shuffle = true, seed = 7, prefetch = prefetch,
                 dtype = "f64", transforms = flips }
      end, 3)
    end))
  end

  it("leave the short batch out when drop_last asks, and follow a sampler", scoped(function()
    same_in_pieces(function() return { dataset = synthetic(), batch_size = BATCH, drop_last = true } end, 2)
    same_in_pieces(function()
      local backwards = { order = function(_, _, n)
        local list = {}
        for i = 1, 17 do list[i] = n - i end
        return list
      end }
      return { dataset = synthetic(), batch_size = BATCH, sampler = backwards }
    end, 2)
  end))

  it("of a dataset in Lua are the same, and a rank asks for its own samples only", scoped(function()
    local asked = 0
    local dataset = { length = N, get = function(i)
      asked = asked + 1
      return { i, i * i }, i
    end }
    same_in_pieces(function() return { dataset = dataset, batch_size = BATCH, shuffle = true, seed = 5 } end, 3)
    local loader = gm.data.loader { dataset = dataset, batch_size = BATCH }
    asked = 0
    loader:next_pieces(4)
    local own = 0
    for _, piece in ipairs(pieces_of(BATCH, 4)) do
      local size = math.ceil(piece[2] / world)
      own = own + math.max(1, math.min(size, piece[2] - rank * size)) -- without samples: one, for its shape
    end
    assert.equal(own, asked)
  end))

  it("are the batch where functions in Lua draw, and where they look at the whole batch", scoped(function()
    local function noisy(x, y)
      local shape = x:shape()
      return x * shape[1] + gm.uniform(shape, { dtype = "f64" }), y
    end
    same_in_pieces(function()
      return { dataset = synthetic(), batch_size = BATCH, seed = 7, dtype = "f64", transforms = { noisy } }
    end, 3, core.begin_step)
  end))

  it("go on from any batch, and batches after pieces are the next ones", scoped(function()
    local whole = all_batches(gm.data.loader { dataset = synthetic(), batch_size = BATCH, prefetch = 2 })
    local loader = gm.data.loader { dataset = synthetic(), batch_size = BATCH, prefetch = 2 }
    loader:seek(1)
    local xs, ys = loader:next_pieces(3)
    check_batch(xs, ys, whole[2], 3)
    assert.same(whole[3].x, core.gather((loader:next())):totable())
    loader:seek(0)
    assert.same(whole[1].x, core.gather((loader:next())):totable())
    xs, ys = loader:next_pieces(2)
    check_batch(xs, ys, whole[2], 2)
    xs, ys = loader:next_pieces(5)
    check_batch(xs, ys, whole[3], 5)
    assert.is_nil(loader:next())
    loader:close()
  end))

  it("are split behind transforms in Lua, which receive the whole batch", scoped(function()
    local shapes = {}
    local function twice(x)
      shapes[#shapes + 1] = x:shape()
      return x * 2
    end
    local loader = gm.data.loader { dataset = synthetic(), batch_size = BATCH, transforms = { twice } }
    local xs, ys = loader:next_pieces(4)
    assert.same({ { BATCH, 2, 4, 5 } }, shapes)
    local plain = gm.data.loader { dataset = synthetic(), batch_size = BATCH }
    local x, y = plain:next()
    assert.same(core.gather(x * 2):narrow(1, 4, 3):totable(), core.gather(xs[2]):totable())
    assert.same(core.gather(y):narrow(1, 4, 3):totable(), core.gather(ys[2]):totable())
  end))

  it("hold nothing once their scope has ended", function()
    local loader = gm.data.loader { dataset = synthetic(), batch_size = BATCH }
    local before = gm.memory().live
    gm.scope(function()
      loader:next_pieces(4)
      assert.is_true(gm.memory().live > before)
    end)
    assert.equal(before, gm.memory().live)
    loader:close()
  end)

  it("must be a whole number of them", function()
    local loader = gm.data.loader { dataset = synthetic(), batch_size = BATCH }
    for _, m in ipairs { 0, -1, 1.5 } do
      assert.error_matches(function() loader:next_pieces(m) end,
        "pieces must be a whole number from 1; got " .. m, 1, true)
    end
    loader:close()
  end)
end)

describe("micro_batches.split", function()
  setup(function() both.mesh(cut) end)

  local function batch()
    local loader = gm.data.loader { dataset = synthetic(), batch_size = BATCH, dtype = "f64" }
    local x, y = loader:next()
    loader:close()
    return x, y
  end

  it("cuts a batch as the loader does", scoped(function()
    local x, y = batch()
    local whole = { x = core.gather(x):totable(), y = core.gather(y):totable() }
    for _, m in ipairs { 1, 3, 4, 10, 11 } do
      check_batch(micro_batches.split(x, m), micro_batches.split(y, m), whole, m)
    end
  end))

  it("leaves whole what is whole, and sends nothing for it", scoped(function()
    local x = gm.tensor({ 1, 2, 3, 4, 5, 6, 7 }, { dtype = "i64" })
    local list = micro_batches.split(x, 3)
    assert.same({ { 1, 2, 3 }, { 4, 5 }, { 6, 7 } },
      { list[1]:local_tensor():totable(), list[2]:local_tensor():totable(), list[3]:local_tensor():totable() })
  end))

  it("keeps cuts of other dimensions", scoped(function()
    local whole = gm.normal({ 5, 6 }, { dtype = "f64", seed = 2 })
    local x = core.redistribute(whole, { cuts = { {}, { "data" } } })
    local list = micro_batches.split(x, 2)
    for k, piece in ipairs(pieces_of(5, 2)) do
      assert.same(core.layout(x), core.layout(list[k]))
      assert.same(whole:narrow(1, piece[1], piece[2]):totable(), core.gather(list[k]):totable())
    end
  end))

  it("takes tables of tensors; what has no samples goes into every piece", scoped(function()
    local x, y = batch()
    local list = micro_batches.split({ image = x, extra = { y, 0.5, name = "n" }, scale = gm.full({}, 3) }, 4)
    assert.equal(4, #list)
    local sizes, total = list:samples()
    assert.same({ 3, 3, 2, 2 }, sizes)
    assert.equal(BATCH, total)
    local images, labels = micro_batches.split(x, 4), micro_batches.split(y, 4)
    for k = 1, 4 do
      assert.same(core.gather(images[k]):totable(), core.gather(list[k].image):totable())
      assert.same(core.gather(labels[k]):totable(), core.gather(list[k].extra[1]):totable())
      assert.equal(0.5, list[k].extra[2])
      assert.equal("n", list[k].extra.name)
      assert.equal(3, list[k].scale:item())
    end
  end))

  it("refuses what has no samples, or not as many everywhere", scoped(function()
    local function refuses(x, m, words)
      assert.error_matches(function() micro_batches.split(x, m) end, words)
    end
    refuses(gm.zeros { 0, 3 }, 2, "without samples")
    refuses(gm.full({}, 1), 2, "whose first dimension is its samples")
    refuses({ 1, "x" }, 2, "whose first dimension is its samples")
    refuses(gm.zeros { 4 }, 0, "pieces of a batch must be a whole number from 1; got 0")
    refuses({ gm.zeros { 4 }, mask = gm.zeros { 3, 3 } }, 2, "4 samples in x%[1%] and 3 in x%[mask%]")
    refuses({ [gm] = gm.zeros { 4 } }, 2, "a key that is a table")
  end))
end)

describe("micro_batches.signature", function()
  it("names structure, dtypes and shapes, in an order of its own", scoped(function()
    both.mesh(cut)
    local a, b = gm.zeros({ 4, 2 }, { dtype = "f64" }), gm.zeros({ 4 }, { dtype = "i64" })
    assert.equal("f64(4, 2)", micro_batches.signature(a))
    assert.equal("{ 1 = f64(4, 2), 2 = i64(4), a = true, b = { 1 = 2 }, c = \"f64(4)\" }",
      micro_batches.signature { c = "f64(4)", b = { 2 }, a = true, a, b })
    local tall, short = core.redistribute(a, both.rows), gm.zeros({ 3, 2 }, { dtype = "f64" })
    local cut_rows = core.world() > 1 and " cut (data, -)" or "" -- of global shapes
    assert.equal("f64(4, 2)" .. cut_rows, micro_batches.signature(tall))
    assert.are_not.equal(micro_batches.signature(a), micro_batches.signature(short))
    assert.equal("2 micro-batches: f64(4, 2), f64(3, 2)", tostring(micro_batches.List { a, short }))
  end))
end)

describe("the step loader with pieces", function()
  setup(function() both.mesh(cut) end)

  -- What a step is for an engine with cross entropy: { announced..., step fields }.
  local function steps(loader, pieces)
    local told = {}
    local engine = { loss_function = gm.nn.CrossEntropyLoss {},
      announce = function(_, targets, batches, count) told[#told + 1] = { targets, batches, count } end }
    local step_loader, out = StepLoader.new(loader, engine, 2, pieces), {}
    gm.scope(function()
      for step in function() return step_loader:next_step() end do
        out[#out + 1] = { #step, step.targets, step.samples, step.tokens, told = told[#told], pieces = step.pieces }
      end
    end)
    step_loader:close()
    return out
  end

  local function tokens()
    return { type = "Synthetic", kind = "tokens", length = N, sequence_length = 6, vocab_size = 11 }
  end
  local function lua_loader() return gm.data.loader { dataset = tokens(), batch_size = BATCH } end

  it("counts samples, targets, tokens and pieces over all of a step", function()
    -- steps of 10 + 10 and of 3 samples, 6 tokens each
    local whole, cut_up = steps(lua_loader()), steps(lua_loader(), 4)
    assert.same({ { 2, 120, 20, 120, told = { 120, 2, 2 }, pieces = 2 },
                  { 1, 18, 3, 18, told = { 18, 1, 1 }, pieces = 1 } }, whole)
    assert.same({ { 2, 120, 20, 120, told = { 120, 2, 8 }, pieces = 8 },
                  { 1, 18, 3, 18, told = { 18, 1, 3 }, pieces = 3 } }, cut_up)
  end)

  it("splits the batches of a loader that knows no pieces", function()
    local inner = lua_loader()
    local plain = { next = function() return inner:next() end, close = function() inner:close() end }
    assert.same(steps(lua_loader(), 4), steps(plain, 4))
  end)

  it("refuses labels that are not one for each sample", scoped(function()
    local wrong = { next = function() return gm.zeros { 4, 2 }, gm.zeros({ 8 }, { dtype = "i64" }) end }
    assert.error_matches(function() StepLoader.new(wrong, nil, 1, 2):next_step() end, "4 samples has 8 labels")
  end))

  it("gives lists turn by turn", function()
    local sizes = {}
    for x, y in StepLoader.new(lua_loader(), nil, 2, 4):batches() do
      assert.equal(#x, #y)
      sizes[#sizes + 1] = (x:samples())
    end
    assert.same({ { 3, 3, 2, 2 }, { 3, 3, 2, 2 }, { 1, 1, 1 } }, sizes)
  end)
end)
