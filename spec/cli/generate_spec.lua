--- ganymede generate: a small model in a folder of Hugging Face's format continues texts, alone and on ranks.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local shell = require "spec.support.shell"

local folder, files = nil, {}

local function file_of(text)
  files[#files + 1] = os.tmpname()
  local file = assert(io.open(files[#files], "w"))
  file:write(text)
  file:close()
  return files[#files]
end

-- -> status, standard output and errors
local function ganymede(words)
  local result = shell.run(shell.quote(shell.executable()) .. " generate " .. words)
  return result.code, result.out .. result.err
end

describe("ganymede generate", function()
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    local tokenizer = "spec/golden/tokenizers/llama3.json"
    gm.scope(function()
      gm.export_model(gm.models.Llama { vocabulary = gm.tokenizer(tokenizer).size, width = 16, depth = 2, heads = 2,
        kv_heads = 2, hidden = 16, std = 0.3 }, folder)
    end)
    assert(os.execute(("cp %s %s/tokenizer.json"):format(tokenizer, folder)))
  end)
  teardown(function()
    os.execute("rm -r " .. folder)
    for _, path in ipairs(files) do os.remove(path) end
  end)

  local function answers(words)
    local out = os.tmpname()
    local status, text = ganymede(("%s %s --json %s"):format(folder, words, out))
    assert.equal(0, status, text)
    local document = json.decode(machine.read(out), out)
    os.remove(out)
    return document.results
  end

  it("continues a text, and writes what it did", function()
    local one = answers "--prompt 'The capital' --max-tokens 6"[1]
    assert.equal(6, #one.tokens - #one.ids)
    assert.equal("length", one.ended)
    assert.is_true(one.tokens_per_second > 0 and one.prefill_tokens_per_second > 0)
    local status, text = ganymede(folder .. " --prompt 'The capital' --max-tokens 6")
    assert.equal(0, status)
    assert.is_truthy(text:find(one.completion, 1, true), text)
  end)

  it("gives the same on two ranks, on stages, in parts and from a disk, for several prompts #ranks", function()
    local prompts = file_of '{"prompt": "The capital"}\n{"prompt": "a"}\n'
    local words = "--prompts " .. prompts .. " --max-tokens 6 --temperature 1 --seed 4"
    local alone = answers(words)
    assert.equal(2, #alone)
    for _, more in ipairs { "-n 2 --set 'parallel={tensor={size=2,mode=\"1d\"}}'", "-n 2 --set parallel.pipeline=2",
      "-n 2 --set 'zero={stage=3,whole_below=0}'",
      "--limit-memory 8M --set 'offload={parameters=\"disk\",disk=\"/tmp\",ring=\"least\",least=1}'" } do
      local others = answers(words .. " " .. more)
      for i = 1, 2 do assert.same(alone[i].tokens, others[i].tokens, more) end
    end
  end)

  it("takes from generation_config.json what no option says", function()
    local path = folder .. "/generation_config.json"
    finally(function() os.remove(path) end)
    local function with(text, words)
      local file = assert(io.open(path, "w"))
      file:write(text)
      file:close()
      return answers("--prompt 'The capital' --seed 4 " .. words)[1].tokens
    end
    local function plain(words) return with("{}", words) end
    local sampled = '{"do_sample": true, "temperature": 3.0, "top_k": 7, "top_p": 0.8, "repetition_penalty": 1.5, '
      .. '"max_new_tokens": 6, "num_beams": 1}'
    local wanted = plain "--temperature 3 --top-k 7 --top-p 0.8 --repetition-penalty 1.5 --max-tokens 6"
    assert.same(wanted, with(sampled, ""))
    assert.same(plain "--temperature 3 --top-k 2 --top-p 0.8 --repetition-penalty 1.5 --max-tokens 5",
      with(sampled, "--top-k 2 --max-tokens 5"))
    local greedy = plain "--max-tokens 6"
    assert.not_same(wanted, greedy)
    assert.same(greedy, with('{"temperature": 3.0, "top_p": null, "max_new_tokens": 6}', ""))
    assert.same(greedy, with(sampled, "--temperature 0 --repetition-penalty 1"))
    assert.same(plain "--temperature 1 --top-k 50 --max-tokens 6", with('{"do_sample": true}', "--max-tokens 6"))
    assert.same(greedy, with('{"do_sample": true, "temperature": 0, "top_p": 0.5}', "--max-tokens 6"))
    with('{"num_beams": 4, "bad_words_ids": [], "typical_p": 1, "max_new_tokens": 3}', "")
    local _, text = ganymede(folder .. " --prompt a")
    assert.is_truthy(text:find("generation_config.json: has num_beams, which generation", 1, true), text)
    assert.is_truthy(text:find("generation_config.json: max_tokens 3", 1, true), text)
    for wrong, why in pairs { ['{"max_new_tokens": "many"}'] = "max_new_tokens", ['{"do_sample": 1}'] = "do_sample",
      ['{"do_sample": true, "top_p": 7}'] = "top_p" } do
      local file = assert(io.open(path, "w"))
      file:write(wrong)
      file:close()
      local status, said = ganymede(folder .. " --prompt a")
      assert.equal(2, status, said)
      assert.is_truthy(said:find("generation_config.json: " .. why, 1, true), said)
    end
  end)

  it("lets prompts wait for pages, and writes the same", function()
    local list = file_of '{"prompt": "The capital"}\n\n{"prompt": "a"}\n{"prompt": "b c d"}\n'
    local words = "--prompts " .. list .. " --max-tokens 6"
    local all, few = answers(words), answers(words .. " --page 2 --pages 8")
    local least = answers(words .. " --page 4 --cache-memory 4K")
    for i = 1, 3 do
      assert.same(all[i].tokens, few[i].tokens)
      assert.same(all[i].tokens, least[i].tokens)
      for _, name in ipairs { "ids", "tokens", "text", "tokens_per_second", "prefill_tokens_per_second" } do
        assert.is_not_nil(all[i][name])
      end
    end
  end)

  it("refuses options that cannot be, with the status of a wrong command", function()
    for words, message in pairs {
      ["--top-p 0.9"] = "generate: top_p is about draws", ["--repetition-penalty 0"] = "must be a number, above 0",
      ["--stop ''"] = "entry 1 of stop is \"\"", ["--pages 1 --max-tokens 20"] = "and there are 1; give more pages",
    } do
      local status, text = ganymede(folder .. " --prompt Once " .. words)
      assert.equal(2, status, text)
      assert.is_truthy(text:find(message, 1, true), text)
    end
    local status, text = ganymede(folder .. " --prompt Once --page 4 -n 2 --set parallel.pipeline=2")
    assert.equal(2, status, text)
    assert.is_truthy(text:find("cache is about pages, which cannot be with parallel.pipeline", 1, true), text)
  end)

  it("refuses a file of prompts by the line that is wrong", function()
    for line, message in pairs {
      ["{"] = "line 3", ["7"] = "line 3 is no object", ["{}"] = "line 3 has neither prompt nor messages",
      ['{"prompt": ""}'] = "line 3 has an empty prompt", ['{"prompt": 7}'] = "line 3 has a prompt that is no text",
      ['{"prompt": "a", "messages": []}'] = "line 3 has prompt and messages",
      ['{"messages": []}'] = "line 3 has neither", ['{"messages": [7]}'] = "line 3",
    } do
      local status, text = ganymede(folder .. " --prompts " .. file_of('{"prompt": "a"}\n\n' .. line .. "\n"))
      assert.equal(2, status, text)
      assert.is_truthy(text:find(message, 1, true), text)
    end
  end)

  it("talks, with all that was said before", function()
    local template = assert(io.open(folder .. "/chat_template.jinja", "w"))
    template:write "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}assistant: "
    template:close()
    local lines = file_of "Hi\nthere\n\nnot read\n"
    local status, text = ganymede(folder .. " --chat --max-tokens 3 < " .. lines)
    assert.equal(0, status, text)
    local said = {}
    for line in text:gmatch "[^\n]+" do
      if not line:find "^ganymede:" then said[#said + 1] = line end
    end
    assert.equal(2, #said, text)
    local function message(role, content) return { role = role, content = content } end
    local all = json.encode { messages = json.array { message("user", "Hi"), message("assistant", said[1]),
      message("user", "there") } }
    assert.equal(said[2], answers("--max-tokens 3 --prompts " .. file_of(all))[1].completion)
  end)

  it("continues a text with a model of bytes", function()
    local bytes, path = shell.temporary_folder(), file_of ""
    gm.scope(function()
      gm.export_model(gm.models.Llama { vocabulary = 256, width = 16, depth = 1, heads = 2, kv_heads = 2, hidden = 16 },
        bytes)
    end)
    local status, text = ganymede(bytes .. " --tokenizer bytes --prompt Once --max-tokens 4 --json " .. path)
    shell.remove(bytes)
    assert.equal(0, status, text)
    local result = json.decode(machine.read(path)).results[1]
    assert.same({ ("Once"):byte(1, -1) }, result.ids)
    assert.equal(8, #result.tokens)
  end)

  it("writes no prompt before a refusal, and no message between prompt and answer", function()
    local words = shell.quote(shell.executable()) .. " generate " .. folder .. " --prompt 'The capital' --max-tokens 3 "
    local refused = shell.run(words .. "--top-p 0.5")
    assert.equal("", refused.out)
    assert.is_truthy(refused.err:find("top_p is about draws", 1, true), refused.err)
    local told = shell.run(words .. "--set 'offload={parameters=\"disk\",disk=\"/tmp\",least=1}'")
    assert.equal(0, told.code, told.err)
    assert.is_truthy(told.out:find "^The capital.*\n$", told.out)
    assert.is_nil(told.err:find("not recorded", 1, true), told.err)
  end)

  it("refuses what does not fit together", function()
    for words, message in pairs {
      [folder] = "give one of --prompt, --prompts and --chat",
      [folder .. " --prompt a --chat"] = "give one of",
      [folder .. " --chat --json x"] = "--json goes with",
      [folder .. " --prompt a --top-p 2"] = "is no number from 0 to 1",
      ["spec/golden/hub/llama --prompt a"] = "there is no tokenizer beside it; --tokenizer names a folder that has one",
      ["/nowhere --prompt a"] = "/nowhere: there is no such folder, or it is empty",
      ["/etc/passwd --prompt a"] = "/etc/passwd: is a file",
      [folder .. " --prompt a --json /nowhere/x.json"] = "--json: cannot write /nowhere/x.json",
      [folder .. " --prompts /nowhere"] = "cannot be read",
      [folder .. " --prompt a --set optimizer.lr=1"] = "generation does not use optimizer",
      [folder .. " --prompt a --set zero=2"] = "zero = 3 divides parameters",
      [folder .. " --prompt a --set 'offload={optimizer=\"disk\",disk=\"/tmp\"}'"] = "has no optimizer states",
      [folder .. " --prompt a --set 'offload={memory=\"1G\",disk=\"/tmp\"}'"] = "a rehearsal of training",
      [folder .. " --prompt ''"] = "--prompt is empty",
      [folder .. " --prompt a --limit-memory some"] = "some",
    } do
      local status, text = ganymede(words)
      assert.equal(2, status, text)
      assert.is_truthy(text:find(message, 1, true), text)
    end
  end)
end)
