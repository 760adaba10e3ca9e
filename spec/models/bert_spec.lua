--- BERT and its loss of two terms: sizes, what padding must not change, and counts of a whole step, of accumulated
-- batches and of evaluations, on one rank and on two.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"
local tables = require "spec.support.tables"

local small = { vocabulary = 260, sequence_length = 12, width = 8, depth = 2, heads = 2 }
local PADDING = 256

local with = tables.with

-- x (b, 3, s) with `lengths` tokens, the rest padding
local function input(lengths, s, padding)
  local rows = {}
  for i, n in ipairs(lengths) do
    rows[i] = { {}, {}, {} }
    for k = 1, s do
      rows[i][1][k] = k <= n and (7 * k + 3 * i) % 250 or padding or PADDING
      rows[i][2][k] = k <= n and k > n / 2 and 1 or 0
      rows[i][3][k] = k <= n and 1 or 0
    end
  end
  return gm.tensor(rows, { dtype = "i64" })
end

-- f64: what is compared here is one sum in two orders, so that 1e-12 has room for a thousand roundings of 2^-53
local dtype
local function begin()
  gm.context.load_config {}
  dtype = gm.default_dtype()
  gm.set_default_dtype "f64"
end

local function finish() gm.set_default_dtype(dtype) end

describe("BERT", function()
  before_each(begin)
  after_each(finish)

  it("has the parameters of BERT-base with both heads", function()
    -- Hugging Face's BertForPreTraining of bert-base-uncased
    assert.equal(110106428, models.BERT {}:count())
    local w, v = 8, 260
    local block = 4 * w * w + 4 * w + 2 * w * 32 + 32 + w + 4 * w
    assert.equal((v + 2 + 12) * w + 2 * w + 2 * block + w * w + w + 2 * w + v + w * w + w + 2 * w + 2,
      models.BERT(small):count())
  end)

  it("gives scores of every token and of the pair, of any length up to its own", function()
    gm.scope(function()
      local model = models.BERT(small)
      for _, s in ipairs { 12, 5, 1 } do
        local output = model(input({ s, s, 1 }, s))
        assert.same({ 3, s, 260 }, output[1]:shape())
        assert.same({ 3, 2 }, output[2]:shape())
      end
    end)
  end)

  it("gives the same bits where its key masks are said to be prefixes, and refuses another mask", function()
    gm.scope(function()
      local plain = with(small, { dropout = 0, attention_dropout = 0 })
      local model, same = models.BERT(plain), models.BERT(with(plain, { prefix_mask = true }))
      local weights = model:parameters()
      gm.no_grad(function()
        for i, p in ipairs(same:parameters()) do p:copy_(weights[i]) end
      end)
      local x = input({ 12, 3, 7 }, 12)
      local want, got = model(x), same(x)
      for i = 1, 2 do assert.same(want[i]:totable(), got[i]:totable()) end
      x:select(2, 3):fill_(0)
      x:narrow(2, 3, 1):narrow(3, 5, 2):fill_(1)
      assert.error_matches(function() return same(x) end, "key_mask has a zero before a one in row 0")
      model(x)
    end)
  end)

  it("does not see what the key mask hides, nor how much of it there is", function()
    gm.scope(gm.no_grad, function()
      local model = models.BERT(with(small, { std = 0.5 })):eval()
      local alone, padded = model(input({ 7 }, 7)), model(input({ 7 }, 12))
      local other = model(input({ 7 }, 12, 33))
      numeric.agree(padded[1]:narrow(2, 1, 7), alone[1]:totable(), 1e-12)
      numeric.agree(padded[2], alone[2]:totable(), 1e-12)
      numeric.agree(other[1]:narrow(2, 1, 7), alone[1]:totable(), 1e-12)
      local open = input({ 7 }, 12)
      for k = 8, 12 do open:set(1, 3, k, 1) end
      assert.is_true(numeric.relative_error(model(open)[2], alone[2]:totable()) > 1e-3) -- it does see the rest
    end)
  end)

  it("stays finite where a sequence is hidden as a whole", function()
    gm.scope(function()
      local model = models.BERT(small)
      local output = model(input({ 4, 0 }, 6))
      gm.ops.add(output[1]:sum(), output[2]:sum()):backward()
      for _, p in ipairs(model:named_parameters()) do
        for _, g in ipairs(numeric.flat(p.tensor:grad())) do
          assert.is_true(math.abs(g) < math.huge, p.name) -- false for NaN too
        end
      end
    end)
  end)

  it("sees both ways", function()
    gm.scope(gm.no_grad, function()
      local model = models.BERT(with(small, { std = 0.5 })):eval()
      local x = input({ 6 }, 6)
      local before = model(x)[1]:totable()[1]
      x:set(1, 1, 4, 99)
      local after = model(x)[1]:totable()[1]
      for k = 1, 6 do assert.is_true(math.abs(before[k][1] - after[k][1]) > 1e-4) end
    end)
  end)

  it("refuses other shapes and longer sequences", function()
    local function fails(pattern, x) assert.error_matches(function() gm.scope(models.BERT(small), x) end, pattern) end
    fails("x must be %(batch, 3, sequence%): tokens, segments, key mask; got %(2, 12%)",
      gm.tensor({ 1 }, { dtype = "i64", shape = { 1 } }):expand { 2, 12 })
    fails("a sequence of 13 is longer than the 12 positions", input({ 13 }, 13))
    assert.error_matches(function()
      gm.nn.BERTLoss {}:count(gm.tensor({ 1, 2 }, { dtype = "i64" }))
    end, "targets must be %(batch, sequence %+ 1%)")
  end)
end)

