--- Datasets that are read in C: Fashion-MNIST, IDX files, CIFAR, text, token streams, made-up data.
-- Pictures in folders are in ganymede.data.images.
-- @module ganymede.data.datasets
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local native = require "ganymede.data.native"
local options = require "ganymede.base.options"
local paths_of = require "ganymede.data.paths"
local signature = require "ganymede.base.signature"

local datasets = {}

-- Defines a class of datasets; build(opt) returns the handle and other fields.
local function define(name, spec, build) datasets[name] = native.define(name, spec, build) end

local split = { type = "string", one_of = { "train", "test" }, default = "train",
  doc = "the part of the dataset that is read" }
local normalize = { type = "boolean", default = true,
  doc = "whether images are normalized: the mean of the training images is subtracted, and the result divided by "
    .. "their standard deviation" }

-- ---------------------------------------------------------------- images

-- Returns the path of root/name.gz or root/name in the first of the roots that has one of them.
local function find(roots, name)
  for _, root in ipairs(roots) do
    for _, ending in ipairs { ".gz", "" } do
      local path = ("%s/%s%s"):format(root, name, ending)
      if core.is_file(path) then return path end
    end
  end
end

local fashion_hint = "install the Debian package dataset-fashion-mnist, or set root to the folder that holds "
  .. "train-images-idx3-ubyte.gz and its three companions"

define("FashionMNIST", {
  split = split, normalize = normalize,
  root = { type = "string", optional = true,
    doc = "the folder of the four IDX files, gzipped or not; default: that of the Debian package "
      .. "dataset-fashion-mnist" },
}, function(opt)
  local prefix = opt.split == "train" and "train" or "t10k"
  local roots = opt.root and { opt.root } or { "/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist" }
  local images, labels = find(roots, prefix .. "-images-idx3-ubyte"), find(roots, prefix .. "-labels-idx1-ubyte")
  if not images or not labels then
    failure(2, "FashionMNIST: no %s-%s-ubyte[.gz] in %s\n  %s", prefix, images and "labels-idx1" or "images-idx3",
      table.concat(roots, " or "), fashion_hint)
  end
  return checked(fashion_hint, core.dataset_idx(images, labels, 10)), {
    normalization = opt.normalize and { mean = { 0.2860406 }, std = { 0.3530242 } } or nil,
    class_names = { "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
                    "ankle boot" },
  }
end)

define("IDX", {
  images = { type = "string", doc = "the path of an IDX file of any type, (n, h, w) or (n, ...), gzipped or not" },
  labels = { type = "string", doc = "the path of an IDX file of labels, (n), gzipped or not" },
  classes = { type = "integer", min = 1, max = 2 ^ 31, default = 10,
    doc = "the number of classes; labels are 0 to classes - 1" },
}, function(opt) return (checked(nil, core.dataset_idx(opt.images, opt.labels, opt.classes))) end)

-- "PATH:NAME" -> path, name; a path alone is a file with one array.
local function place_of(text)
  if core.is_file(text) then return text end
  local path, name = text:match "^(.+):([^:]+)$"
  if path then return path, name end
  return text
end

define("Arrays", {
  x = { type = "string",
    doc = "the samples, along the first dimension of an array: the path of a file (.npy, .npz, .safetensors, .nii, "
      .. ".nii.gz), or PATH:NAME where it has several arrays" },
  y = { type = "string", optional = true,
    doc = "what belongs to them, likewise: whole numbers are labels, others targets; default: y is 0" },
  classes = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of classes; labels are then checked to be 0 to classes - 1" },
  tokens = { type = "boolean", default = false, doc = "whether x is token numbers, i64, and not numbers" },
}, function(opt)
  local x, x_name = place_of(opt.x)
  local y, y_name
  if opt.y then y, y_name = place_of(opt.y) end
  local about = { classes = opt.classes, tokens = opt.tokens }
  return (checked(nil, core.dataset_arrays(x, x_name, y, y_name, about)))
end)

