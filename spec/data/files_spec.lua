--- Data files: what is read from whole ones, and how damaged ones are refused.
-- luacheck: globals finally
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local made = require "spec.data.made"
local shell = require "spec.support.shell"

-- The status and text with which fn fails.
local function failing(fn)
  local ok, err = pcall(fn)
  assert.is_false(ok, "it should have failed")
  return failure.code(err), failure.text(err)
end

local function refuses(status, pattern, fn)
  local code, text = failing(fn)
  assert.matches(pattern, text)
  assert.equal(status, code)
end

describe("IDX files", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function open(images, labels, classes)
    return data.IDX { images = images, labels = labels, classes = classes or 10 }
  end

  it("gives images as (1, h, w) bytes and labels", function()
    local set = data.dataset(made.idx_pair(folder, 5, 2, 3, 4))
    assert.equal(5, set:length())
    local about = set:describe()
    assert.same({ 1, 2, 3 }, about.x_shape)
    assert.equal("u8", about.x_dtype)
    local x, y = set:get(4) -- image 3
    assert.same({ { { 21, 22, 23 }, { 24, 25, 26 } } }, x:totable())
    assert.equal(3, y:item())
  end)

  it("reads the same through gzip", function()
    local bytes = made.images(3, 4, 4)
    local plain = open(shell.write(folder .. "/a", bytes), shell.write(folder .. "/l", made.labels(3, 3)))
    local zipped = open(made.gzip(folder .. "/b", bytes), made.gzip(folder .. "/m", made.labels(3, 3)))
    for i = 1, 3 do
      local x, y = plain:get(i)
      local u, v = zipped:get(i)
      assert.same(x:totable(), u:totable())
      assert.equal(y:item(), v:item())
    end
  end)

  it("reads every element type, big-endian", function()
    local types = { -- the same two numbers, written by hand
      { 0x09, "\255\002", { -1, 2 } }, { 0x0B, "\255\254\001\000", { -2, 256 } },
      { 0x0C, "\255\255\255\253\000\001\000\000", { -3, 65536 } },
      { 0x0D, "\192\032\000\000\063\128\000\000", { -2.5, 1 } },
      { 0x0E, "\191\208\000\000\000\000\000\000\064\009\033\251\084\068\045\024", { -0.25, math.pi } },
    }
    for _, t in ipairs(types) do
      local images = shell.write(folder .. "/x", made.idx_bytes(t[1], { 1, 2 }, t[2]))
      local x = open(images, shell.write(folder .. "/y", made.labels(1, 1))):get(1)
      assert.same(t[3], x:totable())
    end
  end)

  it("refuses files cut at byte 0, 1, half and one before the end", function()
    local bytes, labels = made.images(4, 3, 3), shell.write(folder .. "/l", made.labels(4, 4))
    for _, n in ipairs { 0, 1, 7, math.floor(#bytes / 2), #bytes - 1 } do
      local cut = shell.write(folder .. "/x", bytes:sub(1, n))
      refuses(5, "/x: ", function() open(cut, labels) end)
    end
    refuses(5, "/x: has %d+ bytes, its header tells %d+", function()
      open(shell.write(folder .. "/x", bytes .. "\0"), labels)
    end)
  end)

  it("refuses gzip files cut anywhere, changed anywhere, or followed by something", function()
    local labels = shell.write(folder .. "/l", made.labels(4, 4))
    local zipped = shell.read(made.gzip(folder .. "/x", made.images(4, 3, 3)))
    local path = folder .. "/y.gz"
    for n = 0, #zipped - 1 do
      refuses(5, "/y%.gz: ", function() open(shell.write(path, zipped:sub(1, n)), labels) end)
    end
    refuses(5, "after the end", function() open(shell.write(path, zipped .. "x"), labels) end)
    for at = 11, #zipped do -- behind gzip's own header, some bytes of which mean nothing
      local flipped = string.char((zipped:byte(at) + 1) % 256)
      refuses(5, "/y%.gz: ", function()
        open(shell.write(path, zipped:sub(1, at - 1) .. flipped .. zipped:sub(at + 1)), labels)
      end)
    end
  end)

  it("refuses what is no IDX file", function()
    local labels = shell.write(folder .. "/l", made.labels(1, 1))
    local heads = { "\1\0\8\1\0\0\0\1x", "\0\1\8\1\0\0\0\1x", "\0\0\7\1\0\0\0\1x", "\0\0\8\0", "hello world" }
    for _, head in ipairs(heads) do
      refuses(5, "/x: ", function() open(shell.write(folder .. "/x", head), labels) end)
    end
    refuses(5, "9 dimensions at offset 3", function()
      open(shell.write(folder .. "/x", made.idx_bytes(8, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "x")), labels)
    end)
  end)

  it("refuses sizes whose product overflows, without asking for the memory", function()
    local labels, huge = shell.write(folder .. "/l", made.labels(1, 1)), 2 ^ 32 - 1
    local bytes = made.idx_bytes(8, { huge, huge, huge }, "x")
    refuses(5, "more than 2%^47 bytes", function() open(shell.write(folder .. "/x", bytes), labels) end)
    refuses(5, "more than 2%^47 bytes", function() open(made.gzip(folder .. "/z", bytes), labels) end)
  end)

  it("refuses gzipped texts where bytes are read as they are", function()
    local path = made.gzip(folder .. "/words", ("some words "):rep(40))
    refuses(2, "Text: .*/words.gz is gzipped.*ganymede tokenize", function()
      data.Text { path = path, sequence_length = 4 }
    end)
    refuses(2, "TextPairs: .*/words.gz is gzipped", function()
      data.TextPairs { path = { path }, sequence_length = 8 }
    end)
  end)

  it("refuses a gzip bomb before it explodes", function()
    local labels = shell.write(folder .. "/l", made.labels(1, 1))
    local honest = made.idx_bytes(8, { 2 ^ 20, 2 ^ 20 }, "short") -- asks for 1 TiB
    refuses(5, "more than %d+ bytes of gzip can hold", function() open(made.gzip(folder .. "/a", honest), labels) end)
    local liar = made.idx_bytes(8, { 2, 2 }, ("\0"):rep(2 ^ 20)) -- tells 4, holds a million
    refuses(5, "more than the 16 bytes its header tells", function() open(made.gzip(folder .. "/b", liar), labels) end)
  end)

  it("refuses numbers of labels that do not fit, and labels out of range, naming the sample", function()
    local images = shell.write(folder .. "/x", made.images(4, 2, 2))
    refuses(2, "holds 4 samples, .* holds 3 labels", function()
      open(images, shell.write(folder .. "/l", made.labels(3, 3)))
    end)
    local set = open(images, shell.write(folder .. "/l", made.idx_bytes(8, { 4 }, "\0\1\9\2")), 3)
    assert.equal(1, select(2, set:get(2)):item())
    refuses(5, "/l: label 9 of sample 2 is not a class from 0 to 2", function() set:get(3) end)
    local loader = data.loader { dataset = set, batch_size = 2 }
    finally(function() loader:close() end)
    assert.is_truthy(loader:next())
    for _ = 1, 2 do -- the error stays until a seek
      refuses(5, "label 9 of sample 2", function() loader:next() end)
    end
    loader:seek(0)
    assert.is_truthy(loader:next())
  end)

  it("turns a file that shrinks while it is mapped into an error", function()
    local path = shell.write(folder .. "/x", made.images(4096, 8, 8))
    local set = open(path, shell.write(folder .. "/l", made.labels(4096, 10)))
    assert.is_truthy(set:get(4000))
    assert.equal(0, os.execute("truncate -s 100 " .. shell.quote(path)))
    refuses(5, "/x: became shorter while in use", function() set:get(4000) end)
    local loader = data.loader { dataset = set, batch_size = 64 }
    finally(function() loader:close() end)
    refuses(5, "became shorter", function()
      loader:seek(60)
      loader:next()
    end)
  end)

  it("names a file that is not there, and folders", function()
    refuses(2, "/nothing: cannot be opened", function() open(folder .. "/nothing", folder .. "/l") end)
    refuses(2, "is not a regular file", function() open(folder, folder .. "/l") end)
    assert.equal(0, os.execute("mkfifo " .. shell.quote(folder .. "/pipe"))) -- for whose writer nobody may wait
    refuses(2, "is not a regular file", function() open(folder .. "/pipe", folder .. "/l") end)
  end)
end)

describe("FashionMNIST", function()
  it("says which package holds it when it is not there", function()
    refuses(2, "install the Debian package dataset%-fashion%-mnist", function()
      data.FashionMNIST { root = "/nonexistent" }
    end)
  end)

  it("has 60,000 and 10,000 images, as many of each class, with the mean and deviation that are subtracted", function()
    local ok, train = pcall(data.FashionMNIST, { split = "train" })
    if not ok then pending "the dataset is not installed" end
    assert.equal(60000, train:length())
    local loader = data.loader { dataset = train, batch_size = 5000, dtype = "f64" }
    finally(function() loader:close() end)
    local count, sum, squares, n = {}, 0, 0, 0
    gm.scope(function()
      for x, y in loader:batches() do
        sum, squares, n = sum + x:sum():item(), squares + x:square():sum():item(), n + x:numel()
        for _, label in ipairs(y:totable()) do count[label] = (count[label] or 0) + 1 end
        x:release()
      end
    end)
    for label = 0, 9 do assert.equal(6000, count[label]) end
    -- normalized by 7 digits of mean and deviation
    assert.near(0, sum / n, 1e-6)
    assert.near(1, squares / n, 1e-6)
    local test = data.FashionMNIST { split = "test", normalize = false }
    assert.equal(10000, test:length())
    assert.equal(9, select(2, test:get(1)):item()) -- the first test image is an ankle boot
  end)
end)

describe("CIFAR10", function()
  local folder
  before_each(function() folder = made.cifar10(shell.temporary_folder()) end)
  after_each(function() shell.remove(folder) end)

  -- The made files hold two images each.
  local function open(split) return data.CIFAR10 { root = folder, split = split, whole = false } end

  it("reads records across files", function()
    local set = open()
    assert.equal(10, set:length())
    for i = 1, 10 do
      local file, k = math.floor((i + 1) / 2), (i + 1) % 2
      local x, y = set:get(i)
      assert.same({ 3, 32, 32 }, x:shape())
      assert.equal(10 * file + k, x:get(1, 1, 1))
      assert.equal(7, x:get(3, 32, 32))
      assert.equal((2 * file + k) % 10, y:item())
    end
    assert.equal(2, open("test"):length())
  end)

  it("takes files of different lengths", function()
    shell.write(folder .. "/data_batch_1.bin", made.cifar_record(3, 99))
    local set = open()
    assert.equal(9, set:length())
    assert.equal(99, set:get(1):get(1, 1, 1))
    assert.equal(20, set:get(2):get(1, 1, 1))
  end)

  it("refuses cut and empty files, and says where whole ones are", function()
    for _, n in ipairs { 0, 1, 3072, 3074, 2 * 3073 - 1 } do
      shell.write(folder .. "/data_batch_5.bin", made.cifar_record(5, 1):rep(2):sub(1, n))
      refuses(5, ("data_batch_5%%.bin: %d bytes are no whole number of 3073%%-byte records"):format(n), open)
    end
    os.remove(folder .. "/test_batch.bin")
    refuses(2, "/test_batch%.bin: cannot be opened.+binary version: get cifar%-10%-binary%.tar%.gz from "
      .. "https://www%.cs%.toronto%.edu/~kriz/cifar%.html.+the folder cifar%-10%-batches%-bin", function()
      data.CIFAR10 { root = folder, split = "test" }
    end)
    refuses(2, "cifar%-10%-batches%-bin/data_batch_1%.bin: cannot be opened", function() data.CIFAR10 {} end)
    refuses(2, "holds train%.bin and test%.bin", function() data.CIFAR100 { root = folder } end)
  end)

  -- Files of the published sizes, of zeros behind their two images.
  local function stretch(name, images)
    shell.run(("truncate -s %d %s/%s"):format(images * 3073, shell.quote(folder), name))
  end

  it("refuses a file that was cut between two images, unless it is told that files are not whole", function()
    for f = 1, 5 do stretch(("data_batch_%d.bin"):format(f), 10000) end
    assert.equal(50000, data.CIFAR10({ root = folder }):length())
    for _, images in ipairs { 9999, 10001, 1 } do
      stretch("data_batch_4.bin", images)
      refuses(5, ("data_batch_4%%.bin: %d records were found, 10000 expected"):format(images), function()
        data.CIFAR10 { root = folder }
      end)
    end
    refuses(5, "test_batch%.bin: 2 records were found, 10000 expected.+whole = false", function()
      data.CIFAR10 { root = folder, split = "test" }
    end)
    assert.equal(40001, open():length())
    shell.write(folder .. "/train.bin", ("\0"):rep(3074))
    refuses(5, "train%.bin: 1 records were found, 50000 expected", function() data.CIFAR100 { root = folder } end)
  end)

  it("refuses a label that is none of ten classes, where it is read", function()
    shell.write(folder .. "/data_batch_2.bin", made.cifar_record(9, 1) .. made.cifar_record(10, 1))
    local set = open()
    assert.equal(9, select(2, set:get(3)):item())
    refuses(5, "data_batch_2%.bin: label 10 of sample 1 is not a class from 0 to 9", function() set:get(4) end)
    local loader = data.loader { dataset = set, batch_size = 2 }
    finally(function() loader:close() end)
    assert.same({ 2 }, select(2, loader:next()):shape())
    refuses(5, "label 10 of sample 1", function() loader:next() end)
  end)
end)

describe("token files", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  it("give windows whose target is one further on", function()
    local path = shell.write(folder .. "/t.bin", made.u16 { 5, 6, 7, 300, 9, 10, 11, 12 })
    local set = data.Tokens { path = path, dtype = "u16", sequence_length = 3, stride = 2, vocab_size = 301 }
    assert.equal(3, set:length()) -- tokens 0-3, 2-5, 4-7
    local x, y = set:get(2)
    assert.same({ 7, 300, 9 }, x:totable())
    assert.same({ 300, 9, 10 }, y:totable())
    assert.equal("i64", x:dtype())
    -- as many windows as have all their targets
    for length = 1, 7 do
      for stride = 1, 3 do
        local windows, n = data.Tokens { path = path, dtype = "u16", sequence_length = length, stride = stride }, 0
        for first = 0, 7 - length, stride do
          n = n + 1
          assert.equal(({ 5, 6, 7, 300, 9, 10, 11, 12 })[first + length + 1], select(2, windows:get(n)):get(length))
        end
        assert.equal(n, windows:length())
      end
    end
  end)

  it("are written with a header that tells width and vocabulary", function()
    local path = folder .. "/t"
    for _, dtype in ipairs { "u8", "u16", "u32" } do
      data.write_tokens(path, { 1, 2, 3, 200 }, { dtype = dtype, vocab_size = 201 })
      local set = data.Tokens { path = path, sequence_length = 3 }
      assert.equal(201, set:describe().classes)
      assert.same({ 2, 3, 200 }, select(2, set:get(1)):totable())
    end
    refuses(2, "token number 1 is 9, not below", function() data.write_tokens(path, { 1, 9 }, { vocab_size = 9 }) end)
    refuses(2, "does not fit 1%-byte tokens", function()
      data.write_tokens(path, { 1 }, { dtype = "u8", vocab_size = 257 })
    end)
  end)

  it("are refused when cut, changed or of another kind", function()
    local path = folder .. "/t"
    data.write_tokens(path, { 1, 2, 3, 4, 5, 6 }, { vocab_size = 10 })
    local bytes = shell.read(path)
    local function open() return data.Tokens { path = path, sequence_length = 2 } end
    os.remove(path)
    assert.error_matches(open, "cannot be opened.*`ganymede tokenize TEXT %-%-tokenizer DIR %-o FILE` writes one")
    for n = 0, #bytes - 1 do
      shell.write(path, bytes:sub(1, n))
      refuses(5, "/t: ", open)
    end
    for at = 1, 24 do -- magic, version, width, count
      shell.write(path, bytes:sub(1, at - 1) .. string.char(bytes:byte(at) + 1) .. bytes:sub(at + 1))
      refuses(5, "/t: ", open)
    end
    refuses(5, "no whole number of 2%-byte tokens", function()
      data.Tokens { path = shell.write(path, "abc"), dtype = "u16", sequence_length = 1 }
    end)
    refuses(2, "too few for one window", function()
      data.Tokens { path = shell.write(path, "abcd"), dtype = "u16", sequence_length = 2 }
    end)
  end)

  it("name the offset of a token beyond the vocabulary", function()
    local path = shell.write(folder .. "/t.bin", made.u16 { 1, 2, 3, 77, 4 })
    local set = data.Tokens { path = path, dtype = "u16", sequence_length = 2, stride = 1, vocab_size = 50 }
    assert.same({ 1, 2 }, (set:get(1)):totable())
    refuses(5, "token 77 at byte 6 %(token number 3%) is not below the vocabulary size 50", function() set:get(2) end)
  end)

  it("split a text into parts that do not meet", function()
    local text = {}
    for i = 1, 1000 do text[i] = string.char(32 + i % 90) end
    local path = shell.write(folder .. "/text", table.concat(text))
    local function part(split)
      return data.Text { path = path, sequence_length = 9, split = split, test_fraction = 0.2 }
    end
    assert.equal(111, part("all"):length()) -- (1000 - 10) / 9 + 1
    assert.equal(88, part("train"):length()) -- 800 bytes
    assert.equal(22, part("test"):length()) -- 200
    assert.equal(256, part("all"):describe().classes)
    local x = part("test"):get(1)
    assert.equal(text[801]:byte(), x:get(1))
    local _, y = part("train"):get(88)
    assert.equal(text[793]:byte(), y:get(9)) -- the last target is before byte 800
  end)
end)