describe("a loss of two terms", function()
  local folder, path
  before_each(function()
    begin()
    folder = shell.temporary_folder()
    local bytes = {}
    for i = 1, 900 do bytes[i] = string.char((i * i + 31 * i) % 251) end
    path = shell.write(folder .. "/text", table.concat(bytes))
  end)
  after_each(function()
    finish()
    shell.remove(folder)
  end)

  local function build(batch_size, accumulation)
    core.set_seed(5)
    local function loader(size)
      local texts = { type = "TextPairs", path = path, sequence_length = 12, stride = 45, mask_probability = 0.3,
                      short_probability = 0.5 }
      return gm.data.loader { dataset = texts, batch_size = size, seed = 3 }
    end
    local engine, train, test = gm.initialize {
      model = models.BERT(with(small, { dropout = 0.2, attention_dropout = 0.1 })), criterion = { type = "BERTLoss" },
      optimizer = { type = "SGD", lr = 0.1 }, train_dataloader = loader(batch_size), test_dataloader = loader(7),
      gradient_accumulation = accumulation,
    }
    local trainer = gm.trainer(engine)
    trainer.sink = function() end
    return trainer, train, test, engine
  end

  local function numbers(model)
    local out = {}
    for _, p in ipairs(model:parameters()) do
      for _, v in ipairs(numeric.flat(p)) do out[#out + 1] = v end
    end
    return out
  end

  it("of accumulated batches is that of one large batch, each term over its own count", function()
    local one, one_train, _, one_engine = build(6, 1)
    one:fit { train_dataloader = one_train, max_steps = 3, hooks = { "AccuracyHook" } }
    local three, three_train, _, three_engine = build(2, 3)
    three:fit { train_dataloader = three_train, max_steps = 3, hooks = { "AccuracyHook" } }
    assert.is_true(one.targets == three.targets and one.targets > 18) -- tokens, and pairs
    assert.equal(3 * 6 * 12, one.tokens) -- not three a position
    for k = 1, 3 do assert.near(one.losses[k], three.losses[k], 1e-12 * one.losses[k]) end
    numeric.agree(numbers(three_engine.model), numbers(one_engine.model), 1e-12) -- f64, three steps
    for _, name in ipairs { "accuracy", "pair_accuracy" } do
      assert.is_number(one.metrics.train[name])
      assert.equal(one.metrics.train[name], three.metrics.train[name])
    end
  end)

  it("of an evaluation is the mean of each term over all targets, whatever the batches", function()
    local trainer, _, test, engine = build(6, 1)
    trainer:attach { { type = "AccuracyHook" } }
    local said = {}
    trainer.sink = function(text) said[#said + 1] = text end
    trainer:evaluate(test)
    local sums, counts, right = { 0, 0 }, { 0, 0 }, { 0, 0 }
    local set = gm.data.dataset { type = "TextPairs", path = path, sequence_length = 12, stride = 45,
                                  mask_probability = 0.3, short_probability = 0.5 }
    engine.model:eval()
    local function add(k, scores, wanted)
      if wanted < 0 then return end
      sums[k], counts[k] = sums[k] - scores[wanted + 1], counts[k] + 1
      if scores[wanted + 1] == math.max(unpack(scores)) then right[k] = right[k] + 1 end
    end
    for i = 1, set:length() do
      gm.scope(gm.no_grad, function()
        local x, y = set:get(i)
        local output, wanted = engine.model(x:reshape(1, 3, 12)), y:totable()
        local tokens, pair = output[1]:log_softmax(-1):totable()[1], output[2]:log_softmax(-1):totable()[1]
        for k = 1, 12 do add(1, tokens[k], wanted[k]) end
        add(2, pair, wanted[13])
      end)
    end
    assert.equal(20, counts[2])
    assert.is_true(counts[1] > 20)
    assert.near(sums[1] / counts[1] + sums[2] / counts[2], trainer.metrics.test.loss, 1e-12 * trainer.metrics.test.loss)
    assert.equal(right[1] / counts[1], trainer.metrics.test.accuracy)
    assert.equal(right[2] / counts[2], trainer.metrics.test.pair_accuracy)
    if core.rank() == 0 then assert.matches("^test  accuracy %S+  pair accuracy %S+$", said[1]) end
  end)

  it("keeps both accuracies through a checkpoint's state", function()
    local trainer, train = build(6, 1)
    trainer:fit { train_dataloader = train, max_steps = 2, hooks = { "AccuracyHook" } }
    local state, hook = trainer:state(), gm.hooks.AccuracyHook {}
    for _, entry in ipairs(state.hooks) do
      if entry.title == "AccuracyHook" then hook:load_state(entry.state) end
    end
    assert.equal(trainer.metrics.train.accuracy, hook.train[1]:value())
    assert.equal(trainer.metrics.train.pair_accuracy, hook.train[2]:value())
  end)
end)
