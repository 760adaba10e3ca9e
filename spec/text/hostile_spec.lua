--- Tokenizers and chat templates that are damaged, lie or do not end, by a seeded fuzzer (spec.support.mutate): each is
-- refused with a message that names the file, or it works; memory is bounded. More: GANYMEDE_SPEC_FILES=20000.
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local mutate = require "spec.support.mutate"
local shell = require "spec.support.shell"
local template = require "ganymede.text.template"

local GOLDEN = GANYMEDE_ROOT .. "/spec/golden/"
local ROOM = 2 ^ 29 -- bytes of memory that a file of some kilobytes may cost
local COUNT = mutate.count(30)

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

local TEXTS = { "", "Hello  world, it's 12345!\n\n", "naive cafe\204\129 \239\172\129ne \226\133\167 <x> ABC",
  "\227\129\130\230\188\162\229\173\151 \240\159\145\168\226\128\141\240\159\145\169", ("a"):rep(300) .. "b",
  (" "):rep(200) .. "x", "\0\1\127 <|endoftext|> [CLS]</s>" }

-- A tokenizer that opens is used; only a text that it cannot encode is refused then, by name of what is wrong.
local function use(path)
  local t = gm.tokenizer(path)
  for _, text in ipairs(TEXTS) do
    local ok, ids = pcall(t.encode, t, text)
    if ok then
      for _, special in ipairs { true, false } do
        local fine, err = pcall(t.decode, t, ids, { special = special })
        assert(fine or mutate.is_clear(failure.text(err), ""), failure.text(err))
      end
    else
      assert(mutate.is_clear(failure.text(ids), ""), failure.text(ids))
    end
  end
  t:close()
end

local function fuzz(name, seed, make, open)
  mutate.bounded(ROOM, function()
    for i = 1, COUNT do
      local r = mutate.random(seed * 1000003 + i)
      local made = make(r)
      local ok, err = pcall(open, made)
      local text = failure.text(err)
      assert(ok or mutate.is_clear(text, name), ("file %d of seed %d: %s"):format(i, seed, text:sub(1, 600)))
      if i % 50 == 0 then collectgarbage() end
    end
  end)
end

local function written(name, bytes) return shell.write(folder .. "/" .. name, bytes) end

-- A few entries of a long table or list, so that changes fall on what is special.
local function shortened(value, most)
  if type(value) ~= "table" or value == json.null then return value end
  local out, n = json.is_array(value) and json.array {} or {}, 0
  for key, entry in pairs(value) do
    n = n + 1
    if n <= most then out[key] = shortened(entry, most) end
  end
  return out
end

describe("hostile tokenizers are refused or work:", function()
  local names = { "bert", "clip", "deepseek", "first", "gpt2", "llama2", "llama3", "qwen2", "roberta", "smollm",
    "unigram", "wordlevel" }
  for seed, name in ipairs(names) do
    it(name .. ".json", function()
      local whole = json.decode(shell.read(GOLDEN .. "tokenizers/" .. name .. ".json"), name)
      local small = shortened(whole, 40)
      if small.model.merges then small.model.merges = json.array {} end
      fuzz("t.json", seed, function(r)
        local from = r(8) == 0 and whole or small
        return written("t.json", mutate.text(r, json.encode(mutate.json(r, from))))
      end, use)
    end)
  end

  for seed, name in ipairs { "bpe", "bpe_user", "suffix", "unigram", "unigram_user" } do
    it("pieces_" .. name .. ".model", function()
      local good = shell.read(GOLDEN .. "tokenizers/pieces_" .. name .. ".model")
      fuzz("t.model", 100 + seed, function(r)
        if r(2) == 0 then return written("t.model", mutate.bytes(r, good, 200)) end
        return written("t.model", mutate.bytes(r, good:sub(1, r(600)) .. good:sub(-r(900) - 1)))
      end, use)
    end)
  end
end)

