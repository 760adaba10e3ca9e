--- ops.einsum: sums of products along named dimensions, by transposes, batched products and sums.
--
--     ops.einsum("bij,bjk->bik", a, b)
--
-- It takes two operands at a time, from left to right, and sums over a dimension as soon as no later operand and not
-- the result wants it. Dimensions of a pair are of three kinds: in both and wanted later (the batch of a product), in
-- both and not wanted (the product sums over them), in one. So a pair is one batched product, or a product of elements
-- where nothing is summed over. Gradients and layouts are those of the ops that it calls.
--
-- A label is a letter, or a number for a dimension of an ellipsis, counted from the last: "..." of operands with
-- different numbers of dimensions are aligned there. The trap: a dimension of one element counts for any size of its
-- label.
-- @module ganymede.tensor.einsum
local core = require "ganymede.core"
local lists = require "ganymede.base.lists"
local signature = require "ganymede.base.signature"

local ops = core.ops

local function refuse(equation, message, ...)
  error(("ops.einsum: %q: " .. message):format(equation, ...), 0)
end

-- ---------------------------------------------------------------- the equation

-- "a...b" -> { "a", "...", "b" }
local function tokens(equation, text)
  local list, at = {}, 1
  while at <= #text do
    local letter = text:sub(at, at)
    if text:sub(at, at + 2) == "..." then
      for _, token in ipairs(list) do
        if token == "..." then refuse(equation, "'%s' has two ellipses", text) end
      end
      list[#list + 1], at = "...", at + 3
    elseif letter:match "%a" then
      list[#list + 1], at = letter, at + 1
    else
      refuse(equation, "'%s' is no label; labels are letters, and '...' stands for further dimensions", letter)
    end
  end
  return list
end

-- The labels of an operand of this many dimensions, or of a result that shows `ndim` of an ellipsis.
local function labels_of(list, hidden)
  local out = {}
  for _, token in ipairs(list) do
    if token ~= "..." then out[#out + 1] = token end
    for k = token == "..." and hidden or 0, 1, -1 do out[#out + 1] = k end
  end
  return out
end

local function has(list, label)
  for i, other in ipairs(list) do
    if other == label then return i end
  end
end

-- What a result without "->" has: dimensions of the ellipsis, then labels that occur once, in order of their letters.
local function implied(inputs, most)
  local count, letters, out = {}, {}, {}
  for _, labels in ipairs(inputs) do
    for _, label in ipairs(labels) do
      count[label] = (count[label] or 0) + 1
      if type(label) == "string" and count[label] == 1 then letters[#letters + 1] = label end
    end
  end
  table.sort(letters)
  for k = most, 1, -1 do out[#out + 1] = k end
  for _, label in ipairs(letters) do
    if count[label] == 1 then out[#out + 1] = label end
  end
  return out
end

-- The labels of each operand, and of the result.
local function parse(equation, operands)
  local text = equation:gsub("%s", "")
  local left, right = text:match "^(.-)%->(.*)$"
  left = left or text
  local parts, inputs, most = {}, {}, 0
  for part in (left .. ","):gmatch "([^,]*)," do parts[#parts + 1] = tokens(equation, part) end
  if #parts ~= #operands then refuse(equation, "it has %d operands, %d are given", #parts, #operands) end
  for i, list in ipairs(parts) do
    local hidden = operands[i]:dim() - #list + (has(list, "...") and 1 or 0)
    if hidden < 0 or hidden > 0 and not has(list, "...") then
      refuse(equation, "operand %d has %d dimensions, '%s' names %d", i, operands[i]:dim(), table.concat(list),
        #list - (has(list, "...") and 1 or 0))
    end
    most = math.max(most, hidden)
    inputs[i] = labels_of(list, hidden)
  end
  local output = right and labels_of(tokens(equation, right), most) or implied(inputs, most)
  for i, label in ipairs(output) do
    local known = type(label) == "number"
    for _, labels in ipairs(inputs) do known = known or has(labels, label) end
    if not known then refuse(equation, "no operand has the label '%s' of the result", label) end
    if has(output, label) ~= i then refuse(equation, "the result has the label '%s' twice", label) end
  end
  return inputs, output
end

-- ---------------------------------------------------------------- terms: a tensor and the labels of its dimensions

local function permuted(term, labels)
  local order, same = {}, true
  for i, label in ipairs(labels) do
    order[i] = has(term.labels, label)
    same = same and order[i] == i
  end
  return { x = same and term.x or ops.permute(term.x, order), labels = labels }
end

-- Two dimensions of one label become one: their diagonal.
local function diagonal(term, first, second, equation)
  local n, order, labels = term.x:size(first), {}, {}
  if term.x:size(second) ~= n then
    refuse(equation, "label '%s' is %d and %d in one operand", term.labels[first], n, term.x:size(second))
  end
  for d, label in ipairs(term.labels) do
    if d ~= first and d ~= second then order[#order + 1], labels[#labels + 1] = d, label end
  end
  order[#order + 1], order[#order + 2] = first, second
  labels[#labels + 1] = term.labels[first]
  local flags = {}
  for i = 1, n do
    for j = 1, n do flags[#flags + 1] = i == j and 1 or 0 end
  end
  local on = ops.gt(core.tensor(flags, "f64", { n, n }), 0)
  local x = ops.permute(term.x, order)
  return { x = ops.sum(ops.where(on, x, 0), x:dim()), labels = labels }
end

-- Without the dimensions that `drops(label, size)` names: they are summed over.
local function without(term, drops)
  local dims, labels, ones, shape = {}, {}, true, {}
  for d, label in ipairs(term.labels) do
    if drops(label, term.x:size(d)) then
      dims[#dims + 1] = d
      ones = ones and term.x:size(d) == 1
    else
      labels[#labels + 1], shape[#shape + 1] = label, term.x:size(d)
    end
  end
  if #dims == 0 then return term end
  return { x = ones and ops.reshape(term.x, shape) or ops.sum(term.x, dims), labels = labels }
end

-- Operands with one dimension a label, and the sizes of labels.
local function terms_of(equation, operands, inputs)
  local terms, sizes = {}, {}
  for i, x in ipairs(operands) do
    local term = { x = x, labels = inputs[i] }
    local d = 1
    while d <= #term.labels do
      local first = has(term.labels, term.labels[d])
      if first < d then term, d = diagonal(term, first, d, equation), 1 else d = d + 1 end
    end
    for k, label in ipairs(term.labels) do
      local n, known = term.x:size(k), sizes[label] or 1
      if n ~= known and n ~= 1 and known ~= 1 then
        refuse(equation, "label '%s' is %d in operand %d and %d before it", label, n, i, known)
      end
      if n ~= 1 then sizes[label] = n end
      sizes[label] = sizes[label] or 1
    end
    terms[i] = term
  end
  for i, term in ipairs(terms) do
    terms[i] = without(term, function(label, n) return n == 1 and sizes[label] ~= 1 end)
  end
  return terms, sizes
end

-- ---------------------------------------------------------------- products of two

local function product_of(sizes, labels)
  local n = 1
  for _, label in ipairs(labels) do n = n * sizes[label] end
  return n
end

local function shape_of(sizes, labels)
  local shape = {}
  for i, label in ipairs(labels) do shape[i] = sizes[label] end
  return shape
end

-- The dimensions in both and wanted, in both and summed over, in a alone, in b alone.
local function kinds(a, b, wanted)
  local batch, summed, of_a, of_b = {}, {}, {}, {}
  for _, label in ipairs(a.labels) do
    local list = not has(b.labels, label) and of_a or wanted[label] and batch or summed
    list[#list + 1] = label
  end
  for _, label in ipairs(b.labels) do
    if not has(a.labels, label) then of_b[#of_b + 1] = label end
  end
  return batch, summed, of_a, of_b
end

-- wanted: labels that the result or a later operand has.
local function product(a, b, wanted, sizes)
  local function gone(other)
    return function(label) return not wanted[label] and not has(other.labels, label) end
  end
  a, b = without(a, gone(b)), without(b, gone(a))
  local batch, summed, of_a, of_b = kinds(a, b, wanted)
  local n, labels = product_of(sizes, batch), lists.joined(batch, of_a, of_b)
  local left, right = permuted(a, lists.joined(batch, of_a, summed)).x, permuted(b, lists.joined(batch, summed, of_b)).x
  if #summed == 0 then
    left = ops.reshape(left, { n, product_of(sizes, of_a), 1 })
    right = ops.reshape(right, { n, 1, product_of(sizes, of_b) })
    return { x = ops.reshape(ops.mul(left, right), shape_of(sizes, labels)), labels = labels }
  end
  left = ops.reshape(left, { n, product_of(sizes, of_a), product_of(sizes, summed) })
  right = ops.reshape(right, { n, product_of(sizes, summed), product_of(sizes, of_b) })
  return { x = ops.reshape(ops.matmul(left, right), shape_of(sizes, labels)), labels = labels }
end

-- The labels of the result and of operands from `first` on.
local function wanted_after(output, terms, first)
  local wanted = {}
  for _, label in ipairs(output) do wanted[label] = true end
  for i = first, #terms do
    for _, label in ipairs(terms[i].labels) do wanted[label] = true end
  end
  return wanted
end

--- Adds up products along named dimensions (Einstein's notation).
-- Dimensions of one label are multiplied with each other; those that the result does not name are summed over. A label
-- that one operand has twice takes its diagonal.
-- @param equation the labels of each operand, one letter a dimension, divided by commas; then -> and those of the
--   result. "..." stands for dimensions without letters. Without ->, the result has the labels that occur once, in
--   order of their letters
-- @param tensors the operands, which are multiplied from left to right
-- @return a new tensor
-- @shape "bij,bjk->bik": (b, i, j), (b, j, k) -> (b, i, k)
-- @dtype f32 f64 bf16 f16
-- @gradient tensors
-- @formula y[b, i, k] = sum over j of x_1[b, i, j] x_2[b, j, k]
-- @error a label has two sizes, of which none is 1; the equation does not fit the operands
-- @see ops.matmul, ops.sum
-- @example
--   a, b = gm.tensor { { 1, 2 }, { 3, 4 } }, gm.tensor { { 1, 0 }, { 0, 2 } }
--   ops.einsum("ij,jk->ik", a, b) --> { { 1, 4 }, { 3, 8 } }
--   ops.einsum("ii->i", a) --> { 1, 4 }
return signature.declare("ops.einsum", "equation string, tensors tensor, ...", nil, function(equation, ...)
  local operands = { ... }
  local inputs, output = parse(equation, operands)
  local terms, sizes = terms_of(equation, operands, inputs)
  local term = terms[1]
  for i = 2, #terms do term = product(term, terms[i], wanted_after(output, terms, i + 1), sizes) end
  local wanted = wanted_after(output, terms, #terms + 1)
  term = without(term, function(label) return not wanted[label] end)
  return permuted(term, output).x
end)
