-- Norms, cross entropy, embedding and argmax of rows that are cut along the dimension worked along, as Lua calls them.
-- ranks: 4
--
-- spec/unit/sharded_rows_test.c has every size, option and edge; here is what users' models do with them: a language
-- model whose table, tied to its classifier, is cut by vocabulary, on a mesh of data 2 and tensor 2.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local any = both.source(700)

local function places(values) return gm.tensor(values, { dtype = "i64" }) end

local vocabulary, width = 11, 6 -- 11: blocks of 6 and 5
local rows, words, columns = { cuts = { { "data" } } }, { cuts = { { "tensor" } } }, { cuts = { { "tensor" } } }
local features = { cuts = { { "data" }, {}, { "tensor" } } }

-- Token ids (5, 4) -> logits (5, 4, vocabulary), both cut where they can be.
local function logits_of(table, ids, scale, shift, classifier)
  local x = core.redistribute(ops.embedding(table, ids, 3), features)
  local y, sum = ops.add_layer_norm(x, x * 0.5, scale, shift, 1e-5)
  local z = ops.rms_norm(y + sum, scale, 1e-6)
  return ops.linear(core.redistribute(z, rows), classifier)
end

describe("rows that are cut along the dimension worked along:", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", 2 }, { "tensor", 2 }) end)

  local function inputs()
    local ids, targets = {}, {}
    for i = 1, 5 do
      ids[i], targets[i] = {}, {}
      for j = 1, 4 do
        ids[i][j] = (4 * i + j) % vocabulary
        targets[i][j] = (i == 2 and j < 3) and -100 or (7 * i + 3 * j) % vocabulary
      end
    end
    return { any(vocabulary, width), places(ids), any(width), any(width), places(targets) }
  end
  local cuts = { words, rows, columns, columns, rows }

  it("a tied, vocabulary-parallel language model gives the losses and gradients of a serial one", function()
    both.agree {
      inputs = inputs(), cuts = cuts, expect = "data,-",
      fn = function(table, ids, scale, shift, targets)
        local logits = logits_of(table, ids, scale, shift, table)
        return ops.cross_entropy(logits, targets, { label_smoothing = 0.1 }),
          ops.cross_entropy(logits, targets, { ignore_index = -100 })
      end,
    }
  end)

  it("the best class is found without gathering the logits", function()
    both.agree {
      inputs = inputs(), cuts = cuts, expect = "data,-", gradients = false, exact = true,
      fn = function(table, ids, scale, shift)
        return ops.argmax(logits_of(table, ids, scale, shift, table))
      end,
    }
  end)

  it("the largest logit and its class, too; one whose gradient is wanted is refused", function()
    local fn = function(table, ids, scale, shift)
      return ops.max(logits_of(table, ids, scale, shift, table):detach(), -1)
    end
    both.agree { inputs = inputs(), cuts = cuts, expect = "data,-", gradients = false, exact = true, fn = fn }
    gm.scope(function()
      local logits = both.place(any(8, 4, 1000), features)
      core.comm_reset_traffic()
      local _, index = ops.max(logits, -1)
      local bytes = 0
      for _, entry in ipairs(core.comm_traffic()) do bytes = bytes + entry.bytes end
      assert.is_true(bytes > 0 and bytes <= 2 * 2 * 8 * 8 * 4, bytes) -- an f64 for each row, and again for its place
      assert.same(ops.argmax(logits):totable(), index:totable())
      assert.error_matches(function() ops.max(logits:requires_grad(true), -1) end, "max: the dimension that is reduced")
    end)
  end)

  it("names the op, its operands and their layouts where it cannot be, also for weights that are still sums", function()
    local function refused(op, pattern, partial, ...)
      local w = gm.ones({ 2 }):redistribute { cuts = { {} }, partial = partial }
      local x = gm.ones { 4, 2 }
      local ok, why = pcall(ops[op], x, op:find "add_" and x or w:detach(), op:find "add_" and w:detach() or ...)
      assert.is_false(ok, op)
      assert.matches("^.-" .. op .. ": " .. pattern, why)
      assert.matches("f%d%d %(2%) cut %(%-%) partial tensor; redistribute one of them", why)
    end
    for _, op in ipairs { "layer_norm", "add_layer_norm", "rms_norm", "add_rms_norm" } do
      refused(op, "an operand is still a sum over ranks, and the op is not linear in it", { "tensor" })
    end
    -- wherever they lie, no message is of layouts alone
    local bad = gm.ones({ 4, 2 }):redistribute { cuts = { { "tensor" } } }:detach()
    local other = gm.ones({ 4, 2 }):redistribute { cuts = { {}, { "tensor" } } }:detach()
    local ok, why = pcall(ops.add_layer_norm, bad, other)
    assert.is_false(ok)
    assert.matches("add_layer_norm: an axis would cut two dimensions.*f%d%d %(4, 2%) cut %(tensor, %-%)", why)
  end)

  it("sends a few numbers a row and never the rows", function()
    gm.scope(function()
      local logits = both.place(any(8, 4, 1000), features)
      local targets = both.place(places { { 1, 2, 3, 999 }, { 1, 2, 3, 4 }, { 1, 2, 3, 4 }, { 1, 2, 3, 4 },
        { 1, 2, 3, 4 }, { 1, 2, 3, 4 }, { 1, 2, 3, 4 }, { 500, 499, 3, 4 } }, rows)
      logits:requires_grad(true)
      core.comm_reset_traffic()
      ops.cross_entropy(logits, targets):sum():backward()
      local bytes = 0
      for _, entry in ipairs(core.comm_traffic()) do bytes = bytes + entry.bytes end
      local of_rows, p = 8 / 2 * 4, 2 -- rows of a block, members of the group along tensor
      assert.equal(3 * 2 * (p - 1) / p * of_rows * 8, bytes) -- largest; sum of exponentials and the target's logit
    end)
  end)
end)