-- folder: the folder that the archive makes. Its training files hold 50,000 images together, equally many in each; the
-- test file holds 10,000.
local function cifar(name, archive, folder, train, test, layout, mean, std)
  local published = { train = 50000 / #train, test = 10000 }
  local hint = ("%s reads the binary version: get %s from https://www.cs.toronto.edu/~kriz/cifar.html, unpack it here "
    .. "(it makes the folder %s) or set root to that folder, which holds %s and %s"):format(name, archive, folder,
    table.concat(train, ", "), test[1])
  define(name, {
    split = split, normalize = normalize,
    root = { type = "string", default = folder, doc = ("the folder of the unpacked %s"):format(archive) },
    whole = { type = "boolean", default = true,
      doc = "whether a file with another number of images than the published one is refused; false allows files of "
        .. "your own" },
  }, function(opt)
    local paths, about = {}, { records = opt.whole and published[opt.split] or 0 }
    for i, file in ipairs(opt.split == "train" and train or test) do paths[i] = opt.root .. "/" .. file end
    for key, value in pairs(layout) do about[key] = value end
    local normalization = opt.normalize and { mean = mean, std = std } or nil
    return checked(hint, core.dataset_records(paths, about)), { normalization = normalization }
  end)
end

cifar("CIFAR10", "cifar-10-binary.tar.gz", "cifar-10-batches-bin",
  { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin" },
  { "test_batch.bin" }, { record = 3073, label_offset = 0, x_offset = 1, x_shape = { 3, 32, 32 }, classes = 10 },
  { 0.4914, 0.4822, 0.4465 }, { 0.2470, 0.2435, 0.2616 })
cifar("CIFAR100", "cifar-100-binary.tar.gz", "cifar-100-binary", { "train.bin" }, { "test.bin" },
  { record = 3074, label_offset = 1, x_offset = 2, x_shape = { 3, 32, 32 }, classes = 100 },
  { 0.5071, 0.4865, 0.4409 }, { 0.2673, 0.2564, 0.2762 })

-- ---------------------------------------------------------------- tokens

local function with_windows(spec)
  spec.sequence_length = { type = "integer", min = 1, max = 2 ^ 31, default = 128,
    doc = "the number of tokens in a sample" }
  spec.stride = { type = "integer", min = 1, optional = true,
    doc = "the number of tokens (TextPairs: bytes) from the begin of a sample to that of the next; default: "
      .. "sequence_length, so that samples do not overlap" }
  spec.split = { type = "string", one_of = { "all", "train", "test" }, default = "all",
    doc = "the part of the stream that is read" }
  spec.test_fraction = { type = "number", above = 0, below = 1, default = 0.1,
    doc = "the fraction of the stream, at its end, that is the test part" }
  return spec
end

local function windows(opt, width, vocab_size)
  local cut = 1 - opt.test_fraction
  return {
    width = width, vocab_size = vocab_size, length = opt.sequence_length, stride = opt.stride or opt.sequence_length,
    begin = opt.split == "test" and cut or 0, finish = opt.split == "train" and cut or 1,
  }
end

-- Windows that may hold several documents.
local function with_documents(spec, which)
  spec.packed = { type = "boolean", default = false,
    doc = "whether x is (2, sequence_length): the tokens, and the number of each one's document, so that documents do "
      .. "not see each other and positions begin with each of them; no target crosses a border" }
  spec.end_token = { type = "integer", min = 0, max = 2 ^ 32, optional = true,
    doc = ("packed: %s that stands behind each document, its last"):format(which) }
  return with_windows(spec)
end

-- which: what end_token is; hint: what is added where the file cannot be used.
local function with_end(name, opt, about, which, hint)
  if opt.packed and not opt.end_token then
    failure(2, "%s: packed = true needs end_token: %s", name, which)
  elseif opt.end_token and not opt.packed then
    failure(2, "%s: end_token = %d is for packed = true; without it a window is one document", name, opt.end_token)
  end
  about.end_token = opt.end_token
  return (checked(hint, core.dataset_tokens(opt.path, about)))
end

-- Bytes are read where they lie, so nothing inflates them.
local function refuse_gzipped(name, path)
  local file = io.open(path, "rb")
  local first = file and file:read(3)
  if file then file:close() end
  if first == "\31\139\8" then
    failure(2, "%s: %s is gzipped, and its bytes are read as they are; gunzip it, or make a file of tokens of it: "
      .. "`ganymede tokenize %s --tokenizer bytes -o OUT`", name, path, path)
  end
end

define("Text", with_documents({
  path = { type = "string", doc = "the path of a file whose bytes are the tokens, a vocabulary of 256" },
}, "the byte"), function(opt)
  refuse_gzipped("Text", opt.path)
  return with_end("Text", opt, windows(opt, 1, 256), "the byte behind each document, such as 10, a new line")
end)

local widths = { header = 0, u8 = 1, u16 = 2, u32 = 4 }

define("Tokens", with_documents({
  path = { type = "string",
    doc = "the path of a token file that data.write_tokens wrote, or of a file of little-endian numbers without a "
      .. "header" },
  dtype = { type = "string", one_of = { "header", "u8", "u16", "u32" }, default = "header",
    doc = "the type of the tokens in a file without a header; header: the file has one, which says it" },
  vocab_size = { type = "integer", min = 1, max = 2 ^ 32, optional = true,
    doc = "the size of the vocabulary, which every token is below; default: that of the header, otherwise all numbers "
      .. "of the dtype" },
}, "the token"), function(opt)
  return with_end("Tokens", opt, windows(opt, widths[opt.dtype], opt.vocab_size or 0),
    "the token behind each document, which 'ganymede tokenize --end' writes; gm.tokenizer(DIR):id(TEXT) is its number",
    "Tokens reads files of tokens: `ganymede tokenize TEXT --tokenizer DIR -o FILE` writes one; Text reads bytes")
end)

define("TextPairs", with_windows({
  path = { type = { "string", "list" },
    doc = "the path of a file, or a list of paths; their bytes are the tokens 0 to "
    .. "255; 256 is padding, 257 [CLS], 258 [SEP], 259 [MASK], which makes a vocabulary of 260" },
  mask_probability = { type = "number", min = 0, max = 1, default = 0.15,
    doc = "the fraction of the bytes that the model must predict; 8 in 10 of them are hidden by [MASK], 1 in 10 is "
      .. "replaced by a random byte" },
  short_probability = { type = "number", min = 0, max = 1, default = 0.1,
    doc = "the fraction of the samples that are shorter than sequence_length and are filled with padding" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, optional = true,
    doc = "the seed of masks, second texts and lengths; default: the seed of the run" },
}), function(opt)
  local o = windows(opt)
  o.mask, o.shorter, o.seed = opt.mask_probability, opt.short_probability, opt.seed or core.seed()
  local paths = paths_of("TextPairs", opt.path)
  for _, path in ipairs(paths) do refuse_gzipped("TextPairs", path) end
  return (checked(nil, core.dataset_pairs(paths, o)))
end)

local token_options = {
  dtype = { type = "string", one_of = { "u8", "u16", "u32" }, default = "u16",
    doc = "the type of the tokens in the file" },
  vocab_size = { type = "integer", min = 1, max = 2 ^ 32,
    doc = "the size of the vocabulary, which every token is below" },
}

--- Writes a token file with a header.
function datasets.write_tokens(path, tokens, opt)
  opt = options.check("write_tokens", token_options, opt, 2)
  checked(nil, core.tokens_write(path, widths[opt.dtype], opt.vocab_size, tokens))
end

-- ---------------------------------------------------------------- made-up data

define("Synthetic", {
  kind = { type = "string", one_of = { "clusters", "tokens" }, default = "clusters",
    doc = "what is made; clusters: labelled points around one centre for each class, tokens: chains in which each "
      .. "token determines the next" },
  length = { type = "integer", min = 1, max = 2 ^ 40, default = 1024, doc = "the number of samples" },
  shape = { type = "list", default = { 16 }, doc = "clusters: the shape of a sample" },
  classes = { type = "integer", min = 1, max = 2 ^ 20, default = 10, doc = "clusters: the number of classes" },
  sequence_length = { type = "integer", min = 1, max = 2 ^ 31, default = 32, doc = "the number of tokens in a sample" },
  vocab_size = { type = "integer", min = 1, max = 2 ^ 24, default = 64,
    doc = "tokens: the size of the vocabulary, which every token is below" },
  noise = { type = "number", min = 0, optional = true,
    doc = "clusters: the standard deviation around a centre, default 0.5; tokens: the fraction of random tokens, "
      .. "default 0.1" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, default = 0,
    doc = "the seed of what is to be learned: the centres or the chains" },
  split = split,
}, function(opt)
  local draw = opt.split == "train" and 0 or 1
  if opt.kind == "tokens" then
    return (checked(nil, core.dataset_chains {
      length = opt.length, sequence_length = opt.sequence_length, vocab_size = opt.vocab_size,
      noise = opt.noise or 0.1, seed = opt.seed, split = draw }))
  end
  return (checked(nil, core.dataset_clusters {
    length = opt.length, x_shape = opt.shape, classes = opt.classes, noise = opt.noise or 0.5, seed = opt.seed,
    split = draw }))
end)

return signature.export("data", datasets, nil, nil, { write_tokens = token_options })
