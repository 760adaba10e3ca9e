-- ganymede tokenize: files of tokens as gm.tokenizer makes them, whatever threads, stops and compressions.
local gm = require "ganymede"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local tokenizer = "spec/golden/tokenizers/llama3.json"

describe("ganymede tokenize", function()
  local folder, t
  before_each(function()
    folder = shell.temporary_folder()
    t = gm.tokenizer(tokenizer)
  end)
  after_each(function()
    shell.remove(folder)
    t:close()
  end)

  local function tokenize(...)
    local words = { "tokenize" }
    for _, word in ipairs { ... } do words[#words + 1] = word end
    for _, word in ipairs { "--tokenizer", tokenizer, "-o", folder .. "/out.tokens" } do words[#words + 1] = word end
    return run_host(words)
  end

  -- The tokens of the file, by its own words: a header of 32 bytes, then 2 bytes each.
  local function written(name)
    local bytes = shell.read(folder .. "/" .. (name or "out.tokens"))
    assert.equal("GMTOKENS\1\0\0\0\2\0\0\0", bytes:sub(1, 16))
    local list = {}
    for i = 33, #bytes, 2 do list[#list + 1] = bytes:byte(i) + 256 * bytes:byte(i + 1) end
    assert.equal(#list, bytes:byte(17) + 256 * bytes:byte(18) + 65536 * bytes:byte(19))
    assert.equal(t.size, bytes:byte(25) + 256 * bytes:byte(26))
    return table.concat(list, " ")
  end

  local function expected(texts, opt)
    local list = {}
    for _, text in ipairs(texts) do
      for _, id in ipairs(t:encode(text, opt)) do list[#list + 1] = id end
      if opt and opt.finish then list[#list + 1] = opt.finish end
    end
    return table.concat(list, " ")
  end

  it("takes texts, lines, JSON lines and gzipped files, in their order", function()
    shell.write(folder .. "/a.txt", "One text\nof two lines.\n")
    shell.write(folder .. "/b.jsonl", '{"text": "caf\\u00e9 \\n"}\n\n{"x": 1, "text": ""}\n{"text": "end"}')
    shell.write(folder .. "/c.txt", "zipped")
    shell.run("gzip " .. folder .. "/c.txt")
    local result = tokenize(folder .. "/a.txt", folder .. "/b.jsonl", folder .. "/c.txt.gz")
    assert.equal(0, result.code, result.err)
    assert.equal(expected { "One text\nof two lines.\n", "café \n", "", "end", "zipped" }, written())
    assert.truthy(result.out:find "5 texts")
  end)

  it("says how fast it was, its first piece included", function()
    shell.write(folder .. "/big.txt", ("some words of a text\n"):rep(100000))
    local result = run_host { "tokenize", folder .. "/big.txt", "--tokenizer", "bytes", "-o", folder .. "/out.tokens" }
    assert.equal(0, result.code, result.err)
    local rate = result.err:match "2100000 tokens, (%S+) MB/s"
    assert.is_true(tonumber(rate) > 0, result.err)
  end)

  it("takes lines as texts, other fields, a token after each, and no special tokens", function()
    shell.write(folder .. "/a.txt", "one\r\n\ntwo words\nthree")
    shell.write(folder .. "/b.jsonl", '{"body": "four"}\n')
    local result = tokenize(folder .. "/a.txt", folder .. "/b.jsonl", "--lines", "--field", "body", "--no-special",
      "--end", "<|endoftext|>")
    assert.equal(0, result.code, result.err)
    assert.equal(table.concat({ expected({ "one" }, { special = false }), 0, expected({ "two words" },
      { special = false }), 0, expected({ "three" }, { special = false }), 0, expected({ "four" },
      { special = false }), 0 }, " "), written())
  end)

  -- Lines of different lengths, some MB: several steps of several parts.
  local function large()
    local parts = {}
    for i = 1, 60000 do
      parts[i] = ("line %d: %s %d\n"):format(i, ("the quick fox, "):rep(1 + i * 7 % 11), i * i % 1009)
    end
    shell.write(folder .. "/large.txt", table.concat(parts))
    return folder .. "/large.txt"
  end

  it("gives the same bytes on one thread and on three, and after a kill", function()
    local path = large()
    assert.equal(0, tokenize(path, "--lines", "--threads", "1").code)
    local whole = shell.read(folder .. "/out.tokens")
    os.remove(folder .. "/out.tokens")
    assert.equal(0, tokenize(path, "--lines", "--threads", "3").code)
    assert.is_true(whole == shell.read(folder .. "/out.tokens"))
    os.remove(folder .. "/out.tokens")

    -- What a killed run leaves: the place after a step, and bytes of a later one in the file.
    local core = require "ganymede.core"
    local work = core.tokenize_open(t.handle, { path }, folder .. "/out.tokens",
      { lines = true, special = true, threads = 2 })
    local place = core.tokenize_step(work)
    assert.is_false(place.done)
    core.tokenize_step(work)
    core.tokenize_close(work, false)
    local again = core.tokenize_open(t.handle, { path }, folder .. "/out.tokens",
      { lines = true, special = true, threads = 2 }, place)
    repeat place = core.tokenize_step(again) until place.done
    core.tokenize_close(again, true)
    assert.is_true(whole == shell.read(folder .. "/out.tokens"))
    assert.equal(60000, place.documents)
  end)

  it("goes on after a signal from what it has kept, and refuses other settings there", function()
    local path = large()
    assert.equal(0, tokenize(path, "--lines").code)
    local whole = shell.read(folder .. "/out.tokens")
    os.remove(folder .. "/out.tokens")
    local core = require "ganymede.core"
    local work = core.tokenize_open(t.handle, { path }, folder .. "/out.tokens",
      { lines = true, special = true, threads = 1 })
    local place = core.tokenize_step(work)
    core.tokenize_close(work, false)
    local json = require "ganymede.base.json"
    local mark = json.encode { files = { { path = path, size = #shell.read(path) } },
      tokenizer = core.file_checksum(tokenizer), finish = -1, field = "text", lines = true, special = true }
    shell.write(folder .. "/out.tokens.state", json.encode { mark = mark, place = place })
    local other = tokenize(path, "--lines", "--no-special")
    assert.equal(2, other.code)
    assert.truthy(other.err:find("other files, options or another tokenizer", 1, true))
    local result = tokenize(path, "--lines")
    assert.equal(0, result.code, result.err)
    assert.truthy(result.err:find("going on after", 1, true))
    assert.is_true(whole == shell.read(folder .. "/out.tokens"))
    assert.falsy(io.open(folder .. "/out.tokens.state"))
  end)

  it("makes files that data.Tokens reads", function()
    shell.write(folder .. "/a.txt", ("some text of a book. "):rep(100))
    assert.equal(0, tokenize(folder .. "/a.txt").code)
    local data = gm.data.Tokens { path = folder .. "/out.tokens", sequence_length = 8 }
    assert.is_true(data:length() > 10)
  end)

  it("ends with status 1 where its result has no room, and goes on when there is some", function()
    local path = shell.write(folder .. "/a.txt", ("some text of a book. "):rep(5000))
    local words = ("tokenize %s --tokenizer %s -o %s/out.tokens"):format(path, tokenizer, folder)
    local full = shell.run(("sh -c 'trap \"\" XFSZ; ulimit -f 8; exec %s %s'"):format(shell.executable(), words))
    assert.equal(1, full.code, full.err)
    assert.matches("out.tokens.part: cannot be written: File too large", full.err, 1, true)
    assert.falsy(io.open(folder .. "/out.tokens"))
    assert.equal(0, tokenize(path).code)
  end)

  it("refuses what it cannot read, by file and line, and leaves no result", function()
    local function refused(name, text, pattern, code, ...)
      shell.write(folder .. "/" .. name, text)
      local result = tokenize(folder .. "/" .. name, ...)
      assert.equal(code, result.code, name)
      assert.truthy(result.err:find(pattern), result.err)
      assert.falsy(io.open(folder .. "/out.tokens"))
    end
    refused("a.jsonl", '{"text": "a"}\n{"body": "b"}\n', "a%.jsonl: line 2: has no text 'text'", 5)
    refused("b.jsonl", '{"text": "a"}\nnonsense\n', "b%.jsonl: line 2", 5)
    refused("c.txt", "a\255", "c%.txt, in what follows line 0: the text is no UTF%-8: byte 1", 2)
    refused("d.gz", "\31\139\8\0\0\0\0\0\0\3broken", "d%.gz", 5)
    refused("e.txt", "a", "has no token '<nothing>'", 2, "--end", "<nothing>")
    assert.equal(2, tokenize(folder .. "/missing.txt").code)
    shell.write(folder .. "/out.tokens", "kept")
    assert.equal(2, tokenize(folder .. "/e.txt").code)
    assert.equal("kept", shell.read(folder .. "/out.tokens"))
  end)

  it("--train finds the merges that Python's trainer finds", function()
    local json = require "ganymede.base.json"
    local golden = json.decode(shell.read "spec/golden/tokenizers/trained.json")
    local text = folder .. "/train.jsonl"
    shell.write(text, shell.read "spec/golden/tokenizers/trained.jsonl")
    local result = run_host { "tokenize", text, "--train", "600", "--add", "<|endoftext|>", "-o", folder .. "/model" }
    assert.equal(0, result.code, result.err)
    local made = json.decode(shell.read(folder .. "/model/tokenizer.json"))
    assert(#golden.model.merges > 300)
    assert.same(golden.model.merges, made.model.merges)
    assert.same(golden.model.vocab, made.model.vocab)
    assert.same(golden.added_tokens, made.added_tokens)
    local other = gm.tokenizer(folder .. "/model")
    assert.equal("naïve 日本", other:decode(other:encode "naïve 日本"))
    assert.equal(2, run_host({ "tokenize", text, "--train", "600", "-o", folder .. "/model" }).code)
    assert.equal(2, run_host({ "tokenize", text, "--train", "600", "--threads", "2", "-o", folder .. "/m2" }).code)
  end)
end)
