--- Pipeline schedules carried out by the executor: a chain of parts cut over stages against the same chain on one tape.
-- Messages, headers and slices are counted in C, on ranks that are threads (spec/unit/executor_*).
-- ranks: 2 4
--
-- Gradients of a parameter are sums over micro-batches, which come back in another order: 1e-13 of the largest in f64.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local pipeline = require "ganymede.schedules.pipeline"

local world, rank = core.world(), core.rank()
local WIDTH = 6

local function number(seed, ...) return gm.normal({ ... }, { seed = seed, dtype = "f64" }) end

-- Parts 1 .. n: each a product; the last gives the loss. layout: of the input.
local Chain = {}
Chain.__index = Chain

local function chain(n)
  local self = setmetatable({ n = n, weights = {} }, Chain)
  for part = 1, n do
    self.weights[part] = core.keep(core.requires_grad(number(100 + part, WIDTH, WIDTH), true))
  end
  return self
end

-- list of (h, skip), empty for the first part -> list or nil, text or nil, loss or nil
function Chain:run(part, list, micro_batch)
  local h, skip = list[1] or number(micro_batch, 3, WIDTH), list[2]
  if part == 1 and self.layout then h = core.redistribute(h, self.layout) end
  local y = h:matmul(self.weights[part]):tanh()
  if part == self.n then return nil, nil, (y * (skip or y)):sum() end
  return { y, skip or y }, "from part " .. part
end

-- -> the losses of these micro-batches, by number; gradients are added up
function Chain:serial(first, last)
  local losses = {}
  for m = first, last do
    local list, loss, _ = {}, nil, nil
    for part = 1, self.n do list, _, loss = self:run(part, list, m) end
    losses[m] = loss:item()
    core.backward(loss)
  end
  return losses
end

function Chain:zero_grad() core.zero_grad(self.weights) end

-- By part; false: none.
function Chain:gradients()
  local list = {}
  for part, w in ipairs(self.weights) do
    local g = core.grad(w)
    list[part] = g and g:totable() or false
  end
  return list
end

-- One step on this rank's stage -> losses by micro-batch, where the last part is. opt: before(m, chunk), results of all
function Chain:step(executor, schedule, stage, opt)
  opt = opt or {}
  local parts, losses, signatures = schedule.parts[stage + 1], {}, {}
  for m = 1, schedule.micro_batches do signatures[m] = "(3, 6)" end
  core.executor_run(executor, { actions = schedule.actions[stage + 1], parts = parts, n_parts = self.n,
    micro_batches = schedule.micro_batches, signatures = signatures, final = not schedule.forward_only,
    forward_only = schedule.forward_only,
    forward = function(m, chunk, list, text)
      if opt.before then opt.before(m, chunk) end
      assert.equal(parts[chunk] > 1 and "from part " .. parts[chunk] - 1 or "", text)
      local results, words, loss = self:run(parts[chunk], list, m)
      if loss then losses[m] = loss:item() end
      return opt.results or results, words, loss
    end })
  return losses
end

-- Gradients of the parts of a stage are those wanted, of other parts there are none.
local function own_gradients_agree(self, parts, want)
  local got = self:gradients()
  for part = 1, self.n do
    local mine = false
    for _, own in ipairs(parts) do mine = mine or own == part end
    if mine then numeric.agree(got[part], want[part], 1e-13) else assert.is_false(got[part]) end
  end
end

local schedules = { { "gpipe", 1 }, { "1f1b", 1 }, { "zb-h1", 1 }, { "zb-h2", 1 }, { "zb-v", 2 }, { "interleaved", 2 } }

