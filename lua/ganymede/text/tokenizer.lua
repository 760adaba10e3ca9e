--- Texts to numbers of tokens and back, by the tokenizer of a model that others have made.
--
--     local t = gm.tokenizer "model"                       -- a folder, a tokenizer.json, a SentencePiece *.model
--     local ids = t:encode "The capital of France is"      -- a list of numbers, which count from 0
--     t:decode(ids)                                        -- the text
--     t:token(ids[1]); t:id "<|endoftext|>"; t.size
--     gm.tokenizer "bytes"                                 -- a token for each byte, as the dataset Text has them
--
-- The numbers are those that Python's `tokenizers` gives for the same file. What a file asks for and this program does
-- not have is refused when it is opened, with its name and place.
-- @module ganymede.text.tokenizer
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local signature = require "ganymede.base.signature"
local template = require "ganymede.text.template"

local tokenizer = {}

local Tokenizer = {}
Tokenizer.__index = Tokenizer

local function checked(first, message, kind)
  if first == nil and message ~= nil then failure(kind == "corrupt" and 5 or 2, "%s", message) end
  return first
end

--- Whether a folder has a tokenizer that tokenizer.open finds.
function tokenizer.is_in(folder)
  return core.is_file(folder .. "/tokenizer.json") or core.is_file(folder .. "/tokenizer.model")
end

local here = debug.getinfo(1, "S").source:match "^@(.*/)" or ""

--- Opens a tokenizer, by the name of its file or of a folder that has it; "bytes": that of bytes (./bytes: a folder).
function tokenizer.open(path)
  if path == "bytes" then path = here .. "bytes.json" end
  if not machine.exists(path) then
    failure(2, "tokenizer %s: there is no such file or folder; name a folder that has tokenizer.json or "
      .. "tokenizer.model, or one of these files", path)
  end
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
Tokenizer.encode = signature.declare("tokenizer:encode", "tokenizer object, text string, options options?",
  encode_options, function(self, text, opt)
    return checked(core.tokenizer_encode(self.handle, text, opt.pair, opt.special))
  end)

local decode_options = {
  special = { type = "boolean", default = true, doc = "whether special tokens are part of the text" },
}

--- The text of a list of tokens.
Tokenizer.decode = signature.declare("tokenizer:decode", "tokenizer object, ids table, options options?",
  decode_options, function(self, ids, opt)
    return checked(core.tokenizer_decode(self.handle, ids, opt.special))
  end)

--- The token with this number, as the vocabulary spells it, and whether it is special; nil if there is none.
function Tokenizer:token(id) return core.tokenizer_token(self.handle, id) end

--- The number of a token by its spelling; nil if there is none.
function Tokenizer:id(text) return core.tokenizer_id(self.handle, text) end

-- The text of a special token in tokenizer_config.json: a text, or an object with `content`.
local function token_text(v)
  if type(v) == "table" then v = v.content end
  return type(v) == "string" and v or nil
end

-- What tokenizer_config.json beside the tokenizer says, or {}; the folder; the path.
local function config_of(self)
  local folder = self.path:match "^(.*/)" or ""
  local path = folder .. "tokenizer_config.json"
  return json.of_file(path) or {}, folder, path
end

--- The special tokens that tokenizer_config.json beside the tokenizer names: { bos_token, eos_token, pad_token,
-- unk_token }, each a text or nil.
function Tokenizer:named()
  local config, values = config_of(self), {}
  for _, name in ipairs { "bos_token", "eos_token", "pad_token", "unk_token" } do
    values[name] = token_text(config[name])
  end
  return values
end

-- The template of the model, from the files beside the tokenizer, and the special tokens that it may name.
local function load_template(self)
  local config, folder, path = config_of(self)
  local source, from = machine.read(folder .. "chat_template.jinja"), folder .. "chat_template.jinja"
  if not source then source, from = config.chat_template, path .. ": chat_template" end
  if type(source) == "table" and source ~= json.null then -- several, by name
    local named
    for _, entry in ipairs(source) do
      if entry.name == "default" then named = entry.template end
    end
    source = named
  end
  if type(source) ~= "string" then
    failure(2, "%s: has no chat template (tokenizer_config.json or chat_template.jinja beside it)", self.path)
  end
  return template(source, from), self:named()
end

local chat_options = {
  add_generation_prompt = { type = "boolean", default = false,
    doc = "whether the text ends with what begins an answer" },
  values = { type = "table", optional = true, doc = "other values that the template may name" },
}

--- Reads the chat template beside the tokenizer now; otherwise its first use does.
function Tokenizer:load_template() self.render, self.values = load_template(self) end

local function chat(self, messages, opt)
  if not self.render then self:load_template() end
  local values = { messages = messages, add_generation_prompt = opt.add_generation_prompt, tools = json.null,
    documents = json.null }
  for _, list in ipairs { self.values, opt.values or {} } do
    for name, value in pairs(list) do values[name] = value end
  end
  return self.render(values)
end

--- The text of a conversation, by the chat template of the model. Encode it with special = false.
Tokenizer.chat = signature.declare("tokenizer:chat", "tokenizer object, messages table, options options?",
  chat_options, chat)

--- Frees the tokenizer.
function Tokenizer:close() core.tokenizer_close(self.handle) end

signature.export("tokenizer", Tokenizer, ":")
tokenizer.open = failure.blaming(tokenizer.open)
return signature.export("tokenizer", tokenizer)
