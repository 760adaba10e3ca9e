-- Chat templates against Jinja (spec/golden/chat_templates.py), what is refused, and gm.tokenizer's chat.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local template = require "ganymede.text.template"
local tree = require "spec.support.tree"

local golden = json.decode(tree.read "spec/golden/chat_templates.json")

local function source(name) return tree.read(("spec/golden/chat_templates/%s.jinja"):format(name)) end

describe("a chat template gives what Jinja gives", function()
  for _, name in ipairs { "chatml", "forms", "gemma", "llama2", "llama3", "mistral", "qwen", "smollm", "zephyr" } do
    it("in the manner of " .. name, function()
      local render, n = template(source(name), name), 0
      for _, row in ipairs(golden.rows) do
        if row.template == name then
          n = n + 1
          local values = { messages = golden.talks[row.talk], add_generation_prompt = row.prompt, bos_token = "<s>",
            eos_token = "</s>", tools = json.null, documents = json.null }
          if row.thinking == false then values.enable_thinking = false end
          if row.text then
            assert.equal(row.text, render(values), row.talk)
          else
            assert.error_matches(function() render(values) end, row.error, 1, true)
          end
        end
      end
      assert.equal(12, n)
    end)
  end
end)

describe("a chat template", function()
  local function refused(pattern, text, values)
    assert.error_matches(function() template(text, "T")(values or {}) end, pattern)
  end

  it("is refused where it has what is not known, by its line", function()
    refused("T: line 2: 'macro' is not known here", "a\n{% macro f() %}{% endmacro %}")
    refused("T: line 1: the filter 'rot13' is not known", "{{ 'a' | rot13 }}")
    refused("T: line 3: the test 'prime' is not known", "\n\n{{ 7 is prime }}")
    refused("the function 'open' is not known", "{{ open('x') }}")
    refused("the method 'format' is not known", "{{ 'a'.format(1) }}")
    refused("'include' is not known", "{% include 'x' %}")
    refused("the escape \\x", "{{ '\\x41' }}")
  end)

  it("is refused where it is wrong", function()
    refused("'endif' is missing", "{% if true %}a")
    refused("a tag {{ does not end", "a {{ b")
    refused("a text does not end", "{{ 'a }}")
    refused("a part of what is undefined", "{{ a.b }}")
    refused("'%+' needs two texts", "{{ 'a' + 1 }}")
    refused("'for' needs a list", "{% for a in 7 %}{% endfor %}")
    refused("cannot be printed", "{{ [1] }}")
    refused("is no namespace", "{% set a = 1 %}{% set a.b = 2 %}")
    refused("a division by zero", "{{ 1 % 0 }}")
    refused("nested too deeply", "{{ " .. ("("):rep(200) .. "1" .. (")"):rep(200) .. " }}")
    refused("whose order is not kept", "{{ a | tojson }}", { a = { b = 1, c = 2 } })
  end)

  it("takes what Python does for white space, and whole characters", function() -- checked with Jinja 3.1.6
    local function given(text, x) return template(text, "T") { x = x } end
    local wide = "\227\128\128 é、a\194\160b \226\128\168\28"
    assert.equal("é、a\194\160b|", given("{{ x.strip() }}|", wide))
    assert.equal("é、a\194\160b|", given("{{ x | trim }}|", wide))
    assert.equal("\227\128\128 é、a\194\160b|", given("{{ x.rstrip() }}|", wide))
    assert.equal("é、a\194\160b \226\128\168\28|", given("{{ x.lstrip() }}|", wide))
    assert.equal("é、a,b", given("{{ x.split() | join(',') }}", wide))
    assert.equal("あ|", given("{{ x.strip('、') }}|", "あ、")) -- bytes of which are those of the comma, too
    assert.equal("|", given("{{ x.strip() }}|", "\227\128\128"))
    assert.equal("ABC、！日本", given("{{ x | upper }}", "aBc、！日本"))
    for _, letter in ipairs { "É", "Σ", "я", "Ａ", "ﬁ", "µ" } do
      refused("upper and lower of a letter that is not ASCII", "{{ x.lower() }}", { x = "a日" .. letter })
    end
    assert.equal([["\\u001F \u001f\n/é"]], given("{{ x | tojson }}", "\\u001F \31\n/é"))
  end)

  it("cannot work without end", function()
    local text = "{% for a in range(2000) %}{% for b in range(2000) %}{{ '' }}{% endfor %}{% endfor %}"
    refused("does not come to an end", text)
    refused("longer than", ("{%% set a = '%s' %%}{%% for b in range(99999) %%}{{ a }}{%% endfor %%}"):format(
      ("x"):rep(2000)))
  end)
end)

describe("gm.tokenizer's chat", function()
  local folder
  before_each(function()
    folder = shell.temporary_folder()
    shell.run(("cp spec/golden/tokenizers/gpt2.json %s/tokenizer.json"):format(folder))
  end)
  after_each(function() shell.remove(folder) end)

  it("takes the template and the special tokens from tokenizer_config.json", function()
    shell.write(folder .. "/tokenizer_config.json", json.encode { chat_template = source "gemma",
      bos_token = { content = "<s>" }, eos_token = "</s>" })
    local t = gm.tokenizer(folder)
    assert.equal("<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
      t:chat({ { role = "user", content = " Hi " } }, { add_generation_prompt = true }))
  end)

  it("prefers chat_template.jinja, and says when there is none", function()
    local t = gm.tokenizer(folder)
    assert.error_matches(function() t:chat { { role = "user", content = "a" } } end, "has no chat template")
    shell.write(folder .. "/chat_template.jinja", "{{ messages[0].content }} {{ x }}\n")
    assert.equal("a 7", t:chat({ { role = "user", content = "a" } }, { values = { x = 7 } }))
  end)
end)