describe("hostile chat templates are refused or end:", function()
  local pieces = { "{{", "}}", "{%", "%}", "{#", "#}", " for a in ", "range(100000)", "messages", "{% endfor %}",
    "{% if x %}", "{% else %}", "{% endif %}", "{% set x = x ~ x %}", "{% set ns.a = ns %}", "| tojson", "| join(",
    "| replace('a', 'aaaaaaaaaaaaaaaa')", ".split(", "''", "'a'", "1e308", "(", ")", "[", "]", "-", "not ", "-%}",
    "{%-",
    "loop.index", "namespace(a=1)", "x + x", "[x, x]", "x == y", "in x", "none", ".strip('a", "\n", ".a", "[::-1]",
    "raise_exception(1)", "strftime_now('%c')", "strftime_now('*t')", "| length", "== 1", " is defined", "\0",
    "\255" }
  local talk = { { role = "user", content = ("Hi "):rep(40) }, { role = "assistant", content = "Hello </think> a" } }

  for seed, name in ipairs { "chatml", "forms", "gemma", "llama2", "llama3", "mistral", "qwen", "smollm", "zephyr" } do
    it(name, function()
      local good = shell.read(GOLDEN .. "chat_templates/" .. name .. ".jinja")
      fuzz("T.jinja", 200 + seed, function(r)
        local text = good
        for _ = 0, r(4) do
          local at = r(#text + 1)
          text = text:sub(1, at) .. r.one(pieces) .. text:sub(at + 1 + r(3) * r(30))
        end
        return r(4) == 0 and mutate.bytes(r, text) or text
      end, function(text)
        template(text, "T.jinja") { messages = talk, x = "a", y = json.array { 1, "b" }, ns = {},
          add_generation_prompt = true }
      end)
    end)
  end

  it("whatever would grow or run for ever is refused within bounds", function()
    local function refused(pattern, text)
      mutate.bounded(ROOM, function()
        local function render() template(text, "T") { x = "aa", y = json.array { 1 } } end
        assert.error_matches(render, "^T: line 1: " .. pattern)
      end)
      collectgarbage()
    end
    local long = "{% for i in range(100000) %}%s{% endfor %}"
    local function loop(text) return (long:gsub("%%s", (text:gsub("%%", "%%%%")))) end
    refused("a text or list of more than", "{% set n = namespace(x='aa') %}" .. loop "{% set n.x = n.x ~ n.x %}")
    refused("a text or list of more than", "{% set n = namespace(x='aa') %}" .. loop "{% set n.x = n.x + n.x %}")
    refused("a text or list of more than",
      "{% set n = namespace(x='aa') %}" .. loop "{% set n.x = n.x | replace('a', 'aaaaaaaaaa') %}")
    refused("a text or list of more than", "{% set n = namespace(x=[1, 2]) %}" .. loop "{% set n.x = n.x + n.x %}")
    refused("the template works on more than", "{% set n = namespace(x='') %}" .. loop "{% set n.x = n.x + 'aaaaaa' %}")
    refused("the template works on more than",
      "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
        .. "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}")
    refused("the template works on more than",
      "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}")
    refused("tojson of what is nested too deeply",
      "{% set n = namespace(x=[1]) %}{% for i in range(600) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}")
    refused("the template does not come to an end", loop(loop ""))
    refused("the template does not come to an end", loop(loop "{{ i }}"))
    refused("the text is longer than", "{% set n = namespace(x='" .. ("a"):rep(2000) .. "') %}" .. loop "{{ n.x }}")
    refused("a range of", "{{ range(1000000000) | length }}")
    refused("is nested too deeply", "{{ " .. ("not "):rep(5000) .. "x }}")
    refused("is nested too deeply", "{{ " .. ("- "):rep(5000) .. "1 }}")
    refused("is nested too deeply", "{{ x" .. (" ~ x"):rep(5000) .. " }}")
    refused("split by an empty text", "{{ x.split('') }}")
    refused("replace of an empty text", "{{ x.replace('', 'b') }}")
    refused("'.startswith' takes 1 arguments here, not 0", "{{ x.startswith() }}")
    refused("'range' takes a number here", "{{ range('a') }}")
    refused("the names of a table are texts", "{{ { 1: 2 } }}")
  end)

  it("and long ones are read in a time that grows with their length", function()
    template(("{%% if x %%}%s{%% endif %%}"):format((" "):rep(2 ^ 20) .. "."), "T") { x = true }
    template(("a{%- if x -%}" .. (" "):rep(2 ^ 16) .. "{% endif %}\n"):rep(16), "T") { x = true }
    template(("{{x}}"):rep(2 ^ 16), "T") { x = "a" }
    template("{{ x | trim }}", "T") { x = (" "):rep(2 ^ 20) .. "a" .. (" "):rep(2 ^ 20) .. "b" }
  end)
end)

describe("hostile tokenizers", function()
  local function open(change)
    local document = { model = { type = "WordLevel", vocab = { a = 0, ["?"] = 1 }, unk_token = "?" } }
    change(document)
    return gm.tokenizer(written("t.json", json.encode(document)))
  end

  it("that make texts grow without end are refused when they do", function()
    local steps = json.array {}
    for i = 1, 12 do steps[i] = { type = "Replace", pattern = { String = "a" }, content = ("a"):rep(100) } end
    local function refused(pattern, change)
      mutate.bounded(ROOM, function()
        local t = open(change)
        assert.error_matches(function() t:encode(("a"):rep(64)) end, pattern)
        t:close()
      end)
    end
    refused("a text grows to more than", function(d) d.normalizer = { type = "Sequence", normalizers = steps } end)
    local bytes = json.array {}
    for i = 1, 7 do bytes[i] = { type = "ByteLevel", add_prefix_space = true, use_regex = false } end
    bytes[8] = { type = "Metaspace", replacement = ("_"):rep(2 ^ 21), prepend_scheme = "always", split = false }
    refused("a text grows to more than", function(d)
      d.pre_tokenizer = { type = "Sequence", pretokenizers = bytes }
    end)
    mutate.bounded(ROOM, function()
      local t = open(function(d) d.decoder = { type = "Sequence", decoders = steps } end)
      assert.error_matches(function() t:decode { 0, 0, 0 } end, "a text grows to more than")
    end)
  end)

  it("whose regular expressions go through all ways to match are refused when they do", function()
    for _, pattern in ipairs { "(a+)+$", "(a|aa)+$", "(a*)*c", "(?:a?){40}a{40}", "(.*)*(.*)*(.*)*[^a]$" } do
      local t = open(function(d)
        d.pre_tokenizer = { type = "Split", pattern = { Regex = pattern }, behavior = "Isolated" }
      end)
      local ok, err = pcall(t.encode, t, ("a"):rep(5000) .. "b")
      assert(ok or failure.text(err):find "a regular expression cannot be matched at byte %d+: ", failure.text(err))
      t:close()
    end
  end)

  it("with the character U+0000 in their parts read nothing behind it", function()
    for _, part in ipairs { "decoder", "pre_tokenizer" } do
      local t = open(function(d)
        d[part] = { type = "Metaspace", replacement = "a\0bcdefgh", prepend_scheme = "always", split = true }
      end)
      t:decode(t:encode "a b c")
      t:close()
    end
    local t = open(function(d) d.pre_tokenizer = { type = "CharDelimiterSplit", delimiter = "\0x" } end)
    t:encode "a\0x?"
    t:close()
    t = open(function(d) d.added_tokens = json.array { { id = 2, content = "z\0longer", special = true } } end)
    assert.same({ 2 }, t:encode "z\0longer")
    assert.equal("z\0longer", t:decode { 2 })
    assert.error_matches(function()
      open(function(d) d.decoder = { type = "Metaspace", replacement = "", prepend_scheme = "always" } end)
    end, "decoder%.replacement: is empty")
  end)

  it("whose table of characters is no UTF-8, or points inside of a character, change nothing by it", function()
    local function mapped(bytes) -- of one unit of the array: no entry at all
      local raw = "\4\0\0\0\0\0\0\0" .. bytes
      return require("spec.support.base64")(raw)
    end
    assert.error_matches(function()
      open(function(d) d.normalizer = { type = "Precompiled", precompiled_charsmap = mapped "\255\0" } end)
    end, "no UTF%-8, at byte 0 of its texts")
    open(function(d) d.normalizer = { type = "Precompiled", precompiled_charsmap = mapped "\195\169\0" } end):close()
  end)
end)
