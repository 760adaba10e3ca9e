--- time_products in training (ganymede.job.products): ranks go over to the same ways at the same time, and the choices
-- are kept with the run, so that a resumed run and a run with their file have the same bits.
--
-- The emulated cuBLASLt has three algorithms, which take the time that GANYMEDE_FAKE_CUBLAS_FAST says. With
-- GANYMEDE_FAKE_CUBLAS_BITS each has last bits of its own, so that losses tell which were taken. Products that sum
-- columns, too, are slow by GANYMEDE_FAKE_CUBLAS_SLOW: a product and a pass would be as fast as these, and a busy
-- machine would choose.
-- sanitizers: no, bits of training are compared; products_spec.lua and ways_spec.lua look at the same code
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if emulation.lacks(pending, "emulated") then return end

local recipe = support.recipe:gsub("hooks = .-\n", 'hooks = { { type = "CheckpointHook", interval = 3 } },\n')

describe("time_products", function()
  local home
  before_each(function() home = support.home(recipe) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  -- Trains into the folder `out` -> { code, out, err, losses, answers (of all products, in order) }.
  local function train(out, words, variables)
    local env = emulation.environment()
    env.GANYMEDE_CUDA_RECORD, env.GANYMEDE_FAKE_CUBLAS_BITS = home .. "/record", "1"
    env.GANYMEDE_FAKE_CUBLAS_SLOW = "512" -- CUBLASLT_EPILOGUE_BGRADB
    for name, value in pairs(variables or {}) do env[name] = value end
    local all = { "run", "recipe.lua", "--device", "cuda", "--stats", "stats.json", "--no-eval", "--out", out,
      "--threads", "1", "--set", "graph=false" }
    for _, word in ipairs(words) do all[#all + 1] = word end
    local result = support.run(home, all, { env = env })
    if result.code ~= 0 then return result end
    result.losses, result.answers = support.json(home .. "/stats.json").loss, {}
    for line in io.lines(home .. "/record") do
      result.answers[#result.answers + 1] = tonumber(line:match "^cublasLtMatmul.* answer (%d+)")
    end
    os.remove(home .. "/record")
    return result
  end

  local function done(out, words, variables)
    local result = train(out, words, variables)
    assert.equal(0, result.code, result.err)
    return result
  end

  -- The same in few words.
  local function timed(out, steps, fast, more, value)
    local words = { "--steps", tostring(steps), "--set", "time_products=" .. (value or "true") }
    for _, word in ipairs(more or {}) do words[#words + 1] = word end
    return done(out, words, { GANYMEDE_FAKE_CUBLAS_FAST = fast })
  end

  local function tail(list, n)
    local out = {}
    for i = #list - n + 1, #list do out[#out + 1] = list[i] end
    return out
  end

  local function of(answer, n)
    local out = {}
    for i = 1, n do out[i] = answer end
    return out
  end

  local function contents(out) return support.json(home .. "/" .. out .. "/products.json") end

  describe("on one rank", function()
    it("is kept in the run's folder, with what was tried", function()
      timed("a", 3, "1")
      local doc = contents "a"
      assert.equal("ganymede products", doc.what)
      assert.is_truthy(doc.good_for:find("sm_90, %d+ multiprocessors, 16 GiB, cuBLASLt 130000"), doc.good_for)
      assert.is_true(#doc.choices >= 5)
      for _, c in ipairs(doc.choices) do assert.is_true(#c.tried >= 3, c.kind) end
      local plain = done("b", { "--steps", "3" })
      assert.is_nil(io.open(home .. "/b/products.json"))
      assert.same({ 0, 0, 0 }, tail(plain.answers, 3))
    end)

    it("has the same bits when it is resumed, and times nothing again", function()
      local whole = timed("a", 6, "1")
      assert.not_same(tail(done("b", { "--steps", "6" }).losses, 3), tail(whole.losses, 3))
      timed("c", 3, "1")
      local before = contents "c"
      local rest = timed("c", 6, "2", { "--resume", "auto" }) -- 2 is the fastest now
      assert.same(tail(whole.losses, 3), rest.losses)
      assert.same(of(1, #rest.answers), rest.answers)
      for i, c in ipairs(contents("c").choices) do
        assert.same({ before.choices[i].kind, before.choices[i].variant }, { c.kind, c.variant })
      end
    end)

    it("is timed anew with another library, which is said", function()
      timed("a", 3, "1")
      local words = { "--steps", "6", "--resume", "auto", "--set", "time_products=true" }
      local rest = done("a", words, { GANYMEDE_FAKE_CUBLAS_FAST = "2", GANYMEDE_FAKE_CUBLAS_VERSION = "130100" })
      assert.is_truthy(rest.err:find("products are timed anew: those of the checkpoint are good for .-cuBLASLt 130000, "
        .. "and here is .-cuBLASLt 130100"), rest.err)
      assert.same(of(2, 9), tail(rest.answers, 9))
    end)

    it("comes from a file, with the bits of the run that timed it, also with deterministic", function()
      local first = timed("a", 3, "1")
      local second = timed("b", 3, "2", { "--set", "deterministic=true" }, "a/products.json")
      assert.same(first.losses, second.losses)
      assert.same(of(1, #second.answers), second.answers)
    end)

    it("refuses a file that is not for here, or is none", function()
      timed("a", 1, "1")
      local function refused(part, path, variables)
        local result = train("b", { "--steps", "1", "--set", "time_products=" .. path }, variables)
        assert.equal(2, result.code, result.err)
        assert.is_truthy(result.err:find(part, 1, true), result.err)
      end
      refused("time_products: a/products.json is good for sm_90", "a/products.json",
        { GANYMEDE_FAKE_CUBLAS_VERSION = "130100" })
      refused("no.json", "no.json")
      support.shell.write(home .. "/other.json", '{"what": "else"}')
      refused("time_products: other.json: it is no list of ways to make products", "other.json")
      local text = support.shell.read(home .. "/a/products.json")
      support.shell.write(home .. "/new.json", (text:gsub('"format": 1', '"format": 2')))
      refused("its format is 2, and this program knows 1", "new.json")
      support.shell.write(home .. "/magic.json", (text:gsub('"way": "cublaslt"\n    }', '"way": "magic"\n    }')))
      refused('there is no way to make products named "magic"', "magic.json")
      support.shell.write(home .. "/torn.json", (text:gsub('"seconds": [^,]+,\n      "tried"', '"tried"')))
      refused("entry 1 of choices lacks kind, way, variant or seconds", "torn.json")
    end)
  end)

  describe("on several ranks", function()
    it("takes what rank 0 has timed, on all of them", function()
      local two = { "-n", "2", "--set", "hooks={}" } -- no checkpoints, before which ranks agree too
      local result = timed("a", 6, "1,2", two)
      assert.same(of(1, 12), tail(result.answers, 12)) -- the last step of both, and a part of the one before
      local numbers = {}
      for _, answer in ipairs(result.answers) do numbers[answer] = true end
      assert.is_true(numbers[0] and numbers[2]) -- until they have agreed, the first; and in trials all
      local same = timed("b", 6, "1,1", two)
      assert.same(same.losses, result.losses)
      assert.not_same(same.losses, timed("c", 6, "2,1", two).losses)
    end)

    it("is resumed with the same bits, and on other ranks with the same ways", function()
      local whole = timed("a", 6, "1,2", { "-n", "2" })
      timed("b", 3, "1,2", { "-n", "2" })
      support.shell.run(("cp -r %s/b %s/c"):format(home, home))
      local rest = timed("b", 6, "2,1", { "-n", "2", "--resume", "auto" })
      assert.same(tail(whole.losses, 3), rest.losses)
      assert.same(of(1, #rest.answers), rest.answers)
      -- one rank has larger batches: kinds of its own, which it times
      local alone = timed("c", 6, "2", { "--resume", "auto" })
      assert.same(of(2, 6), tail(alone.answers, 6))
    end)

    it("joins the kinds of the stages of a pipeline", function()
      timed("a", 6, "1,2", { "-n", "2", "--set", "parallel.pipeline=2", "--set", "num_microbatches=2" })
      local shapes = {}
      for _, c in ipairs(contents("a").choices) do shapes[c.kind:match "^f32 to f32 (%b() %b())"] = c.variant end
      assert.is_truthy(shapes["(16, 16) (16, 32)"]) -- forward of the first layer, on stage 0
      assert.is_truthy(shapes["(16, 32) (32, 10)"]) -- forward of the second, on stage 1
      assert.equal(" 0000000000000002", shapes["(16, 32) (32, 10)"]:sub(-17)) -- rank 1 alone has timed it
      assert.equal(" 0000000000000001", shapes["(16, 16) (16, 32)"]:sub(-17))
    end)

    it("refuses different libraries", function()
      local words = { "-n", "2", "--steps", "1", "--set", "time_products=true" }
      local result = train("a", words, { GANYMEDE_FAKE_CUBLAS_VERSION = "130000,130100" })
      assert.equal(2, result.code, result.err)
      assert.is_truthy(result.err:find("rank 0 has .-cuBLASLt 130000, rank 1 has .-cuBLASLt 130100"), result.err)
    end)
  end)
end)
