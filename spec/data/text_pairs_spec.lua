--- Pairs of pieces of text: what a sample holds, how often what is drawn, and on what it depends.
-- ranks: 1 2
-- luacheck: globals finally
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local PADDING, CLASS, SEPARATOR, MASK, IGNORED = 256, 257, 258, 259, -100

-- A text in which any four bytes stand at one place only (checked below): bytes of a linear congruential generator.
local function text(n, state)
  local bytes = {}
  for i = 1, n do
    state = (state * 69069 + 12345) % 2 ^ 32
    bytes[i] = string.char(math.floor(state / 2 ^ 20) % 256)
  end
  return table.concat(bytes)
end

-- A sample as { tokens, segments, mask, y, label, n (bytes), first, second: the texts with what was hidden put back }
local function read(set, i, epoch)
  return gm.scope(function()
    local x, y = set:get(i, epoch)
    local rows, wanted = x:totable(), y:totable()
    local s = { tokens = rows[1], segments = rows[2], mask = rows[3], y = wanted, label = table.remove(wanted) }
    local bytes, separators = {}, {}
    for k, token in ipairs(s.tokens) do
      if wanted[k] ~= IGNORED then token = wanted[k] end
      if token < 256 then bytes[#bytes + 1] = string.char(token) end
      if token == SEPARATOR then separators[#separators + 1] = k end
    end
    s.n, s.separators = #bytes, separators
    local whole = table.concat(bytes)
    s.first, s.second = whole:sub(1, separators[1] - 2), whole:sub(separators[1] - 1)
    return s
  end)
end

local function found_once(haystack, needle)
  local at = haystack:find(needle, 1, true)
  assert(at and not haystack:find(needle, at + 1, true))
  return at
end

describe("TextPairs", function()
  local folder, one, other, files
  before_each(function()
    folder = shell.temporary_folder()
    one, other = text(700, 1), text(900, 2)
    files = { shell.write(folder .. "/one", one), shell.write(folder .. "/other", other) }
  end)
  after_each(function() shell.remove(folder) end)

  local function open(options)
    local opt = { path = files, sequence_length = 43, stride = 10, seed = 5 }
    for k, v in pairs(options or {}) do opt[k] = v end
    return data.TextPairs(opt)
  end

  it("has a sample wherever 40 bytes are left, in the order of the files", function()
    local set = open()
    assert.equal((math.floor(660 / 10) + 1) + (math.floor(860 / 10) + 1), set:length())
    assert.same({ 3, 43 }, set:describe().x_shape)
    assert.same({ 44 }, set:describe().y_shape)
    assert.equal(260, set:describe().classes)
    assert.equal(67, open({ path = files[1] }):length())
  end)

  it("is [CLS] a [SEP] b [SEP] padding, with segments and key mask", function()
    local set = open { short_probability = 0.5 }
    for i = 1, set:length() do
      local s = read(set, i, 3)
      assert.equal(CLASS, s.tokens[1])
      assert.equal(2, #s.separators)
      assert.equal(math.ceil(s.n / 2), #s.first)
      assert.equal(math.floor(s.n / 2), #s.second)
      assert.equal(s.n + 3, s.separators[2])
      for k = 1, 43 do
        local is_padding = k > s.n + 3
        assert.equal(is_padding, s.tokens[k] == PADDING)
        assert.equal(is_padding and 0 or 1, s.mask[k])
        assert.equal(k > s.separators[1] and not is_padding and 1 or 0, s.segments[k])
      end
    end
  end)

  it("begins at i * stride; b follows, or is from another place, as the label says", function()
    local set, both, follows = open(), one .. "\0" .. other, 0
    for i = 1, set:length() do
      local s = read(set, i, 0)
      local within, t = i - 1, one
      if within >= 67 then within, t = within - 67, other end
      assert.equal(t:sub(10 * within + 1, 10 * within + #s.first), s.first)
      local next_text = t:sub(10 * within + #s.first + 1, 10 * within + s.n)
      assert.equal(s.label == 0, s.second == next_text)
      if #s.second >= 4 then found_once(both, s.second) end -- it is text of a file, from one end to the other
      follows = follows + (s.label == 0 and 1 or 0)
    end
    -- a fair coin, 154 times: three standard deviations are 18.6
    assert.is_true(math.abs(follows - set:length() / 2) < 19)
  end)

  it("asks for 15 % of the bytes: 80 % hidden, 10 % any byte, 10 % as they are", function()
    local set, bytes, asked, hidden, same, short = open(), 0, 0, 0, 0, 0
    local rounds = 40
    for epoch = 1, rounds do
      for i = 1, set:length() do
        local s = read(set, i, epoch)
        bytes, short = bytes + s.n, short + (s.n < 40 and 1 or 0)
        for k, wanted in ipairs(s.y) do
          if wanted ~= IGNORED then
            assert.is_true(wanted >= 0 and wanted < 256)
            asked = asked + 1
            if s.tokens[k] == MASK then hidden = hidden + 1 elseif s.tokens[k] == wanted then same = same + 1 end
          end
        end
      end
    end
    local function near(count, of, p) -- four standard deviations of a binomial distribution
      assert.is_true(math.abs(count - of * p) < 4 * math.sqrt(of * p * (1 - p)), count / of .. " is not " .. p)
    end
    near(asked, bytes, 0.15)
    near(hidden, asked, 0.8)
    near(same, asked, 0.1 + 0.1 / 256) -- any byte may be the right one
    near(short, rounds * set:length(), 0.1 * 38 / 39) -- of the 39 lengths a shorter sample may have, one is the full
  end)

  it("depends on seed, epoch and sample alone", function()
    local function whole(set, epoch)
      local parts = {}
      for i = 1, 20 do
        local s = read(set, i, epoch)
        parts[i] = table.concat(s.tokens, " ") .. " / " .. table.concat(s.y, " ") .. " / " .. s.label
      end
      return parts
    end
    local first = whole(open(), 1)
    assert.same(first, whole(open(), 1))
    for _, another in ipairs { whole(open(), 2), whole(open { seed = 6 }, 1) } do
      for i = 1, 20 do assert.not_equal(first[i], another[i]) end
    end
    local before = core.seed()
    finally(function() core.set_seed(before) end)
    core.set_seed(5)
    assert.same(first, whole(data.TextPairs { path = files, sequence_length = 43, stride = 10 }, 1))
  end)

  it("comes out of a loader the same on any number of ranks, after any seek", function()
    local set = open()
    local loader = data.loader { dataset = set, batch_size = 5, shuffle = true, seed = 9 }
    loader:set_epoch(4)
    loader:seek(2)
    for _ = 1, 3 do
      local x, y = loader:next()
      assert.same({ 5, 3, 43 }, x:shape())
      assert.same({ 5, 44 }, y:shape())
      local xs, ys = x:totable(), y:totable()
      for k, i in ipairs(loader:sample_numbers()) do
        local s = read(set, i, 4)
        assert.same({ s.tokens, s.segments, s.mask }, xs[k])
        s.y[44] = s.label
        assert.same(s.y, ys[k])
      end
    end
    loader:close()
  end)

  it("keeps the parts for training and test apart", function()
    local train, test = open { split = "train", test_fraction = 0.5 }, open { split = "test", test_fraction = 0.5 }
    local head = one:sub(1, 350) .. "\0" .. other:sub(1, 450)
    local tail = one:sub(351) .. "\0" .. other:sub(451)
    for i = 1, train:length() do assert.is_truthy(head:find(read(train, i, 0).second, 1, true)) end
    for i = 1, test:length() do
      local s = read(test, i, 0)
      assert.is_truthy(tail:find(s.first, 1, true))
      assert.is_truthy(tail:find(s.second, 1, true))
    end
  end)

  it("goes down to five tokens, and to one sample", function()
    local set = open { sequence_length = 5, mask_probability = 1, short_probability = 1 }
    local s = read(set, 1, 0)
    assert.equal(2, s.n)
    for k, wanted in ipairs(s.y) do assert.equal(k == 2 or k == 4, wanted ~= IGNORED) end
    assert.equal(1, open({ path = shell.write(folder .. "/short", text(40, 3)) }):length())
    for _, wanted in ipairs(read(open { mask_probability = 0 }, 1, 0).y) do assert.equal(IGNORED, wanted) end
  end)

  it("refuses what cannot be", function()
    local function refuses(pattern, options)
      local ok, err = pcall(open, options)
      assert.is_false(ok)
      assert.matches(pattern, failure.text(err))
      assert.equal(2, failure.code(err))
    end
    refuses("/short: the 39 bytes from 0 on are too few for one sample, which takes 40; make sequence_length smaller",
      { path = { files[1], shell.write(folder .. "/short", text(39, 3)) } })
    refuses("/short: the %d+ bytes from 35 on are too few", { path = folder .. "/short", split = "test" })
    refuses("/none: cannot be opened", { path = folder .. "/none" })
    refuses("sequence_length 4, stride 10; a sample has at least 5 tokens", { sequence_length = 4 })
    assert.error_matches(function() open { path = {} } end, "path is an empty list")
    assert.error_matches(function() open { mask_probability = 1.5 } end, "mask_probability")
  end)
end)
