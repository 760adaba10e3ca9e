--- Prompts that come and go, with few pages: each is continued as it is alone, by passes of everything for each token.
-- ranks: 1 2
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local batching = require "ganymede.generation.batching"
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local prompts = require "ganymede.generation.prompts"

local ops, f64 = gm.ops, numeric.f64

local function llama(more)
  core.set_seed(3)
  local opt = { vocabulary = 60, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24, std = 0.3 }
  for k, v in pairs(more or {}) do opt[k] = v end
  return gm.models.Llama(opt):eval()
end

-- As in Gemma 2 and in Mistral: every second layer sees the last positions only, and scores are capped; all layers do.
local windowed = { { window = { 5, 0 }, attention_softcap = 1.5, branch_norms = true }, { window = 6 },
  { window = 1, attention_softcap = 0.7, attention_scale = 0.9 } }

local function plain(model, ids, count)
  local list = { unpack(ids) }
  for _ = 1, count do
    gm.scope(gm.no_grad, function()
      local scores = model(gm.tensor({ list }, { dtype = "i64" }))
      list[#list + 1] = ops.argmax(scores, 3):totable()[1][#list]
    end)
  end
  return list
end

local lengths, given = { 4, 1, 7, 12, 2, 9 }, {}
for i, n in ipairs(lengths) do
  given[i] = {}
  for k = 1, n do given[i][k] = (11 * i + 7 * k) % 60 end
end

-- What batching.run is given by gm.generate.
local function options_with(cache, more)
  local opt = { prompts = given, max_tokens = 9, temperature = 0, repetition_penalty = 1, stop = {}, cache = cache }
  for k, v in pairs(more or {}) do opt[k] = v end
  return opt
end

local mesh = core.world() == 1 and { name = "one rank" } or { name = "1d", tensor = { size = 2, mode = "1d" } }

describe("prompts that come and go on " .. mesh.name, function()
  against.throughout(mesh, setup, teardown)

  it("are continued as each of them alone, whatever there is room for", f64(function()
    local model, want = llama(), {}
    for i, ids in ipairs(given) do want[i] = plain(model, ids, 9) end
    for k, case in ipairs {
      { page = 4, pages = 5, sent_away = true }, -- the longest needs all of them
      { page = 4, pages = 9, sent_away = true }, { page = 3, pages = 12, rows = 2 }, { page = 64, pages = 2 },
      { page = 1, pages = 1000 },
    } do
      local opt = options_with { page = case.page, pages = case.pages, rows = case.rows }
      local rows = prompts.rows(opt)
      if k > 1 and core.world() > 1 then break end
      local rate, run = batching.run(model, opt, rows, {})
      for i, row in ipairs(rows) do
        assert.same(want[i], row.tokens)
        assert.equal("length", row.done)
        assert.is_true(row.rate > 0)
      end
      assert.is_true(rate > 0)
      if case.sent_away ~= nil then assert.equal(case.sent_away, run.sent_away > 0) end
      assert.equal(run.pool.pages, #run.pool.free)
      assert.equal(0, run.pool:bytes())
    end
  end))

  it("see what the windows of their layers leave, and capped scores", f64(function()
    for _, more in ipairs(windowed) do
      local model, plain_model = llama(more), llama()
      local differs = false
      local caches = { { page = 4, pages = 5 }, { page = 3, pages = 12, rows = 2 }, { page = 64, pages = 2 } }
      for k, cache in ipairs(caches) do
        local opt = options_with(cache)
        local rows = prompts.rows(opt)
        batching.run(model, opt, rows, {})
        for i, row in ipairs(rows) do
          assert.same(plain(model, given[i], 9), row.tokens)
          differs = differs or k == 1 and table.concat(plain(plain_model, given[i], 9)) ~= table.concat(row.tokens)
        end
      end
      assert.is_true(differs) -- so the options matter here
    end
  end))

  it("are computed anew where they grow over the border of LongRoPE, each of them once", f64(function()
    local model = llama { std = 0.5, rotary = { base = 100, scaling = { type = "longrope", length = 8, factor = 4,
      short = { 1, 1.3 }, long = { 2, 5 } } } }
    for _, cache in ipairs { { page = 4, pages = 100 }, { page = 4, pages = 6 } } do
      local opt = options_with(cache)
      local rows = prompts.rows(opt)
      local _, run = batching.run(model, opt, rows, {})
      for i, row in ipairs(rows) do assert.same(plain(model, given[i], 9), row.tokens) end
      -- prompts of 4, 1, 7 and 2 tokens grow over 8; one that was sent away begins anew in any case
      if cache.pages == 100 then assert.equal(4, run.anew) else assert.is_true(run.anew <= 4) end
      assert.equal(run.pool.pages, #run.pool.free)
    end
  end))

  it("draw by their number and place, wherever they run", f64(function()
    local model = llama()
    local function lines(cache)
      local list = {}
      for i, out in ipairs(gm.generate(model, { prompts = given, max_tokens = 9, temperature = 1.3, seed = 4,
        repetition_penalty = 1.2, cache = cache })) do
        list[i] = table.concat(out.tokens, " ")
      end
      return list
    end
    local want = lines(nil)
    assert.same(want, lines { page = 4, pages = 5 })
    assert.same(want, lines { page = 16, memory = 2 * 2 * 16 * 2 * 4 * 8 * 2, rows = 3 }) -- two pages of both layers
  end))
end)

if core.world() > 1 then
  it("have pages whose heads are cut as those of the queries; cut otherwise they are refused", function()
    against.install { tensor = { size = 2, mode = "1d" } }
    local axis = core.mesh()[1].name
    local q, pool, cut = gm.uniform({ 2, 1, 4, 8 }, { seed = 1 }), gm.uniform({ 5, 2, 3, 8 }, { seed = 2 }), {}
    local index = gm.tensor({ { 4, 1 }, { 0, 2 } }, { dtype = "i64" })
    local count = gm.tensor({ 4, 5 }, { dtype = "i64" })
    for d = 1, 4 do cut[d] = { cuts = { {}, {}, {}, {} } } cut[d].cuts[d] = { axis } end
    local function run(at_q, at_pool)
      local k = at_pool and pool:redistribute(cut[at_pool]) or pool
      return core.attention_paged(at_q and q:redistribute(cut[at_q]) or q, k, k, index, count):gather():contiguous()
    end
    numeric.agree(run(3, 2), run(), 1e-6) -- the same sums
    for _, case in ipairs { { 3, nil, "in different ways" }, { nil, 2, "in different ways" },
      { 1, nil, "only the heads of the queries" }, { nil, 3, "only the heads of a pool" } } do
      local ok, err = pcall(run, case[1], case[2])
      assert.is_false(ok)
      assert.matches(case[3], err)
    end
    assert.is_false((pcall(core.pages_write, pool, q:narrow(3, 1, 2):redistribute(cut[3]), index, count)))
  end)

  it("is refused where ranks share prompts", function()
    against.install { sequence = { size = 2, mode = "ring" } }
    local ok, err = pcall(gm.generate, llama(), { prompts = given, cache = { page = 4 } })
    assert.is_false(ok)
    assert.matches("cache is about pages, which cannot be with parallel.sequence", err)
  end)
  return
end

describe("a limited cache", function()
  it("takes less than a page for each prompt beyond what it keeps", function()
    local model = llama()
    local opt = options_with { page = 4 }
    local _, run = batching.run(model, opt, prompts.rows(opt), {})
    local wanted = 0
    for _, n in ipairs(lengths) do wanted = wanted + math.ceil((n + 8) / 4) end
    assert.equal(wanted, run.pool.pages)
  end)

  it("is refused where a prompt has no room, and so are options that are not its own", function()
    local model = llama()
    local function refused(words, cache, more)
      local opt = { prompts = given, max_tokens = 9, cache = cache }
      for k, v in pairs(more or {}) do opt[k] = v end
      assert.error_matches(function() gm.generate(model, opt) end, words)
    end
    refused("prompt 4 may need 5 pages of 4 positions %(its 12 tokens, and max_tokens = 9%), and there are 4",
      { page = 4, pages = 4 })
    refused("prompt 4 may need 2 pages of 16 .* there are 0", { memory = 100 })
    refused("both pages and memory", { pages = 4, memory = 100 })
    refused("'page' must be an integer, at least 1", { page = 0 })
    refused("did you mean", { pagess = 4 })
  end)
end)

describe("the positions of a model", function()
  local function gpt()
    core.set_seed(3)
    return gm.models.GPT { vocabulary = 60, width = 16, depth = 1, heads = 2, sequence_length = 10, std = 0.3 }:eval()
  end

  it("are the end of a text, while shorter ones go on", function()
    local model = gpt()
    local out = gm.generate(model, { prompts = { given[3], given[2] }, max_tokens = 8 })
    assert.equal("positions", out[1].ended)
    assert.equal(10, #out[1].tokens)
    assert.equal("length", out[2].ended)
    assert.same(plain(model, given[2], 8), out[2].tokens)
    assert.same(plain(model, given[3], 3), out[1].tokens)
  end)

  it("refuse a prompt that fills them", function()
    assert.error_matches(function() gm.generate(gpt(), { prompts = { given[1], given[4] } }) end,
      "prompt 2 has 12 tokens, and the model has 10 positions")
  end)
end)
