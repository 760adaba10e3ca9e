--- Refuses files of tokens whose vocabulary is larger than that of the model: the lookup of a token that the model
-- lacks would end the run at whatever step meets the first one.
--
-- Both must be known: the model's from its option `vocabulary`, the file's from its header or from vocab_size. A file
-- without a header that nobody has said more about may hold any number of its type, and is read.
-- @module ganymede.train.vocabulary
local failure = require "ganymede.base.failure"

local vocabulary = {}

-- The dataset Tokens with the largest vocabulary among a dataset and the parts of a mix, and that vocabulary; nil: none
-- is known.
local function largest(dataset)
  local found, most
  if dataset.name == "Tokens" and (dataset.opt.dtype == "header" or dataset.opt.vocab_size) then
    found, most = dataset, dataset:describe().classes
  end
  for _, part in ipairs(dataset.parts or {}) do
    local inner, n = largest(part)
    if inner and (not most or n > most) then found, most = inner, n end
  end
  return found, most
end

--- Raises a failure of status 2 if the loader's tokens do not fit the whole model. name: of the loader, for the user;
-- loader: nil, or any.
function vocabulary.check(model, loader, name)
  local held = type(model) == "table" and type(model.opt) == "table" and model.opt.vocabulary
  local dataset, n
  if type(held) == "number" and loader and type(loader.dataset) == "table" then dataset, n = largest(loader.dataset) end
  if not n or n <= held then return end
  local rows = model.tokens and model.tokens.path and (", the rows of %s.weight"):format(model.tokens:path()) or ""
  failure(2, "%s: the tokens of %s are of a vocabulary of %d, and the model has one of %d (%s.vocabulary%s): give the "
    .. "model vocabulary = %d, or tokens of its own tokenizer (`ganymede tokenize`)", name, dataset.opt.path, n, held,
    model.name, rows, n)
end

return vocabulary
