--- Files of models without their heads (BertModel, ViTModel, LlamaModel, GPT2Model), whose arrays have no "bert." and
-- so on before their names, and files of another model, which is not to be taken for new numbers.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"

local function place(name) return "spec/golden/hub/" .. name end

-- A copy of a model's folder whose arrays have these names; rename(name) -> its name, or nil: it is left out.
local function renamed(name, rename)
  local folder, list = os.tmpname() .. ".d", {}
  core.make_folders(folder)
  core.write_whole(folder .. "/config.json", machine.read(place(name) .. "/config.json"))
  gm.scope(function()
    local file = gm.open_arrays(place(name))
    for _, array in ipairs(file:names()) do
      if rename(array) then list[#list + 1] = { rename(array), file:read(array) } end
    end
    file:close()
    gm.save_arrays(folder .. "/model.safetensors", list)
  end)
  return folder
end

-- Calls fn -> what it warns of, one text.
local function warnings(fn)
  local before, said = log.warn, {}
  log.warn = function(fmt, ...) said[#said + 1] = fmt:format(...) end
  local ok, err = pcall(fn)
  log.warn = before
  assert(ok, err)
  return table.concat(said, "\n")
end

-- What transformers puts before the names, the heads, and the last parameter of ours that the files then lack.
local kinds = {
  { "bert", "bert%.", "^cls%.", "cls.predictions.bias", "pair_head.weight" },
  { "vit", "vit%.", "^classifier%.", "classifier.bias, classifier.weight", "head.weight" },
  { "llama", "model%.", "^lm_head%.", "lm_head.weight", "head.weight" },
  { "qwen3_moe", "model%.", "^lm_head%.", "lm_head.weight", "head.weight" },
  { "gemma2", "model%.", "^lm_head%.", nil, nil }, -- whose head is its table of tokens
  { "gpt2", "transformer%.", "^lm_head%.", nil, nil },
}

describe("a file of a model without its head", function()
  for _, kind in ipairs(kinds) do
    local name, prefix, head, lacks, fresh = unpack(kind, 1, 5)
    it("has the numbers of the whole model: " .. name, function()
      local folder = renamed(name, function(array) return not array:find(head) and array:gsub("^" .. prefix, "") end)
      if lacks then
        assert.error_matches(function() gm.pretrained(folder) end, "lacks " .. lacks, 1, true)
        assert.error_matches(function() gm.pretrained(folder) end, "strict = false of gm.pretrained makes new ones", 1,
          true)
      end
      gm.scope(function()
        local model
        local said = warnings(function() model = gm.pretrained(folder, { strict = lacks == nil }) end)
        if lacks then
          assert.is_truthy(said:find("lacks " .. lacks, 1, true), said)
          assert.is_truthy(said:find("new numbers are made, which nobody has trained", 1, true), said)
        else
          assert.equal("", said)
        end
        local whole, same = {}, 0
        for _, p in ipairs(gm.pretrained(place(name)):named_parameters()) do whole[p.name] = p.tensor end
        for _, p in ipairs(model:named_parameters()) do
          local is_equal = json.encode(p.tensor:totable()) == json.encode(whole[p.name]:totable())
          same = same + (is_equal and 1 or 0)
          if p.name == fresh then assert.is_false(is_equal) end
          if not (lacks and p.name:find "head" or p.name:find "^transform") then assert.is_true(is_equal, p.name) end
        end
        assert.is_true(same > 10)
      end)
      os.execute("rm -r " .. folder)
    end)
  end
end)

it("a file without any array of the model is refused, also where new numbers are asked for", function()
  local folder = renamed("bert", function(array) return "other." .. array end)
  for _, strict in ipairs { true, false } do
    assert.error_matches(function() gm.pretrained(folder, { strict = strict }) end,
      "none of its arrays is one of the model that is said; it has other.bert.embeddings", 1, true)
  end
  os.execute("rm -r " .. folder)
end)
