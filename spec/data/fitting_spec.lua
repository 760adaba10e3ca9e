--- Data that cannot fit is refused before the first step, by check, run and gm.initialize, whatever samples come first:
-- tokens of a larger vocabulary than the model's, labels of more classes or of that which stands for none, and tests
-- whose labels mean other classes. Test samples of another shape than those of training are tried before training.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local recipe = [[
return { name = "words", seed = 3, steps = 2,
  model = { type = "GPT", vocabulary = %d, sequence_length = 8, width = 8, depth = 1, heads = 2 },
  data = { train = %s, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }
]]

describe("tokens of a larger vocabulary than the model's", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    local tokens = {}
    for i = 1, 200 do tokens[i] = i % 16 end -- all of them below 16
    gm.data.write_tokens(home .. "/words.bin", tokens, { vocab_size = 300, dtype = "u16" })
    gm.data.write_tokens(home .. "/few.bin", tokens, { vocab_size = 16, dtype = "u16" })
  end)
  after_each(function() shell.remove(home) end)

  local function data(name) return ("{ type = 'Tokens', path = '%s/%s', sequence_length = 8 }"):format(home, name) end

  local function run(verb, vocabulary, train)
    shell.write(home .. "/recipe.lua", recipe:format(vocabulary, train))
    return support.run(home, { verb, "recipe.lua" })
  end

  local said = "words.bin are of a vocabulary of 300, and the model has one of 299 (GPT.vocabulary, the rows of "
    .. "tokens.weight): give the model vocabulary = 300"

  for _, verb in ipairs { "check", "run" } do
    it("are refused by " .. verb, function()
      local result = run(verb, 299, data "words.bin")
      assert.equal(2, result.code, result.err)
      assert.matches("data.train: the tokens of " .. home, result.err, 1, true)
      assert.matches(said, result.err, 1, true)
      assert.not_matches("step 1", result.out)
    end)
  end

  it("are refused as a part of a mix", function()
    local result = run("check", 299, ("{ type = 'Mix', weights = { 1, 1 }, datasets = { %s, %s } }"):format(
      data "few.bin", data "words.bin"))
    assert.equal(2, result.code, result.err)
    assert.matches(said, result.err, 1, true)
  end)

  it("are refused by gm.initialize", function()
    local loader = gm.data.loader { dataset = { type = "Tokens", path = home .. "/words.bin", sequence_length = 8 },
      batch_size = 4 }
    finally(function() loader:close() end)
    local ok, err = pcall(gm.initialize, { criterion = { type = "CrossEntropyLoss" }, test_dataloader = loader,
      model = { type = "GPT", vocabulary = 299, sequence_length = 8, width = 8, depth = 1, heads = 2 } })
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("gm.initialize: test_dataloader: the tokens of ", failure.text(err), 1, true)
    assert.matches(said, failure.text(err), 1, true)
  end)

  it("are none where the vocabulary is as large, or not known", function()
    assert.equal(0, run("check", 300, data "words.bin").code)
    assert.equal(0, run("check", 16, data "few.bin").code)
    shell.write(home .. "/raw.bin", ("\1\0"):rep(200))
    local raw = "{ type = 'Tokens', path = 'raw.bin', dtype = 'u16', sequence_length = 8%s }"
    assert.equal(0, run("check", 16, raw:format "").code)
    local result = run("check", 16, raw:format ", vocab_size = 17")
    assert.equal(2, result.code, result.err)
    assert.matches("of a vocabulary of 17, and the model has one of 16", result.err, 1, true)
  end)
end)

describe("classes of folders", function()
  local home
  -- folders: { train = "cat dog", ... }; a folder has two pictures of 4 x 4 in each class.
  local function make(folders)
    for name, classes in pairs(folders) do
      for class in classes:gmatch "%S+" do
        pictures.make_folder(("%s/%s/%s"):format(home, name, class))
        for k = 1, 2 do
          shell.write(("%s/%s/%s/%d.png"):format(home, name, class, k), pictures.png(4, 4, 3, function() return k end))
        end
      end
    end
  end
  before_each(function()
    home = shell.temporary_folder()
    make { train = "cat dog", test = "dog", more = "cat dog eel" }
  end)
  after_each(function() shell.remove(home) end)

  local function run(verb, train, test, loss)
    shell.write(home .. "/recipe.lua", ([[
      local resize = { { type = "Resize", size = { 4, 4 } } }
      return { name = "animals", seed = 3, steps = 2, data = { train = %s, test = %s, batch_size = 2,
        transforms = resize, test_transforms = resize },
        model = { type = "MLP", inputs = 48, hidden = { 4 }, classes = 2 }, loss = { type = %q },
        optimizer = { type = "SGD", lr = 0.1 } }]]):format(train, test, loss or "CrossEntropyLoss"))
    return support.run(home, { verb, "recipe.lua" })
  end

  local function folder(name, classes)
    return ("{ type = 'ImageFolder', root = %q, classes = %s }"):format(name, classes or "nil")
  end

  it("are refused where a label of the test data means another class", function()
    local result = run("run", folder "train", folder "test")
    assert.equal(2, result.code, result.err)
    assert.matches('data.train and data.test: a label means another class in each: the classes of ImageFolder are '
      .. '{ "cat", "dog" } and { "dog" }; give both classes = { "cat", "dog" }', result.err, 1, true)
    assert.equal("", result.out)
  end)

  it("may be named, and have an empty folder", function()
    pictures.make_folder(home .. "/test/cat")
    assert.matches("only a class that `classes` names may have none", run("run", folder "train", folder "test").err, 1,
      true)
    local result = run("run", folder "train", folder("test", "{ 'cat', 'dog' }"))
    assert.equal(0, result.code, result.err)
    local dataset = gm.data.ImageFolder { root = home .. "/test", classes = { "cat", "dog" } }
    assert.same({ 2, 1, 1 }, { dataset:length(), select(2, dataset:get(1)):item(), select(2, dataset:get(2)):item() })
    pictures.make_folder(home .. "/none/cat")
    assert.error_matches(function() gm.data.ImageFolder { root = home .. "/none", classes = { "cat" } } end,
      "none: has no pictures")
  end)

  it("are refused in a mix of folders that number them differently", function()
    local result = run("check", ("{ type = 'Mix', weights = { 1, 1 }, datasets = { %s, %s } }"):format(folder "train",
      folder "test"), folder "train")
    assert.equal(2, result.code, result.err)
    assert.matches("Mix: dataset 1 and dataset 2: a label means another class", result.err, 1, true)
  end)

  it("are refused where the model has fewer, with a loss of classes", function()
    local result = run("check", folder "more", folder "more")
    assert.equal(2, result.code, result.err)
    assert.matches('data.train: the labels of ImageFolder are of 3 classes ({ "cat", "dog", "eel" }), and the model '
      .. "has 2 (MLP.classes)", result.err, 1, true)
    assert.not_matches("are of 3 classes", run("check", folder "more", folder "more", "MSELoss").err, 1, true)
  end)
end)

