--- Pictures of pipeline schedules: text by hand, SVG that is sound, and those of docs/ as they are drawn now.
local draw = require "ganymede.schedules.draw"
local pictures = require "spec.pipeline.pictures"
local pipeline = require "ganymede.schedules.pipeline"
local report = require "ganymede.schedules.report"
local svg = require "ganymede.schedules.draw_svg"

local function build(name, p, m, v) return pipeline.build(name, { stages = p, micro_batches = m, chunks = v }, 0) end

local function lines(...) return table.concat({ ... }, "\n") end

describe("a schedule as text", function()
  it("is drawn as the papers do", function()
    assert.equal(lines(
      "1f1b, 3 stages, 4 micro-batches: bubble 50 % of the ideal time; micro-batches held, by rank: 3 2 1",
      "rank 0 | F1 F2 F3             B1--- F4 B2---    B3---    B4---",
      "rank 1 |    F1 F2       B1--- F3 B2--- F4 B3---    B4---",
      "rank 2 |       F1 B1--- F2 B2--- F3 B3--- F4 B4---"), draw.text(build("1f1b", 3, 4)))
    assert.equal(lines(
      "zb-h2, 2 stages, 3 micro-batches: bubble 0 % of the ideal time (11.11 % where steps end at a barrier); "
        .. "micro-batches held, by rank: 3 3",
      "rank 0 | F1 F2 F3 B1 W1 B2 W2 B3 W3",
      "rank 1 |    F1 B1 F2 B2 F3 B3 W1 W2 W3"), draw.text(build("zb-h2", 2, 3)))
    assert.equal(lines(
      "zb-v, 1 stage, 1 micro-batch, 2 chunks a stage: bubble 0 % of the ideal time; micro-batches held, by rank: 1",
      "rank 0 | F1a F1b B1b W1b B1a W1a"), draw.text(build("zb-v", 1, 1)))
  end)

  it("shows costs as lengths and transfers as gaps", function()
    local schedule = build("1f1b", 2, 1)
    local s = pipeline.simulate(schedule, { forward = 2, backward_input = 1, backward_weight = 1, transfer = 4 })
    assert.equal(lines(
      "1f1b, 2 stages, 1 micro-batch: bubble 300 % of the ideal time; micro-batches held, by rank: 1 1",
      "rank 0 | F1                   B1",
      "rank 1 |          F1 B1"), draw.text(schedule, s))
  end)

  it("keeps to a width", function()
    for line in draw.text(build("zb-v", 4, 16), nil, 100):gmatch "[^\n]*rank %d |[^\n]*" do
      assert.is_true(#line <= 100)
      assert.matches(" %.%.%.$", line)
    end
  end)
end)

describe("a schedule as SVG", function()
  -- Blocks by row: { x, width, tooltip }
  local function blocks(text)
    local rows = {}
    local block = '<rect x="([%d.]+)" y="([%d.]+)" width="([%d.]+)"[^>]*><title>([^<]*)</title>'
    for x, y, width, tip in text:gmatch(block) do
      rows[y] = rows[y] or {}
      table.insert(rows[y], { tonumber(x), tonumber(width), tip })
    end
    return rows
  end

  local function balanced(text)
    local open = {}
    for close, name, empty in text:gmatch "<(/?)(%a+)[^>]-(/?)>" do
      if close == "/" then
        assert.equal(table.remove(open), name)
      elseif empty ~= "/" then
        open[#open + 1] = name
      end
    end
    assert.equal(0, #open)
    assert.is_nil(text:gsub("&%a+;", ""):find "&")
  end

  it("has a block for each action, none over another, as long as the action takes", function()
    for _, case in ipairs { { "1f1b", 4, 8 }, { "interleaved", 3, 6, 3 }, { "zb-v", 4, 8 } } do
      local schedule = build(unpack(case))
      local text, count, rows = svg(schedule), 0, 0
      balanced(text)
      for _, row in pairs(blocks(text)) do
        rows = rows + 1
        for i, block in ipairs(row) do
          local from, to = block[3]:match "(%S+) to (%S+)$"
          assert.is_true(math.abs(block[2] - 22 * (to - from)) < 0.02, block[3])
          assert.is_true(i == 1 or row[i - 1][1] + row[i - 1][2] <= block[1] + 0.02, block[3])
          count = count + 1
        end
      end
      local computing = 0
      for _, actions in ipairs(schedule.actions) do
        for _, a in ipairs(actions) do computing = computing + (a[1] ~= "send" and a[1] ~= "receive" and 1 or 0) end
      end
      assert.same({ schedule.stages, computing }, { rows, count })
    end
  end)

  it("has a title, a legend of what is there, an axis, and names that are escaped", function()
    local order = require "ganymede.schedules.zb_v".order
    local schedule = pipeline.build({ name = "a<b> & \"c\"", order = order, chunks = { min = 2, max = 2 } },
      { stages = 2, micro_batches = 4 })
    local text = svg(schedule)
    balanced(text)
    assert.matches("a&lt;b&gt; &amp; &quot;c&quot;, 2 stages, 4 micro%-batches, 2 chunks a stage: bubble 0 %%", text)
    for _, word in ipairs { "forward", "backward, gradient of the input", "backward, gradients of the weights", "idle",
      "chunk 1", "chunk 2", "rank 0", "rank 1", "time", "0", "5", "20" } do
      assert.is_truthy(text:find(">" .. word .. "</text>", 1, true), word)
    end
    assert.is_nil(text:find(">backward</text>", 1, true))
    assert.is_nil(svg(build("1f1b", 2, 2)):find("chunk 1</text>", 1, true))
  end)

  it("is what docs/pictures shows (ganymede run spec/pipeline/schedules.lua --set pictures=true)", function()
    assert.equal(5, #pictures)
    for _, picture in ipairs(pictures) do
      local file = assert(io.open(GANYMEDE_ROOT .. "/" .. picture.path))
      local text = file:read "*a"
      file:close()
      assert.is_true(text == picture.draw(), picture.path .. " is not what is drawn now")
    end
  end)
end)

describe("a report of schedules", function()
  it("compares them, and says which cannot be", function()
    local found = report { schedules = { "1f1b", "interleaved", "zb-v" }, stages = 4, micro_batches = 9, chunks = 2 }
    assert.same({ "1f1b", 1 / 3, 1 / 3, 4, 18 }, { found[1].name, found[1].bubble, found[1].bubble_with_barrier,
      found[1].live, found[1].messages })
    assert.matches("^interleaved: 9 micro%-batches do not divide", found[2].refused)
    assert.same({ 0, 36 }, { found[3].bubble, found[3].messages })
    assert.matches("\n1f1b +1 +33.33 %% +33.33 %% +4 +18\ninterleaved +interleaved: 9 micro", found.text)
    assert.matches("\nzb%-v +2 +0 %% +5.556 %% +4 +36\n", found.text)
  end)

  it("takes costs", function()
    local found = report { schedules = { "gpipe" }, stages = 3, micro_batches = 4,
      costs = { forward = 2, transfer = 1 } }
    assert.same({ (2 * 4 + 4) / 16 }, { found[1].bubble }) -- 2 (F + B + W) and four transfers
    assert.error_matches(function() report { schedules = { "gpipe" }, stages = 3 } end, "'micro_batches' is missing")
  end)
end)
