-- Float8Hook: which tensors of 8 bits needed a larger scale than they had. The truth is a loop over what every update
-- found, as it stood before the update. With a history of one step, numbers that grow are clipped in many steps.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local fails = require "spec.support.fails"
local gm = require "ganymede"

local function config(changes)
  local c = {
    seed = 4, dtype = "f32", steps = 10,
    loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
    model = { type = "MLP", inputs = 32, hidden = { 64, 48 }, classes = 10 },
    data = { train = { type = "Synthetic", length = 512, shape = { 32 } }, batch_size = 16 },
    float8 = { scaling = "delayed", history = 1 }, hooks = { { type = "Float8Hook", interval = 4, named = 6 } },
  }
  for key, value in pairs(changes or {}) do c[key] = value end
  return c
end

-- Trains -> the lines of the hook, the trainer.
local function lines(c)
  local said = {}
  local trainer = gm.fit(c, { log = function(text) said[#said + 1] = text end })
  local own = {}
  for _, text in ipairs(said) do
    if text:find "^float8 " then own[#own + 1] = text end
  end
  return own, trainer
end

-- What updates find, by a loop: a hook, and its list of { [tensor of path] = { steps, times } } for each 4 updates.
local function counting()
  local hook, found, updates = { needs_output = false, needs_loss = false }, {}, 0
  local function note(state)
    updates = updates + 1
    local part = math.ceil(updates / 4)
    found[part] = found[part] or {}
    local scale, needed = state.scale:totable(), state.needed:totable()
    for i, path in ipairs(state.paths) do
      for k, name in ipairs { "x", "w", "dy" } do
        local has, needs = scale[i][k], needed[i][k]
        if has > 0 and needs > has and needs < math.huge then
          local key = name .. " of " .. path
          local entry = found[part][key] or { 0, 0 }
          found[part][key] = { entry[1] + 1, math.max(entry[2], needs / has) }
        end
      end
    end
  end
  function hook.before_train(_, trainer)
    local state = trainer.engine.float8
    local update = state.update
    function state.update(self)
      note(self)
      return update(self)
    end
  end
  return hook, found
end

local function read(line)
  local out = {}
  for key, steps, times in line:gmatch "([xwdy]+ of [%w.]+) in (%d+), up to (%d+) times" do
    out[key] = { tonumber(steps), tonumber(times) }
  end
  return out
end

local function size(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

describe("Float8Hook", function()
  it("names the tensors whose scale was too small, their steps and how much too small", function()
    local c, hook, found = config(), counting()
    c.hooks[2] = hook
    local said, trainer = lines(c)
    assert.equal(3, #said) -- after 4, 8 and all 10 steps
    local clipped = 0
    for part, line in ipairs(said) do
      assert.same(found[part], read(line))
      local n = size(found[part])
      assert.equal(("float8  %d of 6 tensors were clipped in the last %d steps"):format(n, part < 3 and 4 or 2),
        line:match "^(.-)  %(" or line)
      clipped = clipped + n
    end
    assert.is_true(clipped > 0)
    assert.equal(size(found[3]), trainer.states.float8_clipped)
    assert.equal(size(found[3]), trainer.metrics.train.float8_clipped)
    assert.is_nil(trainer.engine.float8.watched) -- nothing is counted after the run
  end)

  it("finds nothing where scales have room, and names as many as it is asked for", function()
    local roomy = lines(config { float8 = { scaling = "delayed", history = 16, margin = 7 } })
    assert.equal("float8  0 of 6 tensors were clipped in the last 4 steps", roomy[1])
    local c = config()
    c.hooks[1].named = 0
    for _, line in ipairs((lines(c))) do assert.is_nil(line:find("(", 1, true)) end
  end)

  it("changes nothing of training, and counts the same in graphs", function()
    local said, with = lines(config())
    local recorded, graph = lines(config { graph = true })
    local _, without = lines(config { hooks = {} })
    assert.same(said, recorded)
    assert.same(with.losses, without.losses)
    assert.same(with.losses, graph.losses)
  end)

  it("counts from the next step on where it comes in the middle of a run, also if steps are graphs", function()
    local function late(graph)
      local function add(_, trainer)
        if trainer.step == 6 then trainer:add_hook { type = "Float8Hook", interval = 2, named = 6 } end
      end
      return (lines(config { graph = graph, hooks = { { needs_output = false, before_train_iter = add } } }))
    end
    local said = late(false)
    assert.equal(2, #said)
    assert.is_true(read(said[2])["dy of layers.1"] ~= nil, said[2])
    assert.same(said, late(true))
  end)

  it("is refused where no layer keeps scales, and twice", function()
    fails("Float8Hook: no layer keeps scales", gm.fit, config { float8 = true }, { log = function() end })
    fails("Float8Hook is given twice", gm.fit, config { hooks = { { type = "Float8Hook" }, { type = "Float8Hook" } } },
      { log = function() end })
  end)
end)
