--- Refuses, before the first step, data that cannot fit the model, and tests whose labels mean other classes than those
-- of training. Otherwise a run ends at whatever step meets the first such sample, or measures nonsense.
--
--     fitting_data.refuse_empty { { "data.train", train }, { "data.test", test } }
--     fitting_data.check(model, loss, { { "data.train", train }, { "data.test", test } })
--
-- Both sides must be known. The vocabulary and classes of the model are its options; those of a file of tokens are in
-- its header or vocab_size. A file without a header that nobody has said more about may hold any number of its type,
-- and is read. Labels are judged for CrossEntropyLoss alone, because another loss may read them in its own way, and for
-- diffusion models that leave conditions out (none_class).
-- @module ganymede.train.fitting_data
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local refuse_unlike = require "ganymede.data.class_names"

local fitting_data = {}

-- The dataset among a dataset and the parts of a mix for which size(dataset) is largest, and that size; nil: none is
-- known.
local function largest(dataset, size)
  local found, most = dataset, size(dataset)
  if not most then found = nil end
  for _, part in ipairs(dataset.parts or {}) do
    local inner, n = largest(part, size)
    if inner and (not most or n > most) then found, most = inner, n end
  end
  return found, most
end

local function vocabulary_of(dataset)
  if dataset.name ~= "Tokens" or not (dataset.opt.dtype == "header" or dataset.opt.vocab_size) then return nil end
  return dataset:describe().classes
end

local function check_vocabulary(model, held, dataset, name)
  local found, n = largest(dataset, vocabulary_of)
  if not n or n <= held then return end
  local rows = model.tokens and model.tokens.path and (", the rows of %s.weight"):format(model.tokens:path()) or ""
  failure(2, "%s: the tokens of %s are of a vocabulary of %d, and the model has one of %d (%s.vocabulary%s): give the "
    .. "model vocabulary = %d, or tokens of its own tokenizer (`ganymede tokenize`)", name, found.opt.path, n, held,
    model.name, rows, n)
end

-- Of folders and tables of classes alone: what else a dataset says of classes is an upper bound.
local function classes_of(dataset) return dataset.class_names and #dataset.class_names or nil end

local function check_classes(model, held, dataset, name)
  local found, n = largest(dataset, classes_of)
  if not n or n <= held then return end
  failure(2, "%s: the labels of %s are of %d classes (%s), and the model has %d (%s.classes): give the model classes = "
    .. "%d, or the dataset only the classes that are meant", name, found.name or "a dataset written in Lua", n,
    options.brief(found.class_names), held, model.name, n)
end

-- How many classes a dataset says that it has, 0 or nil where it does not.
local function classes_said(dataset)
  local n = dataset.describe and dataset:describe().classes
  return classes_of(dataset) or n and n > 0 and n or nil
end

-- Refuses data that has just the classes of a denoiser, whose last one stands for none. More than those cannot be what
-- the denoiser is given, so data_process_func makes others of them.
local function check_none(model, dataset, name)
  local found, n = largest(dataset, classes_said)
  if n ~= model.none_class + 1 then return end
  failure(2, "%s: the labels of %s are of %d classes, and so are those of the denoiser (%s.denoiser.classes), whose "
    .. "last one, %d, stands for no class where drop is above 0: give the denoiser classes = %d, or leave drop out",
    name, found.name or "a dataset written in Lua", n, model.name, model.none_class, n + 1)
end

local function known(loader) return loader and type(loader.dataset) == "table" and loader.dataset or nil end

--- Raises a failure of status 2 if an epoch of one of the loaders has no batch. loaders: list of { name for the user,
-- loader or nil }.
function fitting_data.refuse_empty(loaders)
  for _, pair in ipairs(loaders) do
    local name, loader = pair[1], pair[2]
    if loader and loader:length() == 0 then
      local n = loader:samples_of_dataset()
      failure(2, "data: an epoch has no batch: %s has %s", name, n == 0 and "no sample"
        or ("%d samples, fewer than a batch, and data.drop_last leaves incomplete batches out; give a smaller "
          .. "data.batch_size, or leave drop_last out"):format(n))
    end
  end
end

--- Raises a failure of status 2 if one of the loaders does not fit the whole model, or if two of them do not fit each
-- other. loss: the loss, or its setting; loaders: list of { name for the user, loader or nil }.
function fitting_data.check(model, loss, loaders)
  local opt = type(model) == "table" and type(model.opt) == "table" and model.opt or {}
  local loss_name = type(loss) == "table" and (loss.type or loss.name) or loss
  local first
  for _, pair in ipairs(loaders) do
    local name, dataset = pair[1], known(pair[2])
    if dataset and type(opt.vocabulary) == "number" then check_vocabulary(model, opt.vocabulary, dataset, name) end
    if dataset and type(opt.classes) == "number" and loss_name == "CrossEntropyLoss" then
      check_classes(model, opt.classes, dataset, name)
    end
    if dataset and type(model) == "table" and model.none_class then check_none(model, dataset, name) end
    if first and dataset then refuse_unlike(first[1], first[2].dataset, name, dataset) end
    first = first or dataset and pair
  end
end

return fitting_data