describe("datasets written in Lua that name their classes", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local function run(classes)
    shell.write(home .. "/recipe.lua", ([[
      local gm = require "ganymede"
      gm.registry.datasets:register("Mine", function(opt)
        return { length = 8, class_names = opt.names, get = function(i) return { i, 1 }, i %% 2 end }
      end)
      return { name = "mine", seed = 3, epochs = 1, model = { type = "MLP", inputs = 2, hidden = { 4 }, classes = %d },
        data = { train = { type = "Mine", names = { "a", "b", "c" } }, test = { type = "Mine", names = { "d", "e" } },
          batch_size = 4 },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }]]):format(classes))
    return support.run(home, { "run", "recipe.lua", "--out", "o" })
  end

  it("are judged by the model, and not by each other", function()
    local result = run(3)
    assert.equal(0, result.code, result.err)
    result = run(2)
    assert.equal(2, result.code, result.err)
    assert.matches("the labels of a dataset written in Lua are of 3 classes", result.err, 1, true)
  end)
end)

describe("test data of another shape", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local function run(width, model)
    return support.run(shell.write(home .. "/recipe.lua", ([[
      return { name = "shapes", seed = 3, epochs = 2, model = %s,
        data = { train = { type = "Synthetic", length = 8, shape = { 2, 4 }, classes = 2 },
          test = { type = "Synthetic", length = 8, shape = { 2, %d }, classes = 2 }, batch_size = 4 },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }]]):format(model, width))
      and home, { "run", "recipe.lua", "--out", "o" })
  end

  it("ends a run before its first step where the model cannot take it", function()
    local result = run(5, "{ type = 'MLP', inputs = 8, hidden = { 4 }, classes = 2 }")
    assert.equal(1, result.code, result.err)
    assert.matches("must have 8 elements; got a batch of shape (4, 2, 5)", result.err, 1, true)
    assert.matches("in the first batch of the test data, which is tried before training", result.err, 1, true)
    assert.not_matches("step 1", result.out)
  end)

  it("is taken where the model can", function()
    local own = "function() return require('ganymede').nn.Sequential { function(x) return x:mean(3) end, "
      .. "require('ganymede').nn.Linear { inputs = 2, outputs = 2 } } end"
    local result = run(5, own)
    assert.equal(0, result.code, result.err)
  end)
end)

describe("a denoiser whose last class stands for none", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local images = '{ type = "Synthetic", length = 8, shape = { 1, 4, 4 }, classes = %d }'

  local function run(verb, drop, held, data, words)
    shell.write(home .. "/recipe.lua", ([[
      return { name = "drawn", model = { type = "Diffusion", drop = %s, denoiser = { type = "DiT", image_size = 4,
          patch_size = 2, channels = 1, width = 8, depth = 1, heads = 2, classes = %d } },
        data = { train = %s, batch_size = 4 }, loss = { type = "DiffusionLoss" }, steps = 1,
        schedule = { type = "NonPipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
        optimizer = { type = "SGD", lr = 0.1 } }]]):format(drop, held, data))
    return support.run(home, { verb, "recipe.lua", unpack(words or {}) })
  end

  local said = "data.train: the labels of Synthetic are of 3 classes, and so are those of the denoiser "
    .. "(Diffusion.denoiser.classes), whose last one, 2, stands for no class where drop is above 0: give the denoiser "
    .. "classes = 4, or leave drop out"

  for verb, words in pairs { check = {}, run = { "--out", "none" } } do
    it("is refused by " .. verb .. " where the data have that class, too", function()
      local mix = ('{ type = "Mix", weights = { 1, 1 }, datasets = { %s, %s } }'):format(images:format(2),
        images:format(3))
      for name, data in pairs { Synthetic = images:format(3), Mix = mix } do
        local result = run(verb, 0.1, 3, data, words)
        assert.equal(2, result.code, result.out .. result.err)
        assert.matches(said:gsub("Synthetic", name), result.err, 1, true)
        assert.equal("recipe.lua", support.names(home))
      end
    end)
  end

  it("is taken with one class more, without drop, and where data_process_func makes others of the labels", function()
    for _, case in ipairs { { 0.1, 4, 3 }, { 0, 3, 3 }, { 0.1, 2, 3 } } do
      local result = run("check", case[1], case[2], images:format(case[3]))
      assert.equal(0, result.code, result.err)
    end
  end)
end)