-- The error of fn on this rank, after a section that all ranks end; how many failed by themselves.
local function in_section(fn)
  local ok, err = pcall(fn)
  local failed = core.comm_section_end(ok or core.comm_failure() ~= nil, not ok and failure.text(err) or "")
  return not ok and err or nil, failed
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("the executor of pipelines", function()
  local executor
  setup(function() core.set_mesh { { "pipeline", world } } end)
  before_each(function() executor = core.executor_new {} end)
  after_each(function() core.executor_free(executor) end)

  for _, entry in ipairs(schedules) do
    local name, chunks = entry[1], entry[2]
    it("gives with " .. name .. " losses and gradients of one tape, and holds what the schedule says", function()
      gm.scope(function()
        local self = chain(world * chunks)
        for _, micro_batches in ipairs(world == 2 and { 1, 8 } or { 6 }) do
          local schedule = pipeline.build(name, { stages = world, micro_batches = micro_batches, chunks = chunks })
          local losses, want = self:serial(1, micro_batches), self:gradients()
          for _ = 1, 2 do -- the second step knows what crosses the borders
            self:zero_grad()
            local got = self:step(executor, schedule, rank)
            local parts = schedule.parts[rank + 1]
            own_gradients_agree(self, parts, want)
            assert.same(parts[chunks] == self.n and losses or parts[1] == self.n and losses or {}, got)
            assert.equal(pipeline.simulate(schedule).live[rank + 1] * chunks, core.executor_peak(executor))
          end
          self:zero_grad()
        end
      end)
    end)
  end

  it("runs forward only, without a tape", function()
    gm.scope(function()
      local self = chain(world * 2)
      local losses = self:serial(1, 4)
      self:zero_grad()
      local schedule = pipeline.build("interleaved", { stages = world, micro_batches = 4, forward_only = true })
      local got = self:step(executor, schedule, rank)
      assert.same(rank == world - 1 and losses or {}, got)
      assert.equal(0, core.tape_nodes())
      for part = 1, self.n do assert.is_false(self:gradients()[part]) end
    end)
  end)

  it("says what happened, in order of the list", function()
    gm.scope(function()
      local self, before = chain(world), core.executor_clock()
      local schedule = pipeline.build("1f1b", { stages = world, micro_batches = 3 })
      self:step(executor, schedule, rank)
      local events, after = core.executor_events(executor), core.executor_clock()
      assert.equal(#schedule.actions[rank + 1], #events)
      for i, action in ipairs(schedule.actions[rank + 1]) do
        local event, transfer = events[i], action[1] == "send" or action[1] == "receive"
        assert.equal(action[1], event.action)
        local said = { event.micro_batch, event.chunk }
        if transfer then said = { event.thing, event.micro_batch, event.chunk, event.peer } end
        assert.same({ unpack(action, 2) }, said)
        assert.is_true(before <= event.begin and event.begin <= event.finish and event.finish <= after)
        assert.is_true(event.waited >= 0)
      end
    end)
  end)

  it("carries views, parameters and inputs that a part gives, and charges them to no module", function()
    gm.scope(function()
      local self = chain(world)
      self.run = function(_, part, list, micro_batch)
        local h = list[1] and list[1]:transpose(1, 2) or number(micro_batch, 3, WIDTH)
        local y = h:matmul(self.weights[part])
        local w = list[2] or self.weights[1] -- given by the first part, passed on by the others
        if part == self.n then return nil, nil, (y:matmul(w) * list[3]):sum() end
        return { y:transpose(1, 2), w, list[3] or y }, "from part " .. part
      end
      local before = core.requires_grad(number(1, 2, 2), true)
      local unrelated = (before * before):sum()
      self:step(executor, pipeline.build("1f1b", { stages = world, micro_batches = 1 }), rank) -- headers
      self:zero_grad()
      core.comm_trace(true)
      local schedule = pipeline.build("1f1b", { stages = world, micro_batches = 2 })
      self:step(executor, schedule, rank)
      local messages = 0
      for _, t in ipairs(core.comm_traced()) do
        assert.equal("pipeline", t.path)
        if t.op == "send" then messages = messages + t.calls end
      end
      core.comm_trace(false)
      assert.equal(2 * 3 * (rank == 0 and 1 or rank == world - 1 and 1 or 2), messages)
      local got = self:gradients()
      core.backward(unrelated) -- what was recorded before the step is still there
      numeric.agree(core.grad(before), before * 2, 1e-15)
      self:zero_grad()
      self:serial(1, 2)
      numeric.agree(got[rank + 1], self:gradients()[rank + 1], 1e-13)
    end)
  end)

  -- The first part doubles what it reads, for which its tape holds nothing; stages meet in each forward pass, so that
  -- all but the last outputs have arrived. Kept until their backward pass, outputs would add up.
  it("holds no output that was sent", function()
    local schedule = pipeline.build("gpipe", { stages = world, micro_batches = 8 })
    local size, live = 1000 * 8, {}
    gm.scope(function()
      local w = core.requires_grad(number(1, 1000), true)
      core.executor_run(executor, { actions = schedule.actions[rank + 1], parts = { rank + 1 }, n_parts = world,
        micro_batches = 8, signatures = { "a", "a", "a", "a", "a", "a", "a", "a" },
        forward = function(m, _, list)
          local meets = rank == 0 and m > 1 or rank == 1 and m < 8 -- the first with m + 1, the second with m
          if meets and rank < 2 then core.comm_barrier(core.comm_group_of("first two", { 0, 1 })) end
          live[m] = core.memory().live
          if rank == world - 1 then return nil, nil, list[1]:sum() end
          return { (list[1] or w) * 2 }
        end })
    end)
    if rank > 0 then return end
    for m = 4, 8 do assert.is_true(live[m] - live[1] <= 3 * size, live[m] - live[1] .. " bytes at " .. m) end
  end)

  it("ends with what a part raises, as it was raised; other stages hear of it, and the next step is good", function()
    gm.scope(function()
      local self = chain(world)
      local schedule = pipeline.build("1f1b", { stages = world, micro_batches = 4 })
      local want = (self:serial(1, 4) and self:gradients())
      local mistakes = { function() error("a mistake", 0) end, function() failure(5, "a bad file") end,
        function() error { exit_code = 2, message = "an object" } end }
      for bad, mistake in ipairs(mistakes) do
        self:zero_grad()
        local err, failed = in_section(function()
          self:step(executor, schedule, rank, { before = function(m)
            if rank == bad % world and m == 2 then
              core.scope_open() -- what an error leaves open is closed
              mistake()
            end
          end })
        end)
        assert.equal(1, failed)
        if rank == bad % world then
          assert.equal(({ 1, 5, 2 })[bad], failure.code(err))
          local text = failure.text(err):gsub("^spec/[^\n:]+:%d+: ", "") -- a failure names the line that led to it
          assert.equal(({ "a mistake", "a bad file", "an object" })[bad], text)
        elseif err then
          assert.is_true(failure.is_peer(err))
        end
        self:zero_grad()
        self:step(executor, schedule, rank)
        own_gradients_agree(self, schedule.parts[rank + 1], want)
      end
      assert.equal(0, core.tape_nodes())
    end)
  end)

  it("refuses what cannot cross a border", function()
    gm.scope(function()
      local self = chain(world)
      local schedule = pipeline.build("gpipe", { stages = world, micro_batches = 1 })
      local many = {}
      for i = 1, 33 do many[i] = number(i, 2) end
      for _, case in ipairs { { many, "33 tensors to the next one; at most 32" }, { {}, "gives nothing to the part" },
        { number(1, 2), "gives a list of tensors, not a userdata" } } do
        local err = in_section(function() self:step(executor, schedule, rank, { results = rank == 0 and case[1] }) end)
        if rank == 0 then assert.is_truthy(failure.text(err):find(case[2], 1, true), failure.text(err)) end
      end
      assert.error_matches(function() core.executor_run(executor, { actions = { { "jump", 1, 1 } }, parts = { 1 },
        micro_batches = 1, forward = function() end }) end, "no action 'jump'")
    end)
  end)
end)

-- Two stages of two ranks, which share the samples.
if world == 4 then
  describe("the executor of pipelines, on stages of several ranks,", function()
    local executor, stage
    setup(function()
      core.set_mesh { { "pipeline", 2 }, { "data", 2 } }
      stage = math.floor(rank / 2)
    end)
    before_each(function() executor = core.executor_new {} end)
    after_each(function() core.executor_free(executor) end)

    -- In backward passes; a loss that is read is summed in its forward pass.
    local function reductions()
      local calls = 0
      for _, t in ipairs(core.comm_traffic()) do
        if t.group == "data" and t.op == "all_reduce" and t.phase == "backward" then calls = calls + t.calls end
      end
      return calls
    end

    for _, entry in ipairs(schedules) do
      local name, chunks = entry[1], entry[2]
      it("sums gradients over data with " .. name .. ", begun before its step ends", function()
        gm.scope(function()
          local self = chain(2 * chunks)
          if name == "zb-v" then self.weights[self.n] = self.weights[1] end -- both on stage 0: a sum of two chunks
          self:serial(1, 4)
          local want = self:gradients()
          self:zero_grad()
          local schedule = pipeline.build(name, { stages = 2, micro_batches = 4, chunks = chunks })
          local mine, seen = {}, {}
          for _, part in ipairs(schedule.parts[stage + 1]) do
            local w = self.weights[part]
            if not seen[w] then mine[#mine + 1] = w end
            seen[w] = true
          end
          self.layout = { cuts = { "data" } } -- 3 rows: one rank has 2, the other 1
          local reducer = core.reducer_new(mine, { bucket_bytes = 1 }) -- a bucket a parameter
          for _ = 1, 2 do
            self:zero_grad()
            core.comm_reset_traffic()
            core.reducer_arm(reducer, true)
            self:step(executor, schedule, stage)
            assert.equal(#mine, reductions()) -- all of them
            core.reducer_finish(reducer)
            own_gradients_agree(self, schedule.parts[stage + 1], want)
          end
          core.reducer_free(reducer)
        end)
      end)
    end
  end)
end
