--- ganymede data: what it says of files whose content is known, and the sheet that it draws. And check, which opens
-- datasets of pictures without reading one.
-- luacheck: globals finally
local cli = require "ganymede.cli"
local data = require "ganymede.data"
local gm = require "ganymede"
local log = require "ganymede.base.log"
local made = require "spec.data.made"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

-- Runs the verb in this process -> status, the text of its results, that of its errors.
local function run(...)
  local out, errors, result, err = {}, {}, log.result, log.error
  log.result = function(text) out[#out + 1] = text end
  log.error = function(fmt, ...) errors[#errors + 1] = fmt:format(...) end
  local ok, status = pcall(cli.main, { "data", ... })
  log.result, log.error = result, err
  assert(ok, status)
  return status, table.concat(out, "\n"), table.concat(errors, "\n")
end

local function has(text, ...)
  for _, pattern in ipairs { ... } do assert(text:find(pattern), pattern .. " is not in\n" .. text) end
end

describe("ganymede data", function()
  it("shows the columns of a table", function()
    local path = shell.write(folder .. "/t.csv", "age,sex,fare\n3,f,1.5\n,m,2\nNA,f,x\n1\n")
    local status, text = run(path)
    assert.equal(0, status)
    has(text, "a table of 4 rows, 3 columns", "age +number +2 +1 +2 +3 +2 different",
      "sex +text +0 +%- +%- +%- +f %(2%), m %(1%)", "fare +mixed +0 +1.5 +1.75 +2",
      "than the first line: 1; the first is line 5")
  end)

  it("shows gzipped tables", function()
    local path = made.gzip(folder .. "/z.csv", "age,sex\n3,f\n")
    local lines = made.gzip(folder .. "/z.jsonl", '{"a": 1}\n')
    local status, text = run(path, lines)
    assert.equal(0, status)
    has(text, "z.csv.gz: a table of 1 rows, 2 columns", "z.jsonl.gz: a table of 1 rows, 1 columns")
  end)

  it("shows classes, sizes and damaged pictures of a folder, and draws them", function()
    local root = folder .. "/photos"
    pictures.make_folder(root .. "/a")
    pictures.make_folder(root .. "/b")
    for k = 0, 3 do
      shell.write(("%s/%s/%d.png"):format(root, k < 3 and "a" or "b", k),
        pictures.png(24 + k, 48, 3, function(c) return 40 * k + 20 * c end))
    end
    shell.write(root .. "/a/1.png", "no picture")
    local sheet = folder .. "/sheets/a/sheet.png"
    pictures.make_folder(folder .. "/sheets/a")
    local status, text = run(root, "--sheet", sheet, "--pictures", "4")
    assert.equal(0, status)
    has(text, "a folder of 4 pictures in 2 classes; 0 other files", "a +3", "b +1", "height 24 to 27, width 48 of 3",
      "damaged: 1 of 4", "1%.png %(sample 2%)", "sheet: .*, 4 pictures")
    -- 2 x 2 places of 96 pixels, 2 apart; 24 x 48 pictures are drawn twice as large, in the middle of their place
    local x = data.ImageFolder({ root = folder .. "/sheets" }):get(1)
    assert.same({ 3, 2 * 98 + 2, 2 * 98 + 2 }, x:shape())
    local function at(c, y, k) return x:get(c, y, k) end
    assert.equal(255, at(1, 1, 1))
    assert.equal(255, at(1, 3 + 23, 50)) -- above the first picture, whose 48 rows begin behind 24 of 96
    assert.equal(0, at(1, 3 + 25, 50))
    assert.equal(20, at(2, 3 + 47, 50))
    assert.equal(80, at(1, 3 + 47, 98 + 50)) -- the second is damaged: the third stands there
    assert.equal(120 + 40, at(3, 98 + 3 + 47, 98 + 50))
  end)

  it("shows arrays with their ranges, and one picture's size", function()
    local golden = GANYMEDE_ROOT .. "/spec/golden/"
    local status, text = run(golden .. "arrays.npz", golden .. "pictures/large.jpg")
    assert.equal(0, status)
    has(text, "6 arrays", "fortran +f32 +2 x 3 x 4", "scalar +f64 +1.5 +1.5 +0",
      "JPEG, height 90, width 110, 3 channels of 8 bits")
    local values = gm.open_arrays(golden .. "arrays.npz"):read("b/c"):totable()
    has(text, ("b/c +i32 +4 +%d +%d +0"):format(math.min(unpack(values)), math.max(unpack(values))):gsub("%-", "%%-"))
  end)

  it("shows the size of a text, and refuses files with nothing in them", function()
    local path = shell.write(folder .. "/book.TXT", "one line\n\n \nthe longest one, without an end")
    local status, shown = run(path)
    assert.equal(0, status)
    has(shown, "book.TXT: a text of 43 bytes in 4 lines, 2 of them blank; the longest has 31 bytes")
    for _, name in ipairs { "empty.csv", "empty.tsv", "empty.jsonl", "empty.txt" } do
      local code, out, errors = run(shell.write(folder .. "/" .. name, ""))
      assert.equal(5, code)
      assert.equal("", out)
      has(errors, name:gsub("%.", "%%.") .. ": is empty")
    end
    assert.equal(0, (run(shell.write(folder .. "/names.csv", "a,b\n")))) -- columns without rows
  end)

  it("shows files of tokens with their range, and refuses cut ones", function()
    local path, cut = folder .. "/a.tokens", folder .. "/cut.tokens"
    data.write_tokens(path, { 2, 3, 5, 9, 4 }, { vocab_size = 10 })
    local status, text = run(path)
    assert.equal(0, status)
    has(text, "a.tokens: a file of 5 tokens, a vocabulary of 10; they are 2 to 9")
    shell.write(cut, shell.read(path):sub(1, -2))
    local code, _, errors = run(cut)
    assert.equal(5, code)
    has(errors, "cut.tokens")
  end)

  it("says what it can show where a name says nothing", function()
    local _, _, errors = run(shell.write(folder .. "/x.doc", "hello"), folder .. "/none")
    has(errors, "x.doc: its name must say what it is, by one of the endings .* %.tokens; a link",
      "none: is no file, and no folder with something in it; give a folder whose folders are the classes")
  end)

  it("goes on behind a file that it cannot read, and says so at the end", function()
    local good = shell.write(folder .. "/good.csv", "a\n1\n")
    local bad = shell.write(folder .. "/bad.csv", 'a\n"1\n')
    local status, text, errors = run(bad, folder .. "/none.txt", good)
    assert.equal(5, status)
    has(text, "good.csv: a table of 1 rows")
    has(errors, "bad.csv: line 2: a quote is opened here", "none.txt: is no file")
    assert.equal(2, (run(good, "--sheet", folder .. "/s.png")))
    assert.equal(2, (run(shell.write(folder .. "/x.doc", "hello"))))
  end)
end)

describe("check", function()
  it("accepts datasets of pictures without reading one", function()
    for _, name in ipairs { "cats", "dogs" } do
      pictures.make_folder(folder .. "/broken/" .. name)
      for k = 1, 5 do shell.write(("%s/broken/%s/%d.jpg"):format(folder, name, k), "no picture") end
    end
    local recipe = shell.write(folder .. "/recipe.lua", ([[
      local gm = require "ganymede"
      return gm.recipe { model = { type = "MLP", inputs = 3 * 8 * 8, hidden = { 4 }, classes = 2 },
        data = { train = { type = "ImageFolder", root = %q }, batch_size = 4, threads = 2,
          transforms = { { type = "RandomResizedCrop", size = 8 } } },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 }, epochs = 1 }
    ]]):format(folder .. "/broken"))
    local got = shell.run(shell.quote(shell.executable()) .. " check " .. shell.quote(recipe))
    assert.equal(0, got.code, got.err)
    has(got.out, "ImageFolder", "weight %(4, 192%)")
    got = shell.run(shell.quote(shell.executable()) .. " run -q --out " .. folder .. "/out " .. shell.quote(recipe))
    assert.equal(5, got.code)
    has(got.err, "neither a PNG nor a JPEG", "sample %d+")
  end)
end)
