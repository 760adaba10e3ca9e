--- Texts to numbers of tokens and back, by the tokenizer of a model that others have made.
--
--     local t = gm.tokenizer "model"                       -- a folder, a tokenizer.json, a SentencePiece *.model
--     local ids = t:encode "The capital of France is"      -- a list of numbers, which count from 0
--     t:decode(ids)                                        -- the text
--     t:token(ids[1]); t:id "<|endoftext|>"; t.size
--
-- The numbers are those that Python's `tokenizers` gives for the same file. What a file asks for and this program does
-- not have is refused when it is opened, with its name and place.
-- @module ganymede.text.tokenizer
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local tokenizer = {}

local Tokenizer = {}
Tokenizer.__index = Tokenizer

local function checked(first, message, kind)
  if first == nil and message ~= nil then failure(kind == "corrupt" and 5 or 2, "%s", message) end
  return first
end

--- Opens a tokenizer, by the name of its file or of a folder that has it.
function tokenizer.open(path)
  local handle = checked(core.tokenizer_open(path))
  local about = core.tokenizer_about(handle)
  return setmetatable({ handle = handle, path = about.path, model = about.model, size = about.size,
    special = about.special }, Tokenizer)
end

local encode_options = {
  special = { type = "boolean", default = true,
    doc = "whether the tokens that the tokenizer puts around a text are added" },
  pair = { type = "string", optional = true, doc = "a second text, after the first" },
}

--- The tokens of a text, as a list of numbers.
function Tokenizer:encode(text, opt)
  opt = options.check("encode", encode_options, opt, 2)
  return checked(core.tokenizer_encode(self.handle, text, opt.pair, opt.special))
end

local decode_options = {
  special = { type = "boolean", default = true, doc = "whether special tokens are part of the text" },
}

--- The text of a list of tokens.
function Tokenizer:decode(ids, opt)
  opt = options.check("decode", decode_options, opt, 2)
  return checked(core.tokenizer_decode(self.handle, ids, opt.special))
end

--- The token with this number, as the vocabulary spells it, and whether it is special; nil if there is none.
function Tokenizer:token(id) return core.tokenizer_token(self.handle, id) end

--- The number of a token by its spelling; nil if there is none.
function Tokenizer:id(text) return core.tokenizer_id(self.handle, text) end

--- Frees the tokenizer.
function Tokenizer:close() core.tokenizer_close(self.handle) end

signature.export("tokenizer", Tokenizer, ":", nil, { encode = encode_options, decode = decode_options })
return signature.export("tokenizer", tokenizer)
