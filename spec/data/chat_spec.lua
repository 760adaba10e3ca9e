--- The dataset Chat: the tokens that are learnt, against offsets of Python's tokenizers (spec/golden/chat_answers.py);
-- batches, what is cut, what is refused.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local here = GANYMEDE_ROOT .. "/spec/golden/"

-- A folder with a tokenizer to which tokens are added, and a chat template.
local function folder_of(name, added, template)
  local folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  local text = shell.read(here .. "tokenizers/" .. name .. ".json")
  local entries = {}
  for i, token in ipairs(added) do
    local size = 0
    for _ in pairs(json.decode(text, name, true).model.vocab) do size = size + 1 end
    entries[i] = json.encode { id = size + i - 1, content = token, single_word = false, lstrip = false, rstrip = false,
      normalized = false, special = true } .. ","
  end
  text = text:gsub('"added_tokens":%s*%[', function(found) return found .. table.concat(entries) end, 1)
  shell.write(folder .. "/tokenizer.json", text)
  shell.write(folder .. "/tokenizer_config.json", '{"bos_token": "<s>", "eos_token": "</s>"}')
  shell.write(folder .. "/chat_template.jinja", shell.read(here .. "chat_templates/" .. template .. ".jinja"))
  return folder
end

local function chatml() return folder_of("smollm", { "<|im_start|>", "<|im_end|>", "</s>" }, "chatml") end

local function ask(question, answer)
  return { messages = { { role = "user", content = question }, { role = "assistant", content = answer } } }
end

