-- Rows that hold several documents (packed = true): windows of tokens and bytes, and conversations.
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local function refused(words, make)
  local ok, err = pcall(make)
  assert.is_false(ok)
  assert.is_truthy(failure.text(err):find(words, 1, true), failure.text(err))
end

local function file(text)
  local folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  return shell.write(folder .. "/data", text)
end

local function sample(set, i)
  local x, y = set:get(i)
  return x:totable(), y:totable()
end

describe("packed windows", function()
  it("number the documents of a window, and no target crosses a border", function()
    local path = file ""
    data.write_tokens(path, { 5, 6, 9, 7, 9, 9, 8, 5, 6, 7, 5 }, { vocab_size = 10 })
    local set = data.Tokens { path = path, sequence_length = 5, packed = true, end_token = 9 }
    local about = set:describe()
    assert.same({ { 2, 5 }, { 5 }, 2 }, { about.x_shape, about.y_shape, about.length })
    local x, y = sample(set, 1)
    assert.same({ { 5, 6, 9, 7, 9 }, { 0, 0, 0, 1, 1 } }, x)
    assert.same({ 6, 9, -100, 9, -100 }, y)
    x, y = sample(set, 2)
    assert.same({ { 9, 8, 5, 6, 7 }, { 0, 1, 1, 1, 1 } }, x)
    assert.same({ -100, 5, 6, 7, 5 }, y)
  end)

  it("of a text end behind a byte, and their tokens are those of plain windows", function()
    local path = file "one\ntwo and\n\nthree of them"
    local packed = data.Text { path = path, sequence_length = 7, stride = 3, packed = true, end_token = 10 }
    local plain = data.Text { path = path, sequence_length = 7, stride = 3 }
    assert.equal(plain:length(), packed:length())
    for i = 1, plain:length() do
      local x, y = sample(packed, i)
      local tokens, targets = sample(plain, i)
      local document = 0
      assert.same(tokens, x[1])
      for k, token in ipairs(tokens) do
        assert.equal(document, x[2][k])
        assert.equal(token == 10 and -100 or targets[k], y[k])
        if token == 10 then document = document + 1 end
      end
    end
  end)

  it("need an end token of the vocabulary, which is for them alone", function()
    local path = file "abcdefgh"
    local function text(more)
      return function()
        more.path, more.sequence_length = path, 3
        return data.Text(more)
      end
    end
    refused("Text: packed = true needs end_token: the byte behind each document", text { packed = true })
    refused("Text: end_token = 10 is for packed = true", text { end_token = 10 })
    refused("end_token 256 is none of the 256 tokens", text { packed = true, end_token = 256 })
    refused("gm.tokenizer(DIR):id(TEXT) is its number",
      function() return data.Tokens { path = path, packed = true, sequence_length = 2 } end)
  end)
end)

describe("packed conversations", function()
  local tokenizer = gm.tokenizer(GANYMEDE_ROOT .. "/spec/golden/tokenizers/llama2.json")

  local function chat(options)
    local talks = {}
    for i = 1, 23 do
      talks[i] = { prompt = ("word %d "):format(i):rep(i * i % 7 + 1), completion = ("answer "):rep(i * 5 % 9 + 1) }
    end
    options.conversations, options.end_token, options.tokenizer = talks, "</s>", tokenizer
    return data.Chat(options)
  end

  it("are rows of whole conversations, each once, with the targets of each alone", function()
    for _, room in ipairs { 45, 60, 200, 1024 } do
      local rows, alone = chat { sequence_length = room, packed = true }, chat { sequence_length = room }
      local seen, samples, fewest = {}, {}, { math.huge, math.huge } -- tokens of the two shortest rows
      for i = 1, alone:length() do
        local x, y = alone:get(i)
        samples[i] = { x, y }
      end
      for r = 1, rows:length() do
        local x, y = rows:get(r)
        local tokens, numbers, at = x[1], x[2], 0
        assert.is_true(#tokens <= room and #tokens == #numbers and #tokens == #y)
        for n, i in ipairs(rows.rows[r]) do
          assert.is_nil(seen[i])
          seen[i] = true
          for k, token in ipairs(samples[i][1]) do
            at = at + 1
            assert.same({ token, n - 1, samples[i][2][k] }, { tokens[at], numbers[at], y[at] })
          end
        end
        assert.equal(#tokens, at)
        table.insert(fewest, at)
      end
      table.sort(fewest)
      assert.equal(alone:length(), #seen)
      assert.is_true(fewest[1] + fewest[2] > room, room) -- no two rows could be one
      assert.same(rows.rows, chat({ sequence_length = room, packed = true }).rows)
    end
  end)

  it("make batches that are padded by what is in no conversation", function()
    local rows = chat { sequence_length = 60, packed = true, fill = "all" }
    local x, y = data.loader({ dataset = rows, batch_size = 3 }):next()
    assert.same({ 3, 2, 60 }, x:shape())
    assert.same({ 3, 60 }, y:shape())
    for i = 1, 3 do
      local have, wanted = x:totable()[i], rows:get(i)
      for k = 1, 60 do
        assert.equal(wanted[1][k] or 0, have[1][k])
        assert.equal(wanted[2][k] or -1, have[2][k])
        if not wanted[1][k] then assert.equal(-100, y:totable()[i][k]) end
      end
    end
  end)
end)
