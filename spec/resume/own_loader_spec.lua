--- Loaders that a program has written, whose epochs have no known length: a run that goes on reads the batch that comes
-- next, and refuses a loader that cannot go there.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local support = require "spec.train.support"

-- A loader without length(); batches: how many an epoch has, nil: it has no end. Batches that were read are in `read`.
local function loader(batches, can_seek)
  local made = { read = {}, epoch = 0, at = 0 }
  function made:set_epoch(epoch) self.epoch, self.at = epoch, 0 end
  if can_seek then
    function made:seek(batch) self.at = batch end
  end
  function made:next()
    if self.at >= (batches or math.huge) then return nil end -- the last step of an epoch may have fewer batches
    self.at = self.at + 1
    table.insert(self.read, self.epoch .. ":" .. self.at)
    return gm.full({ 2, 3 }, self.at), gm.tensor({ 0, 1 }, { dtype = "i64" })
  end
  return made
end

-- Trains to a step; state: of an earlier run -> the batches read, the state at each step, how often an epoch has ended.
local function run(source, steps, state)
  local engine = gm.Engine { model = support.model { width = 3, classes = 2 }, criterion = "CrossEntropyLoss",
    optimizer = { type = "SGD", lr = 0.1 }, gradient_accumulation = 2 }
  local trainer, states, ends = gm.trainer(engine), {}, 0
  trainer.sink = function() end
  trainer:prepare { train_dataloader = source, max_steps = steps, hooks = { {
    after_train_iter = function(_, t) states[t.step] = json.encode(t:state()) end,
    after_train_epoch = function(_, t)
      ends = ends + 1
      states.ended = json.encode(t:state())
    end } } }
  if state then trainer:load_state(json.decode(state, "state")) end
  trainer:fit()
  states.last = json.encode(trainer:state())
  return source.read, states, ends
end

-- The entries of a list from one on.
local function from(list, first) return { unpack(list, first) } end

describe("a loader without a length", function()
  for name, batches in pairs { ["without an end"] = math.huge, ["of 5 batches"] = 5 } do
    it("goes on where the run stopped: " .. name, function()
      local whole, states, ends = run(loader(batches, true), 7)
      for step = 1, 6 do -- two batches a step, one at the end of 5
        local before = #run(loader(batches, true), step)
        local rest, _, more = run(loader(batches, true), 7, states[step])
        assert.same(from(whole, before + 1), rest)
        assert.is_true(more <= ends)
      end
    end)
  end

  it("goes on from the end of an epoch, which ends once", function()
    local whole, _, ends = run(loader(5, true), 7)
    local first, states, before = run(loader(5, true), 4) -- stops in the middle of the second epoch
    local rest, _, more = run(loader(5, true), 7, states.last)
    assert.same(from(whole, #first + 1), rest)
    assert.equal(ends + 1, before + more) -- a run that stops ends the epoch it is in
    local _, at_end = run(loader(5, true), 3)
    rest, _, more = run(loader(5, true), 7, at_end.ended)
    assert.same(from(whole, 6), rest)
    assert.equal(ends - 1, more)
  end)

  it("that cannot go there is refused before a batch is read", function()
    local _, states = run(loader(5, true), 2)
    local source = loader(5, false)
    local ok, err = pcall(run, source, 7, states[2])
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("goes on after step 2 of an epoch, and its training loader has no method seek%(batch%)",
      failure.text(err))
    assert.same({}, source.read)
  end)

  it("that was left by a fit stands where it is for the next one", function()
    local engine = gm.Engine { model = support.model { width = 3, classes = 2 }, criterion = "CrossEntropyLoss",
      optimizer = { type = "SGD", lr = 0.1 } }
    local trainer, source = gm.trainer(engine), loader(nil, false)
    source.set_epoch = nil
    trainer:fit { train_dataloader = source, max_steps = 2 }
    trainer:fit { train_dataloader = source, max_steps = 4 }
    assert.same({ "0:1", "0:2", "0:3", "0:4" }, source.read)
  end)
end)