local function decoded(tokenizer, y)
  local out = {}
  for _, id in ipairs(y) do out[#out + 1] = id >= 0 and id or nil end
  return tokenizer:decode(out)
end

local function refused(words, options)
  local ok, err = pcall(gm.data.Chat, options)
  assert.is_false(ok)
  assert.is_truthy(failure.text(err):find(words, 1, true), failure.text(err))
end

describe("what is learnt of a conversation", function()
  for i, row in ipairs(json.decode(shell.read(here .. "chat_answers.json"), "chat_answers.json")) do
    it(("is what Python finds: %s, %s, talk %d"):format(row.template, row.tokenizer, (i - 1) % 3 + 1), function()
      local folder = folder_of(row.tokenizer, row.added, row.template)
      local data = gm.data.Chat { conversations = { { messages = row.messages } }, tokenizer = folder }
      local x, y = data:get(1)
      assert.equal(#row.ids - 1, #x)
      for k = 1, #x do
        assert.equal(row.ids[k], x[k])
        assert.equal(row.own[k + 1] == 1 and row.ids[k + 1] or -100, y[k], k)
      end
    end)
  end

  it("is the completion and what ends it, where there is no template", function()
    local folder = chatml()
    local t = gm.tokenizer(folder)
    local data = gm.data.Chat { conversations = { { prompt = "2 + 2 = ", completion = "4!" } }, tokenizer = t }
    local x, y = data:get(1)
    assert.equal("4!</s>", decoded(t, y))
    assert.equal("2 + 2 = 4!", t:decode(x))
    data = gm.data.Chat { conversations = { { prompt = "a", completion = " b" } }, tokenizer = t,
      end_token = "<|im_end|>" }
    assert.equal(" b<|im_end|>", decoded(t, select(2, data:get(1))))
    local with_first = gm.tokenizer(here .. "tokenizers/llama2.json") -- which puts <s> before a text
    data = gm.data.Chat { conversations = { { prompt = "Hello", completion = " you" } }, tokenizer = with_first,
      end_token = "</s>" }
    x, y = data:get(1)
    assert.equal(with_first:id "<s>", x[1])
    assert.equal(with_first:id "</s>", y[#y])
    assert.equal("you</s>", decoded(with_first, y))
  end)

  it("is the answers of the completion alone, where prompt and completion are messages", function()
    local folder = chatml()
    local one, two = ask("a", "first").messages, ask("b", "second").messages
    local data = gm.data.Chat { tokenizer = folder, conversations = {
      { prompt = { one[1], one[2], two[1] }, completion = { two[2] } } } }
    assert.equal("second<|im_end|>", decoded(data.tokenizer, select(2, data:get(1))))
  end)
end)

describe("the dataset Chat", function()
  it("reads files of lines, fills batches to their longest, and says what it has", function()
    local folder = chatml()
    shell.write(folder .. "/talks.jsonl", table.concat({ json.encode(ask("Who?", "I.")), "",
      json.encode(ask("What is it that you can do for me?", "Write, and count to ten.")),
      json.encode(ask("Why?", "So.")) }, "\n"))
    local data = gm.data.Chat { path = folder .. "/talks.jsonl", tokenizer = folder }
    local about = data:describe()
    assert.same({ 3, 0, 0 }, { about.length, about.cut, about.left_out })
    local loader = gm.data.loader { dataset = data, batch_size = 2 }
    local x, y = loader:next()
    local short, long = data:get(1), data:get(2)
    assert.same({ 2, #long }, x:shape())
    assert.same({ 2, #long }, y:shape())
    assert.same(long, x:totable()[2])
    local row, targets = x:totable()[1], y:totable()[1]
    for k = 1, #long do
      assert.equal(short[k] or 0, row[k])
      if not short[k] then assert.equal(-100, targets[k]) end
    end
    x = loader:next()
    assert.same({ 1, #(data:get(3)) }, x:shape()) -- the next batch is as long as its own
    loader = gm.data.loader { dataset = gm.data.Chat { path = folder .. "/talks.jsonl", tokenizer = folder,
      multiple = 64 }, batch_size = 2 }
    assert.same({ 2, math.ceil(#long / 64) * 64 }, loader:next():shape())
    loader = gm.data.loader { dataset = gm.data.Chat { path = folder .. "/talks.jsonl", tokenizer = folder,
      fill = "all", sequence_length = 100 }, batch_size = 3 }
    assert.same({ 3, 100 }, loader:next():shape())
    local xs = gm.data.loader({ dataset = data, batch_size = 2 }):next_pieces(2)
    assert.same({ { 1, #long }, { 1, #long } }, { xs[1]:shape(), xs[2]:shape() }) -- pieces are as long as their batch
  end)

  it("cuts what is too long, leaves out what has no answer then, and counts both", function()
    local folder = chatml()
    local list = { ask("a", ("many words "):rep(30)), ask(("long question "):rep(30), "b"), ask("c", "d") }
    local data = gm.data.Chat { conversations = list, tokenizer = folder, sequence_length = 40 }
    local about = data:describe()
    assert.same({ 2, 1, 1 }, { about.length, about.cut, about.left_out })
    local x, y = data:get(1)
    assert.equal(40, #x)
    local whole = { gm.data.Chat({ conversations = list, tokenizer = folder }):get(1) }
    assert.same({ unpack(whole[1], 1, 40) }, x)
    assert.same({ unpack(whole[2], 1, 40) }, y)
  end)

  it("refuses what is wrong, by file and line", function()
    local folder = chatml()
    local path = folder .. "/talks.jsonl"
    local function line(text, words)
      shell.write(path, json.encode(ask("a", "b")) .. "\n" .. text .. "\n")
      refused(words, { path = path, tokenizer = folder })
    end
    line("{", "talks.jsonl: line 2: column 1: ")
    line('{"messages": [{"role": "user", "content": "x', "talks.jsonl: line 2: column 4")
    line("[1]", "talks.jsonl: line 2: has neither messages, nor prompt and completion")
    line('{"messages": []}', "line 2: messages is no list of messages")
    line('{"messages": [{"role": "user"}]}', "line 2: messages 1 needs role and content, both texts")
    line('{"messages": [{"role": "user", "content": "x"}]}', "line 2 has no answer to learn")
    line('{"prompt": "x"}', "line 2: has neither messages")
    line('{"tools": [1], "messages": [{"role": "user", "content": "x"}]}', "line 2: has tools")
    shell.write(path, "\n\n")
    refused("talks.jsonl: there is no line in it", { path = path, tokenizer = folder })
    refused("entry 2 of path is 3, no text", { path = { path, 3 }, tokenizer = folder })
    refused("Chat: tokenizer /none: there is no such file or folder; name a folder", { path = path,
      tokenizer = "/none" })
    refused("cannot be read", { path = folder .. "/none", tokenizer = folder })
    refused("give path, or conversations", { tokenizer = folder })
    refused("there are no conversations", { conversations = {}, tokenizer = folder })
    refused("names no eos_token", { conversations = { { prompt = "a", completion = "b" } },
      tokenizer = here .. "tokenizers/smollm.json" })
    refused("in its first 3 tokens", { conversations = { ask("long question", "b") }, tokenizer = folder,
      sequence_length = 3 })
    local thinks = ask("a", "<think>\nhm\n</think>\n\nb").messages
    thinks[3], thinks[4] = ask("c", "d").messages[1], ask("c", "d").messages[2]
    refused("conversation 1: the chat template does not write answer 2", { conversations = { { messages = thinks } },
      tokenizer = folder_of("smollm", { "<|im_start|>", "<|im_end|>" }, "qwen") })
  end)
end)
