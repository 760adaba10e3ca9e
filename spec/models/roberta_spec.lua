--- RoBERTa: sizes, what x may be, what padding must not change, and what is refused. spec/hub/families_spec.lua has its
-- numbers beside those of transformers, spec/models/modes_spec.lua all modes.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"
local tables = require "spec.support.tables"

local small = { vocabulary = 40, sequence_length = 8, width = 8, depth = 2, heads = 2, std = 0.5, dropout = 0,
                attention_dropout = 0 }
local with = tables.with

local function integers(list) return gm.tensor(list, { dtype = "i64" }) end

local function copy(from, to)
  gm.no_grad(function()
    local list = from:parameters()
    for i, p in ipairs(to:parameters()) do p:copy_(list[i]) end
  end)
end

describe("RoBERTa", function()
  local before
  before_each(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  after_each(function() gm.set_default_dtype(before) end)

  it("has the parameters of roberta-base with the head of the tokens", function()
    assert.equal(124697433, models.RoBERTa {}:count()) -- Hugging Face's RobertaForMaskedLM of roberta-base
    local w, v = 8, 40
    local block = 4 * w * w + 4 * w + 2 * w * 32 + 32 + w + 4 * w
    local encoder = (v + 1 + 8 + 2) * w + 2 * w + 2 * block
    assert.equal(encoder + w * w + w + 2 * w + v, models.RoBERTa(small):count())
    assert.equal(encoder + w * w + w + 3 * w + 3, models.RoBERTa(with(small, { classes = 3 })):count())
  end)

  it("takes tokens alone for tokens whose padding is hidden", function()
    gm.scope(gm.no_grad, function()
      for _, classes in ipairs { false, 3 } do
        local model = models.RoBERTa(with(small, { classes = classes or nil, padding_index = 4 }))
        local tokens = { { 7, 9, 4, 30, 12 }, { 8, 11, 4, 4, 4 } }
        local both = {}
        for r, row in ipairs(tokens) do
          both[r] = { row, { 0, 0, 0, 0, 0 }, {} }
          for i, t in ipairs(row) do both[r][3][i] = t == 4 and 0 or 1 end
        end
        assert.same(model(integers(both)):totable(), model(integers(tokens)):totable())
      end
    end)
  end)

  it("gives a text what it gives it with padding before and behind it", function()
    gm.scope(gm.no_grad, function()
      local model = models.RoBERTa(small):eval()
      local alone = model(integers { { 7, 9, 30 } })
      numeric.agree(model(integers { { 1, 1, 7, 9, 30 } }):narrow(2, 3, 3), alone:totable(), 1e-12)
      numeric.agree(model(integers { { 7, 9, 30, 1, 1 } }):narrow(2, 1, 3), alone:totable(), 1e-12)
      local other = model(integers { { 7, 9, 30, 5 } }):narrow(2, 1, 3) -- it does see what is no padding
      assert.is_true(numeric.relative_error(other, alone:totable()) > 1e-3)
    end)
  end)

  it("drops before both layers of the head of classes, and nothing where it is told so", function()
    gm.scope(function()
      local x = integers { { 7, 9, 30 } }
      local dropping = models.RoBERTa(with(small, { classes = 3, classifier_dropout = 0.5 }))
      local keeping = models.RoBERTa(with(small, { classes = 3, dropout = 0, classifier_dropout = 0 }))
      copy(dropping, keeping)
      local want = keeping(x)
      assert.same(want:totable(), dropping:eval()(x):totable())
      assert.is_true(numeric.relative_error(dropping:train()(x), want:totable()) > 1e-3)
      assert.is_nil(keeping.head_dropout)
    end)
  end)

  it("begins with zeros for padding, which no gradient reaches", function()
    gm.scope(function()
      local model = models.RoBERTa(with(small, { classes = 3 }))
      model(integers { { 7, 9, 1, 1 } }):sum():backward()
      for _, name in ipairs { "tokens", "positions" } do
        for _, t in ipairs { model[name].weight, model[name].weight:grad() } do
          assert.same({ 0, 0, 0, 0, 0, 0, 0, 0 }, t:select(1, 2):totable())
        end
      end
      local g = model.positions.weight:grad():totable()
      for row = 1, 10 do -- the two tokens stand in the rows 2 and 3, which count from 0
        local touched = g[row][1] ~= 0
        assert.equal(row == 3 or row == 4, touched)
      end
    end)
  end)

  it("refuses what does not go together", function()
    local function fails(message, opt, x)
      assert.error_matches(function() gm.scope(function() return models.RoBERTa(with(small, opt))(x) end) end, message)
    end
    fails("a sequence of 9 is longer than the 8 positions", {}, gm.zeros({ 1, 9 }, { dtype = "i64" }))
    fails("x must be %(batch, sequence%), tokens, or %(batch, 3, sequence%).*got %(1, 2, 4%)", {},
      gm.zeros({ 1, 2, 4 }, { dtype = "i64" }))
    fails("padding_index 40 is no token of a vocabulary of 40", { padding_index = 40 })
    fails("classifier_dropout is of the head of classes; give classes", { classifier_dropout = 0.1 })
    fails("head_chunk is of the head of tokens", { classes = 2, head_chunk = 4 })
  end)

  it("with classes begins with the encoder of a file without them", function()
    local folder = "spec/golden/hub/xlm_roberta"
    local model = models.RoBERTa { vocabulary = 31, sequence_length = 7, width = 9, depth = 1, heads = 3,
      mlp_ratio = 7 / 9, padding_index = 3, segments = 2, eps = 1e-12, classes = 4 }
    local said = gm.init_from(model, { path = folder, strict = false })
    assert.same({ "head.bias", "head.weight", "pooler.bias", "pooler.weight" }, said.missing)
    assert.same({ "lm_head.bias", "lm_head.dense.bias", "lm_head.dense.weight", "lm_head.layer_norm.bias",
      "lm_head.layer_norm.weight" }, said.unexpected)
    assert.same({}, said.differing)
    local file = gm.open_arrays(folder)
    assert.same(file:read("roberta.embeddings.position_embeddings.weight"):totable(), model.positions.weight:totable())
    file:close()
  end)
end)

describe("a config.json of RoBERTa", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function fails(message, changes)
    local config = gm.json.of_file "spec/golden/hub/roberta/config.json"
    for key, value in pairs(changes) do config[key] = value end
    shell.write(folder .. "/config.json", gm.json.encode(config))
    os.execute("cp spec/golden/hub/roberta/model.safetensors " .. folder)
    assert.error_matches(function() gm.pretrained(folder) end, message)
  end

  it("with another head, or another kind of positions, is refused", function()
    fails("'architectures' is %[\"RobertaForTokenClassification\"%]; this program has RobertaForMaskedLM and "
      .. "RobertaForSequenceClassification", { architectures = gm.json.array { "RobertaForTokenClassification" } })
    fails("'architectures' is %[\"XLMRobertaForMaskedLM\"%]",
      { architectures = gm.json.array { "XLMRobertaForMaskedLM" } })
    fails("'architectures' is 7", { architectures = 7 })
    fails("'position_embedding_type' is \"relative_key\"", { position_embedding_type = "relative_key" })
    fails("max_position_embeddings is 2, and positions count from pad_token_id %+ 1 = 2 on",
      { max_position_embeddings = 2 })
    fails("lacks classifier.dense.bias, classifier.dense.weight",
      { architectures = gm.json.array { "RobertaForSequenceClassification" } })
  end)
end)
