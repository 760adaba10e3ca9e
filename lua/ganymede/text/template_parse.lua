--- Reads templates of chats: the part of Jinja that the templates of model makers use.
--
-- parse(text, name) gives a list of nodes, which ganymede.text.template evaluates. A node is a table with `kind` and
-- `line`. Blocks lose the spaces before them on their line and the line end behind them, as transformers sets it
-- (trim_blocks, lstrip_blocks). What is not known here is refused with its line.
-- @module ganymede.text.template_parse
local failure = require "ganymede.base.failure"

local symbols = { "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "(", ")", "[", "]", "{",
  "}", ",", ":", ".", "|", "=" }
local escapes = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }

local Parser = {}
Parser.__index = Parser

function Parser:fail(fmt, ...)
  failure(2, "%s: line %d: %s", self.name, self.line, fmt:format(...))
end

-- ---------------------------------------------------------------- words of an expression

local function read_string(self, code, at)
  local quote, out, i = code:sub(at, at), {}, at + 1
  while true do
    local c = code:sub(i, i)
    if c == "" then self:fail("a text does not end") end
    if c == quote then return table.concat(out), i + 1 end
    if c == "\\" then
      c = escapes[code:sub(i + 1, i + 1)] or self:fail("the escape \\%s is not known here", code:sub(i + 1, i + 1))
      i = i + 1
    end
    out[#out + 1], i = c, i + 1
  end
end

local function read_symbol(self, code, at)
  for _, symbol in ipairs(symbols) do
    if code:sub(at, at + #symbol - 1) == symbol then return symbol, at + #symbol end
  end
  self:fail("'%s' is not known here", code:sub(at, at))
end

-- The code of a tag as a list of { kind = "name" | "number" | "string" | "symbol" | "end", value }.
local function words(self, code)
  local out, at = {}, 1
  while true do
    at = code:find("%S", at)
    if not at then break end
    local name, number = code:match("^[%a_][%w_]*", at), code:match("^%d+%.?%d*", at)
    if name then
      out[#out + 1], at = { kind = "name", value = name }, at + #name
    elseif number then
      if number:sub(-1) == "." then number = number:sub(1, -2) end
      out[#out + 1], at = { kind = "number", value = tonumber(number) }, at + #number
    elseif code:find("^['\"]", at) then
      local text
      text, at = read_string(self, code, at)
      out[#out + 1] = { kind = "string", value = text }
    else
      local symbol
      symbol, at = read_symbol(self, code, at)
      out[#out + 1] = { kind = "symbol", value = symbol }
    end
  end
  out[#out + 1] = { kind = "end", value = "the end of the tag" }
  return out
end

-- ---------------------------------------------------------------- expressions

function Parser:peek(value, kind)
  local word = self.words[self.at]
  return word.value == value and word.kind == (kind or (tostring(value):find "^%a" and "name" or "symbol"))
end

function Parser:accept(value)
  if not self:peek(value) then return false end
  self.at = self.at + 1
  return true
end

function Parser:expect(value)
  if self:accept(value) then return end
  self:fail("'%s' is expected before '%s'", value, tostring(self.words[self.at].value))
end

function Parser:take(kind)
  local word = self.words[self.at]
  if word.kind ~= kind then self:fail("a %s is expected, not '%s'", kind, tostring(word.value)) end
  self.at = self.at + 1
  return word.value
end

function Parser:node(kind, fields)
  fields.kind, fields.line = kind, self.line
  return fields
end

-- Arguments up to ")": a list, and those with names.
function Parser:arguments()
  local list, named = {}, {}
  while not self:accept ")" do
    if #list > 0 or next(named) then self:expect "," end
    local word, after = self.words[self.at], self.words[self.at + 1]
    if word.kind == "name" and after.kind == "symbol" and after.value == "=" then
      self.at = self.at + 2
      named[word.value] = self:expression()
    else
      list[#list + 1] = self:expression()
    end
  end
  return list, named
end

function Parser:list(close)
  local items = {}
  while not self:accept(close) do
    if #items > 0 then
      self:expect ","
      if self:accept(close) then break end
    end
    items[#items + 1] = self:expression()
  end
  return self:node("list", { items = items })
end

function Parser:dictionary()
  local names, values = {}, {}
  while not self:accept "}" do
    if #names > 0 then
      self:expect ","
      if self:accept "}" then break end
    end
    names[#names + 1] = self:expression()
    self:expect ":"
    values[#values + 1] = self:expression()
  end
  return self:node("dictionary", { names = names, values = values })
end

local constants = { ["true"] = "true", ["True"] = "true", ["false"] = "false", ["False"] = "false", none = "none",
  None = "none" }

function Parser:primary()
  local word = self.words[self.at]
  if word.kind == "string" or word.kind == "number" then
    self.at = self.at + 1
    return self:node("constant", { value = word.value })
  elseif word.kind == "name" then
    self.at = self.at + 1
    if constants[word.value] then return self:node(constants[word.value], {}) end
    return self:node("name", { name = word.value })
  elseif self:accept "(" then
    local inner = self:expression()
    if self:peek "," then self:fail "a tuple is not known here" end
    self:expect ")"
    return inner
  elseif self:accept "[" then
    return self:list "]"
  elseif self:accept "{" then
    return self:dictionary()
  end
  self:fail("'%s' is not expected", tostring(word.value))
end

-- [index] or [from:to:step]
function Parser:index(of)
  local part, parts, slice = nil, {}, false
  local n = 1
  while not self:accept "]" do
    if self:accept ":" then
      parts[n], part, slice, n = part or false, nil, true, n + 1
    else
      part = self:expression()
    end
  end
  parts[n] = part or false
  if not slice then
    return self:node("item", { of = of, index = part or self:fail "an index is missing" })
  end
  return self:node("slice", { of = of, from = parts[1], to = parts[2], step = parts[3] })
end

function Parser:postfix()
  local node = self:primary()
  while true do
    if self:accept "." then
      node = self:node("item", { of = node, index = self:node("constant", { value = self:take "name" }) })
    elseif self:accept "[" then
      node = self:index(node)
    elseif self:accept "(" then
      local list, named = self:arguments()
      node = self:node("call", { of = node, list = list, named = named })
    elseif self:accept "|" then
      local name, list, named = self:take "name", {}, {}
      if self:accept "(" then list, named = self:arguments() end
      node = self:node("filter", { of = node, name = name, list = list, named = named })
    elseif self:accept "is" then
      local negated = self:accept "not"
      node = self:node("test", { of = node, name = self:take "name" })
      if negated then node = self:node("not", { of = node }) end
    else
      return node
    end
  end
end

-- Runs a part of the parser one level deeper.
function Parser:deeper(part)
  self.depth = self.depth + 1
  if self.depth > 100 then self:fail "is nested too deeply" end
  local value, other = part(self)
  self.depth = self.depth - 1
  return value, other
end

function Parser:unary()
  if self:accept "-" then return self:node("minus", { of = self:deeper(self.unary) }) end
  return self:postfix()
end

local function binary(next_level, operators)
  return function(self)
    local left = next_level(self)
    while true do
      local found
      for _, operator in ipairs(operators) do
        if self:accept(operator) then
          found = operator
          break
        end
      end
      if not found then return left end
      left = self:node("binary", { operator = found, left = left, right = next_level(self) })
    end
  end
end

Parser.product = binary(Parser.unary, { "*", "/", "//", "%" })
Parser.concat = binary(Parser.product, { "~" })
Parser.sum = binary(Parser.concat, { "+", "-" })

local comparisons = { "==", "!=", "<=", ">=", "<", ">", "in" }

function Parser:comparison()
  local left = self:sum()
  while true do
    local found
    if self:peek "not" and self.words[self.at + 1].value == "in" then
      self.at = self.at + 2
      left = self:node("not", { of = self:node("binary", { operator = "in", left = left, right = self:sum() }) })
      found = true
    else
      for _, operator in ipairs(comparisons) do
        if self:accept(operator) then
          left = self:node("binary", { operator = operator, left = left, right = self:sum() })
          found = true
          break
        end
      end
    end
    if not found then return left end
  end
end

function Parser:negation()
  if self:accept "not" then return self:node("not", { of = self:deeper(self.negation) }) end
  return self:comparison()
end

function Parser:conjunction()
  local left = self:negation()
  while self:accept "and" do left = self:node("and", { left = left, right = self:negation() }) end
  return left
end

function Parser:disjunction()
  local left = self:conjunction()
  while self:accept "or" do left = self:node("or", { left = left, right = self:conjunction() }) end
  return left
end

local function expression(self)
  local value = self:disjunction()
  if not self:accept "if" then return value end
  local condition = self:disjunction()
  return self:node("choice", { condition = condition, yes = value,
    no = self:accept "else" and self:expression() or false })
end

function Parser:expression() return self:deeper(expression) end

-- ---------------------------------------------------------------- tags

-- The next tag: where it begins, its kind ("{" "%" "#"), its code, where the text goes on, trimmings.
local function next_tag(self, text, from)
  local at = text:find("{[{%%#]", from)
  if not at then return nil end
  local kind = text:sub(at + 1, at + 1)
  local close = kind == "{" and "}}" or kind == "%" and "%}" or "#}"
  local i = at + 2
  while true do -- a close in a text is no close
    local c = text:sub(i, i)
    if c == "" then self:fail("a tag %s does not end", text:sub(at, at + 1)) end
    if text:sub(i, i + 1) == close then break end
    local quoted = kind ~= "#" and (c == "'" or c == '"')
    i = quoted and select(2, read_string(self, text, i)) or i + 1
  end
  local code = text:sub(at + 2, i - 1)
  local left, right = code:match "^[%-+]", code:match "[%-+]$"
  if left then code = code:sub(2) end
  if right and #code > 0 and not (kind == "{" and right == "+") then code = code:sub(1, -2) else right = nil end
  return at, kind, code, i + 2, left, right
end

local function count_lines(text) return select(2, text:gsub("\n", "")) end

-- Texts and tags, in order: { kind = "text", text } and { kind = "{" | "%", words, line }.
local function pieces(self, text)
  local out, from, strip, trim = {}, 1, false, false
  text = text:gsub("\r\n", "\n"):gsub("\n$", "")
  while true do
    local at, kind, code, after, left, right = next_tag(self, text, from)
    local piece = text:sub(from, (at or #text + 1) - 1)
    local lines = count_lines(piece)
    if strip then piece = piece:gsub("^%s+", "") elseif trim then piece = piece:gsub("^\n", "") end
    if left == "-" then
      piece = piece:match "^(.*%S)" or ""
    elseif at and kind ~= "{" and left ~= "+" then
      local line = piece:match "^(.*\n)[ \t]*$" -- the tag is the first of its line: the spaces before it go
      local whole = piece:find "^[ \t]*$" and (from == 1 or text:sub(from, at - 1):find "\n[ \t]*$")
      piece = line or (whole and "") or piece
    end
    if piece ~= "" then out[#out + 1] = { kind = "text", text = piece } end
    if not at then return out end
    self.line = self.line + lines
    if kind ~= "#" then out[#out + 1] = { kind = kind, words = words(self, code), line = self.line } end
    self.line = self.line + count_lines(code)
    strip, trim = right == "-", kind ~= "{" and right ~= "+"
    from = after
  end
end

local body

local statements = {}

function statements.set(self)
  local name, field = self:take "name", nil
  if self:accept "." then field = self:take "name" end
  if not self:accept "=" then self:fail "'set' without '=' is not known here" end
  return self:node("set", { name = name, field = field, value = self:expression() })
end

statements["if"] = function(self)
  local node = self:node("if", { conditions = { self:expression() }, bodies = {} })
  local ended
  repeat
    local inner
    inner, ended = body(self, { "elif", "else", "endif" })
    node.bodies[#node.bodies + 1] = inner
    if ended == "elif" then node.conditions[#node.conditions + 1] = self:expression() end
    if ended == "else" then
      node.otherwise, ended = body(self, { "endif" })
    end
  until ended == "endif"
  return node
end

statements["for"] = function(self)
  local node = self:node("for", { names = { self:take "name" } })
  if self:accept "," then node.names[2] = self:take "name" end
  self:expect "in"
  node.of = self:disjunction()
  if self:accept "if" then node.condition = self:expression() end
  node.body = body(self, { "endfor" })
  return node
end

function statements.generation(self) -- marks what the model says; the text is the same
  return self:node("group", { body = (body(self, { "endgeneration" })) })
end

-- Nodes up to one of the words in `ends`, which is given back as well.
function body(self, ends)
  local out = {}
  self.depth = self.depth + 1
  if self.depth > 100 then self:fail "is nested too deeply" end
  while true do
    self.next = self.next + 1
    local piece = self.pieces[self.next]
    if not piece then
      if #ends > 0 then self:fail("'%s' is missing at the end", ends[#ends]) end
      self.depth = self.depth - 1
      return out
    end
    if piece.kind == "text" then
      out[#out + 1] = { kind = "text", text = piece.text }
    else
      self.words, self.at, self.line = piece.words, 1, piece.line
      local node
      if piece.kind == "{" then
        node = self:node("print", { of = self:expression() })
      else
        local word = self:take "name"
        for _, name in ipairs(ends) do
          if word == name then
            self.depth = self.depth - 1
            return out, word
          end
        end
        if not statements[word] then self:fail("'%s' is not known here", word) end
        node = statements[word](self)
      end
      if self.words[self.at].kind ~= "end" then
        self:fail("'%s' is not expected", tostring(self.words[self.at].value))
      end
      out[#out + 1] = node
    end
  end
end

--- Reads a template; name is what errors call it.
return function(text, name)
  local self = setmetatable({ name = name, line = 1, depth = 0, next = 0 }, Parser)
  self.pieces = pieces(self, text)
  return (body(self, {}))
end
