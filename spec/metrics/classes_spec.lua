--- Metrics on 1, 2 and 4 ranks: cut by samples, by classes, in batches of uneven sizes, against formulas in plain Lua
-- over all rows.
-- ranks: 1 2 4
-- luacheck: globals finally
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local metrics = require "ganymede.metrics"
local ranks = require "ganymede.job.ranks"

local world = core.world()
local CLASSES = 5
local ignored = -100 -- the label that does not count
local sizes = { 7, 6, 1, 9 } -- on 4 ranks some hold nothing of a batch

local state = 7
local function random() -- a generator of its own, the same on every rank
  state = (state * 16807) % 2147483647
  return state / 2147483647
end

-- Rows of logits of `width` classes, two of which are often equal, and labels; class 3 is never a label, and class 4
-- neither a label nor an answer.
local function rows_of(width)
  local rows = {}
  for _, size in ipairs(sizes) do
    for _ = 1, size do
      local row = {}
      for k = 1, width do row[k] = math.floor(random() * 40) / 8 - 2 end
      if row[5] then row[5] = row[5] - 50 end
      local label = math.floor(random() * width)
      rows[#rows + 1] = { logits = row, label = label >= 3 and ignored or label }
    end
  end
  return rows
end

local function layout_of(cut)
  if world == 1 then return { cuts = {} } end
  return cut == "rows" and { cuts = { { "data" } } } or { cuts = { {}, { "data" } } }
end

-- Feeds metrics with batches of rows; cut: rows or classes.
local function feed(list, rows, cut, as_label)
  gm.context.load_config {}
  gm.scope(function()
    local at = 0
    for _, size in ipairs(sizes) do
      local logits, labels = {}, {}
      for i = 1, size do
        logits[i], labels[i] = rows[at + i].logits, (as_label or function(r) return r.label end)(rows[at + i])
      end
      at = at + size
      local x = core.redistribute(gm.tensor(logits, { dtype = "f64" }), layout_of(cut))
      local float = type(labels[1]) == "table" or as_label
      local y = gm.tensor(labels, { dtype = float and "f64" or "i64" })
      if cut == "rows" then y = core.redistribute(y, layout_of "rows") end
      for _, metric in ipairs(list) do metric:update(x, y) end
    end
  end)
end

local function best(row)
  local at = 1
  for k, v in ipairs(row) do at = v > row[at] and k or at end
  return at - 1
end

-- Right answers, answers and labels of each class.
local function counts_of(rows, answer)
  local hits, said, right = {}, {}, {}
  for k = 0, CLASSES - 1 do hits[k], said[k], right[k] = 0, 0, 0 end
  for _, row in ipairs(rows) do
    if row.label ~= ignored then
      local a = answer(row)
      said[a], right[row.label] = said[a] + 1, right[row.label] + 1
      if a == row.label then hits[a] = hits[a] + 1 end
    end
  end
  return hits, said, right
end

local quotients = {
  Precision = function(h, s, _) return s > 0 and h / s or 0 end,
  Recall = function(h, _, r) return r > 0 and h / r or 0 end,
  F1 = function(h, s, r) return s + r > 0 and 2 * h / (s + r) or 0 end,
  IoU = function(h, s, r) return s + r - h > 0 and h / (s + r - h) or 0 end,
}

local function each_class(fn, rows)
  local hits, said, right = counts_of(rows, function(r) return best(r.logits) end)
  local list, macro, classes, weighted, all, H, S = {}, 0, 0, 0, 0, 0, 0
  for k = 0, CLASSES - 1 do
    local v = fn(hits[k], said[k], right[k])
    list[k + 1] = v
    if said[k] + right[k] > 0 then macro, classes = macro + v, classes + 1 end
    weighted, all = weighted + v * right[k], all + right[k]
    H, S = H + hits[k], S + said[k]
  end
  return { none = list, macro = macro / classes, weighted = weighted / all, micro = fn(H, S, all) }
end

-- The share of pairs of a 1 and a 0 in which the 1 has the larger score; equal ones count one half.
local function area(scores)
  local right, all = 0, 0
  for _, a in ipairs(scores) do
    for _, b in ipairs(scores) do
      if a.is == 1 and b.is == 0 then
        all = all + 1
        right = right + (a.score > b.score and 1 or a.score == b.score and 0.5 or 0)
      end
    end
  end
  return right / all
end

describe("metrics", function()
  for turn, cut in ipairs { "rows", "classes", "rows", "classes" } do
    local value = turn <= 2 and -100 or 3 -- 3 is an answer, too
    it(("of classes equal the formulas over all rows, cut by %s, %d ignored"):format(cut, value), function()
      finally(function() ignored = -100 end)
      ignored = value
      local rows = rows_of(CLASSES)
      local function made(name, opt)
        opt.ignore_index = value
        return metrics[name](opt)
      end
      local accuracy, top, perplexity = made("Accuracy", {}), made("TopK", { k = 2 }), made("Perplexity", {})
      local matrix, list = made("ConfusionMatrix", {}), {}
      for name in pairs(quotients) do
        for _, average in ipairs { "macro", "micro", "weighted", "none" } do
          list[#list + 1] = made(name, { average = average, name = name .. " " .. average })
        end
      end
      table.sort(list, function(a, b) return a.name < b.name end)
      feed({ accuracy, top, perplexity, matrix, unpack(list) }, rows, cut)
      local hits, among, count, nats, pairs_of = 0, 0, 0, 0, {}
      for k = 1, CLASSES do pairs_of[k] = { 0, 0, 0, 0, 0 } end
      for _, row in ipairs(rows) do
        if row.label ~= ignored then
          local own, larger, sum = row.logits[row.label + 1], 0, 0
          for k, v in ipairs(row.logits) do
            if v > own or v == own and k < row.label + 1 then larger = larger + 1 end
            sum = sum + math.exp(v)
          end
          hits, among = hits + (larger == 0 and 1 or 0), among + (larger < 2 and 1 or 0)
          count, nats = count + 1, nats + math.log(sum) - own
          local said = best(row.logits) + 1
          pairs_of[row.label + 1][said] = pairs_of[row.label + 1][said] + 1
        end
      end
      assert.is_true(count < #rows and hits > 0 and among > hits)
      local values = metrics.values { accuracy, top, perplexity, matrix }
      assert.equal(hits / count, values[1])
      assert.equal(among / count, values[2])
      assert.near(math.exp(nats / count), values[3], 1e-12 * values[3])
      assert.same(pairs_of, values[4])
      for _, metric in ipairs(list) do
        local want = each_class(quotients[metric.class_name], rows)[metric.opt.average]
        local got = metric:value()
        if type(want) == "number" then assert.near(want, got, 1e-14, metric.name) else assert.same(want, got) end
      end
    end)
  end

  it("know the area under the curve, exactly and by bins", function()
    local rows, scores, widest = rows_of(1), {}, 0
    for i, row in ipairs(rows) do
      row.label = (row.logits[1] + random() * 4 > 2) and 1 or 0
      scores[i] = { score = row.logits[1], is = row.label }
    end
    local exact, coarse, fine = metrics.AUC(), metrics.AUC { bins = 8, name = "8" }, metrics.AUC { bins = 4096 }
    feed({ exact, coarse, fine }, rows, "rows", function(row) return row.label end)
    local want = area(scores)
    assert.is_true(want > 0.6 and want < 1)
    assert.near(want, exact:value(), 1e-15)
    assert.near(want, fine:value(), 1e-15) -- all different scores lie in bins of their own
    assert.is_true(coarse:value() ~= want)
    for _, s in ipairs(scores) do -- by the definition of the bound
      for _, t in ipairs(scores) do
        local function bin(v) return math.floor(8 / (1 + math.exp(-v))) end
        if s.is == 1 and t.is == 0 and bin(s.score) == bin(t.score) then widest = widest + 1 end
      end
    end
    local ones = 0
    for _, s in ipairs(scores) do ones = ones + s.is end
    assert.near(widest / 2 / (ones * (#scores - ones)), coarse:error_bound(), 1e-15)
    assert.is_true(math.abs(coarse:value() - want) <= coarse:error_bound())
    assert.equal(0, exact:error_bound())
  end)

  it("of scores that are NaN are NaN, not the area of some order of the samples", function()
    local rows = rows_of(1)
    for i, row in ipairs(rows) do
      row.label = i > 10 and 1 or 0 -- class by class, as a folder lists them
      row.logits[1] = 0 / 0
    end
    local exact, binned = metrics.AUC(), metrics.AUC { bins = 8 }
    local other, others = metrics.AUC { ignore_index = 0 }, metrics.AUC { ignore_index = 0, bins = 8 }
    feed({ exact, binned, other, others }, rows, "rows", function(row) return row.label end)
    for _, metric in ipairs { exact, binned, other, others } do
      local value = metric:value()
      assert.is_true(value ~= nil and value ~= value)
    end
    for i, row in ipairs(rows) do row.logits[1] = row.label == 0 and 0 / 0 or i end
    other = metrics.AUC { ignore_index = 0 }
    feed({ other }, rows, "rows", function(row) return row.label end)
    assert.is_nil(other:value()) -- of one class there is no area; samples that are ignored make nothing NaN
  end)

  it("take of labels that are probabilities the largest: TopK as Accuracy", function()
    local rows, right = rows_of(3), 0
    local top = metrics.TopK { k = 1 }
    for _, row in ipairs(rows) do
      row.logits[2] = row.logits[2] + 1 / 16 -- no two are equal
      row.shares = { random(), random(), random() }
      right = right + (best(row.logits) == best(row.shares) and 1 or 0)
    end
    feed({ top }, rows, "rows", function(row) return row.shares end)
    assert.equal(right / #rows, top:value())
    local function alone(row) return { row.label } end
    assert.error_matches(function() feed({ metrics.TopK { k = 1 } }, rows, "rows", alone) end,
      "TopK: labels %(7, 1%) do not fit outputs %(7, 3%)")
  end)

  it("order samples by the log-odds of a class", function()
    local rows, scores = rows_of(3), {}
    for i, row in ipairs(rows) do
      row.label = row.label == ignored and 0 or row.label
      local a, b, c = unpack(row.logits)
      scores[i] = { score = b - math.log(math.exp(a) + math.exp(c)), is = row.label == 1 and 1 or 0 }
    end
    local auc = metrics.AUC { class = 1 }
    feed({ auc }, rows, "rows")
    assert.near(area(scores), auc:value(), 1e-15)
    assert.error_matches(function() feed({ metrics.AUC() }, rows, "rows") end, "3 classes; give the option class")
  end)

  it("take one logit for two classes, probabilities, and questions of their own", function()
    local rows, right, pair = rows_of(1), 0, 0
    for _, row in ipairs(rows) do
      row.label = random() > 0.5 and 1 or 0
      local yes = row.logits[1] > math.log(0.7 / 0.3) and 1 or 0
      right, pair = right + (yes == row.label and 1 or 0), pair + (yes * row.label)
    end
    local accuracy, recall = metrics.Accuracy { threshold = 0.7 }, metrics.Recall { threshold = 0.7, average = "none" }
    feed({ accuracy, recall }, rows, "rows")
    assert.equal(right / #rows, accuracy:value())
    local ones = 0
    for _, row in ipairs(rows) do ones = ones + row.label end
    assert.equal(pair / ones, recall:value()[2])

    rows = rows_of(3)
    local soft, many, all = 0, 0, 0
    for _, row in ipairs(rows) do
      row.shares = { random(), random(), random() }
      soft = soft + (best(row.shares) == best(row.logits) and 1 or 0)
    end
    accuracy = metrics.Accuracy()
    feed({ accuracy }, rows, "rows", function(row) return row.shares end)
    assert.equal(soft / #rows, accuracy:value())
    for _, row in ipairs(rows) do
      for k = 1, 3 do
        row.shares[k] = row.shares[k] > 0.4 and 1 or 0
        many, all = many + ((row.logits[k] > 0) == (row.shares[k] == 1) and 1 or 0), all + 1
      end
    end
    local each = metrics.Accuracy { multilabel = true }
    feed({ each }, rows, "rows", function(row) return row.shares end)
    assert.equal(many / all, each:value())
  end)

  it("look along another dimension, as segmentation needs it", function()
    gm.context.load_config {}
    gm.scope(function()
      local x = gm.normal({ 6, 3, 2, 2 }, { seed = 4 })
      local y = gm.tensor({ 0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 0, 0, 1, 1, 2, 2, 0, 1, 2, 1, 0, 0, 1, 2 },
        { dtype = "i64", shape = { 6, 2, 2 } })
      local hits, said, right = { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }
      local logits, labels = x:totable(), y:totable()
      for b = 1, 6 do
        for i = 1, 2 do
          for j = 1, 2 do
            local row = { logits[b][1][i][j], logits[b][2][i][j], logits[b][3][i][j] }
            local answer, label = best(row) + 1, labels[b][i][j] + 1
            said[answer], right[label] = said[answer] + 1, right[label] + 1
            if answer == label then hits[label] = hits[label] + 1 end
          end
        end
      end
      local want = 0
      for k = 1, 3 do want = want + hits[k] / (said[k] + right[k] - hits[k]) / 3 end
      local iou, matrix = metrics.IoU { dim = 2 }, metrics.ConfusionMatrix { dim = 2 }
      local cut = layout_of "rows"
      iou:update(core.redistribute(x, cut), core.redistribute(y, cut))
      matrix:update(core.redistribute(x, cut), core.redistribute(y, cut))
      assert.near(want, iou:value(), 1e-15)
      local table_of = matrix:value()
      for k = 1, 3 do assert.equal(hits[k], table_of[k][k]) end
    end)
  end)

  -- As in 2D beside data: the loader cuts labels by data, the head's outputs are cut by the rows of the mode, too.
  it("count pairs of answers and labels that are cut in different ways", function()
    if world == 1 then return end
    gm.context.load_config {}
    core.set_mesh(world == 4 and { { "data", 2 }, { "row", 2 } } or { { "row", world } })
    finally(function() gm.context.load_config {} end)
    local matrix, want = metrics.ConfusionMatrix(), {}
    for k = 1, CLASSES do want[k] = { 0, 0, 0, 0, 0 } end
    gm.scope(function()
      local logits, labels = {}, {}
      for i, row in ipairs(rows_of(CLASSES)) do
        logits[i], labels[i] = row.logits, row.label
        if row.label ~= ignored then
          want[row.label + 1][best(row.logits) + 1] = want[row.label + 1][best(row.logits) + 1] + 1
        end
      end
      matrix:update(core.redistribute(gm.tensor(logits, { dtype = "f64" }), { cuts = { "data.row" } }),
        core.redistribute(gm.tensor(labels, { dtype = "i64" }), { cuts = { "data" } }))
    end)
    assert.same(want, matrix:value())
  end)

  it("go on from their state, and begin anew", function()
    local rows = rows_of(CLASSES)
    local function made()
      return { metrics.Accuracy(), metrics.AUC { class = 1 }, metrics.AUC { class = 1, bins = 50 } }
    end
    local whole, first = made(), made()
    feed(whole, rows, "rows")
    feed(whole, rows, "rows")
    feed(first, rows, "rows")
    local second = made()
    for i, metric in ipairs(first) do second[i]:load_state(metric:state()) end
    feed(second, rows, "rows")
    for i, metric in ipairs(second) do
      assert.is_number(metric:value())
      assert.equal(whole[i]:value(), metric:value())
      metric:reset()
      assert.is_nil(metric:value())
    end
  end)

  it("of a class of one's own are right on any ranks", function()
    local Spread = metrics.class("SpecSpread" .. core.world(), { power = { type = "integer", min = 1, default = 2 } }, {
      key = "spread", terms = { "sums", "count" },
      measure = function(self, output, label)
        return { sums = (output ^ self.opt.power):sum(1), count = label:size(1) }
      end,
      compute = function(_, totals)
        local s = 0
        for _, v in ipairs(totals.sums) do s = s + v / totals.count[1] end
        return s
      end,
    })
    local rows, want = rows_of(CLASSES), 0
    for _, row in ipairs(rows) do
      for _, v in ipairs(row.logits) do want = want + v ^ 2 / #rows end
    end
    for _, cut in ipairs { "rows", "classes" } do
      local metric = Spread()
      feed({ metric }, rows, cut)
      assert.near(want, metric:value(), 1e-12 * want)
    end
    local all = ranks.texts(tostring(want))
    assert.equal(all[1], all[#all])
  end)

  it("refuse labels that are no class, but for those that are left out", function()
    gm.context.load_config {}
    local x, from = gm.zeros { 5, 3 }, function(list, dtype) return gm.tensor(list, { dtype = dtype or "i64" }) end
    for _, class in ipairs { "Accuracy", "TopK", "Precision", "F1", "IoU", "ConfusionMatrix" } do
      local function value(labels, opt)
        opt = opt or {}
        if class == "TopK" then opt.k = 1 end
        local metric = metrics[class](opt)
        metric:update(x, labels)
        return metric:value()
      end
      assert.error_matches(function() value(from { 0, 3, 2, -1, -100 }) end, class .. ": 2 labels are no class", nil,
        class)
      assert.error_matches(function() value(from { 0, 1, 2, 0, 7 }) end, class .. ": 1 label is no class", nil, class)
      assert.error_matches(function() value(from({ 0, 0.5, 2, 0, 1 }, "f32")) end, "1 label is no class", nil, class)
      assert.is_truthy(value(from { 0, 7, 2, 1, 7 }, { ignore_index = 7 }), class)
      assert.is_truthy(value(from { 0, 1, 2, -100, 0 }), class)
    end
    local accuracy = metrics.Accuracy() -- one logit: two classes
    accuracy:update(gm.zeros { 2, 1 }, from { 1, 2 })
    assert.error_matches(function() accuracy:value() end, "1 label is no class")
    assert.error_matches(function() accuracy:value() end, "1 label is no class") -- and is not forgotten
  end)

  it("refuse what does not fit", function()
    gm.context.load_config {}
    local x, y = gm.zeros { 2, 3 }, gm.tensor({ 0, 1, 2 }, { dtype = "i64" })
    assert.error_matches(function() metrics.Accuracy():update(x, y) end, "labels %(3%) do not fit outputs %(2, 3%)")
    assert.error_matches(function() metrics.TopK { k = 4 }:update(x, gm.zeros({ 2 }, { dtype = "i64" })) end,
      "k is 4, and outputs have 3 classes")
    assert.error_matches(function() metrics.Accuracy { threshold = 1 } end, "'threshold' must be")
    assert.error_matches(function() metrics.F1 { average = "mean" } end, "average")
    local f1 = metrics.F1 { average = "binary" }
    f1:update(x, gm.zeros({ 2 }, { dtype = "i64" }))
    assert.error_matches(function() f1:value() end, "for 2 classes; there are 3")
    assert.error_matches(function() metrics.class("SpecEmpty", {}, { key = "x" }) end, "no 'measure'")
    local bad = metrics.class("SpecBad" .. core.world(), {}, { key = "bad", terms = { "n" },
      measure = function() return {} end, compute = function() return 1 end })
    assert.error_matches(function() bad():update(x, y) end, "a number or a tensor 'n'; got nil")
  end)
end)
