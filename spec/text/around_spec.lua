--- What tokenizer_config.json beside a tokenizer.model puts around a text, and what of it is refused.
local gm = require "ganymede"
local shell = require "spec.support.shell"

describe("a tokenizer.model", function()
  local folder, alone
  before_each(function()
    folder = shell.temporary_folder()
    assert(os.execute("cp spec/golden/tokenizers/pieces_bpe.model " .. folder .. "/tokenizer.model"))
    alone = gm.tokenizer(folder):encode "Hello world"
  end)
  after_each(function() shell.remove(folder) end)

  local function with(config, path)
    shell.write(folder .. "/tokenizer_config.json", gm.json.encode(config))
    return gm.tokenizer(path or folder)
  end

  local function joined(...)
    local out = {}
    for _, part in ipairs { ... } do
      for _, id in ipairs(type(part) == "table" and part or { part }) do out[#out + 1] = id end
    end
    return out
  end

  it("puts around a text what its neighbour says, as transformers does", function()
    local s, e = gm.tokenizer(folder):id "<s>", gm.tokenizer(folder):id "</s>"
    assert.is_true(#alone > 1 and s ~= e)
    local names = { bos_token = "<s>", eos_token = { content = "</s>", lstrip = false } }
    for _, case in ipairs {
      { false, false, alone, joined(alone, alone) }, { gm.json.null, nil, alone, joined(alone, alone) },
      { true, false, joined(s, alone), joined(s, alone, s, alone) },
      { false, true, joined(alone, e), joined(alone, e, alone, e) },
      { true, true, joined(s, alone, e), joined(s, alone, e, s, alone, e) },
    } do
      local config = { bos_token = names.bos_token, eos_token = names.eos_token, add_bos_token = case[1],
                       add_eos_token = case[2] }
      for _, path in ipairs { folder, folder .. "/tokenizer.model" } do
        local t = with(config, path)
        assert.same(case[3], t:encode "Hello world")
        assert.same(case[4], t:encode("Hello world", { pair = "Hello world" }))
        assert.same(alone, t:encode("Hello world", { special = false }))
      end
    end
  end)

  it("of another name has no neighbour", function()
    with { add_bos_token = true, bos_token = "<s>" }
    assert(os.execute(("cp %s/tokenizer.model %s/other.model"):format(folder, folder)))
    assert.same(alone, gm.tokenizer(folder .. "/other.model"):encode "Hello world")
  end)

  it("whose neighbour is wrong is refused", function()
    local function fails(message, config)
      local ok, err = pcall(with, config)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(message, 1, true), tostring(err))
    end
    fails("tokenizer_config.json: add_bos_token is true, and bos_token is no token of the model beside it",
      { add_bos_token = true })
    fails("add_eos_token is true, and eos_token is no token", { add_eos_token = true, eos_token = "<nobody>" })
    fails("tokenizer_config.json.add_bos_token: is neither true nor false", { add_bos_token = 1 })
    fails("tokenizer_config.json: is no object", gm.json.array { 1 })
    shell.write(folder .. "/tokenizer_config.json", "{ ")
    assert.is_truthy(tostring(select(2, pcall(gm.tokenizer, folder))):find("tokenizer_config.json: line 1", 1, true))
  end)
end)
