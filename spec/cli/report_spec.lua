-- ganymede report: the page has the numbers of the runs' files, needs nothing else, and says what is missing.
local chart = require "ganymede.observe.report.chart"
local machine = require "ganymede.base.machine"
local support = require "spec.cli.support"
local shell = support.shell

-- Raises unless every element of the page is closed where it should be.
local function check_tags(html)
  local open, void = {}, { meta = true, ["!doctype"] = true }
  for slash, name, closed in html:gsub("<style>.-</style>", ""):gmatch "<(/?)([!%w]+)[^>]-(/?)>" do
    if slash == "/" then
      assert.equal(table.remove(open), name)
    elseif closed == "" and not void[name] then
      open[#open + 1] = name
    end
  end
  assert.same({}, open)
end

-- The texts of the cells of a section's tables, row by row.
local function rows_of(html, section)
  local text = html:match('<section id="' .. section .. '">(.-)</section>')
  local rows = {}
  for row in text:gmatch "<tr>(.-)</tr>" do
    local cells = {}
    for cell in row:gmatch "<t[hd][^>]*>(.-)</t[hd]>" do cells[#cells + 1] = cell end
    rows[#rows + 1] = cells
  end
  return rows, text
end

describe("ganymede report", function()
  local home, html
  setup(function()
    home = support.home()
    for _, words in ipairs {
      { "--out", "one", "-n", "2", "--trace", "trace.json", "--set", "epochs=2" },
      { "--out", "two", "--set", "optimizer.lr=0.003", "--set", "epochs=2", "--profile", "ops.json" },
    } do
      local result = support.run(home, { "run", "recipe.lua", unpack(words) })
      assert.equal(0, result.code, result.err)
    end
    local result = support.run(home, { "report", "one", "two/" })
    assert.equal(0, result.code, result.err)
    assert.matches("^report.html: 2 runs, ", result.out)
    html = shell.read(home .. "/report.html")
  end)
  teardown(function() shell.remove(home) end)

  it("is whole, and asks for nothing from elsewhere", function()
    check_tags(html)
    for _, word in ipairs { "http", "src=", "href", "url%(", "@import", "<script" } do
      assert.is_nil(html:find(word), word)
    end
  end)

  it("shows what statistics say of each run", function()
    local one, two = support.json(home .. "/one/stats.json"), support.json(home .. "/two/stats.json")
    local rows = rows_of(html, "overview")
    for i, stats in ipairs { one, two } do
      local row = rows[i + 1]
      assert.same({ ({ "one", "two" })[i], "done", "32", ("%.6g"):format(stats.loss[32]),
        ("%.6g"):format(stats.metrics.test.loss) }, { unpack(row, 1, 5) })
      assert.equal(("%.6g"):format(stats.samples_per_second), row[7])
    end
    local memory = rows_of(html, "memory")
    assert.equal(5, #memory) -- two heads, ranks 0 and 1 of one, rank 0 of two
    assert.same({ "rank 1", machine.bytes(one.ranks[2].parameter_bytes) }, { memory[3][1], memory[3][2] })
    assert.equal(machine.bytes(two.ranks[1].peak_bytes), memory[5][6])
    local sent = 0
    for _, rank in ipairs(one.ranks) do
      for _, e in ipairs(rank.comm) do
        if e.axes[1] == "data" and e.op == "all_reduce" then sent = sent + e.bytes_logical end
      end
    end
    local found
    for _, row in ipairs(rows_of(html, "communication")) do
      if row[1] == "data" and row[2] == "all_reduce" then found = row[4] end
    end
    assert(sent > 0)
    assert.equal(machine.bytes(sent), found)
    assert.matches("one rank: nothing was sent", html)
  end)

  it("shows settings that differ, and no others", function()
    local _, text = rows_of(html, "settings")
    local head = text:match "^(.-)<details"
    assert.matches("<td>optimizer.lr</td><td>0.01</td><td>0.003</td>", head)
    assert.equal(1, select(2, head:gsub("<tr><td", "")))
    assert.matches("<td>data.batch_size</td><td>32</td>", text)
  end)

  it("shows modules as check does", function()
    local result = support.run(home, { "check", "recipe.lua", "-n", "2", "--json" })
    local modules = require("ganymede.base.json").decode(result.out, "check").modules
    local rows = rows_of(html, "modules")
    for i, row in ipairs(modules) do
      assert.same({ row.path == "" and "(loss and update)" or row.path, row.class or "",
        machine.bytes(row.parameter_bytes) }, { unpack(rows[i + 1], 1, 3) })
    end
  end)

  it("sums a trace by rank, and shows the first ops of a profile", function()
    local sum = 0
    for _, e in ipairs(support.json(home .. "/trace.json")) do
      if e.ph == "X" and e.pid == 1 and e.name == "forward" then sum = sum + e.dur end
    end
    local rows = rows_of(html, "trace")
    local column
    for i, name in ipairs(rows[1]) do
      if name == "phase forward, ms" then column = i end
    end
    assert(sum > 0 and column)
    assert.equal("1", rows[3][1])
    assert.equal(("%.6g"):format(sum / 1e3), rows[3][column])
    assert.equal(support.json(home .. "/ops.json").lines[1].op, rows_of(html, "profile")[2][1])
  end)

  it("says what is missing, and how to have it", function()
    local rows = rows_of(html, "missing")
    assert.same({ "one", "profile", "the run has none; ganymede run ... --profile profile.json makes one" }, rows[2])
    assert.equal("trace", rows[3][2])
    shell.run(("cd %s && mkdir bare && cp two/metrics.jsonl bare && echo '{' >bare/env.json"):format(home))
    local result = support.run(home, { "report", "bare", "--out", "bare.html" })
    assert.equal(0, result.code, result.err)
    local page = shell.read(home .. "/bare.html")
    check_tags(page)
    local said = {}
    for _, row in ipairs(rows_of(page, "missing")) do said[row[2]] = row[3] end
    assert.matches("bare/stats.json is not there; a run writes it at its end", said.stats)
    assert.matches("bare/env.json:", said.env)
    assert.matches("config.lua is not there", said.settings)
    assert.matches("no rehearsal was made", said.modules)
    assert.matches("<path class=\"curve s1\"", page)
  end)

  it("executes nothing of a folder, and shows its texts as texts", function()
    shell.run(("cd %s && mkdir '<b>' && cp two/metrics.jsonl '<b>'"):format(home))
    shell.write(home .. "/<b>/config.lua", "return { name = '<script>x</script>', n = os.execute 'touch ran' }\n")
    shell.write(home .. "/<b>/requests.jsonl", [[
{"step":7,"time":"2026-11-25T01:02:03Z","kind":"line","line":"f '<b>'","ranks":[0,2],"said":"<b>1</b>"}
{"step":8,"kind":"checkpoint","failed":true,"said":"the disk is full","time":{}}
{"step":9,"kind":"line","li
]])
    shell.write(home .. "/<b>/events.jsonl", [[
{"step":4,"time":"2026-11-25T01:02:03Z","event":"checkpoint","seconds":0.25,"background":true}
{"step":6,"event":"resize","seconds":0.125,"before":2,"ranks":3,"built":1.5}
{"step":8,"event":"checkpoint","seconds":0.5,"failed":"<b>no room"}
{"step":8,"event":"restart","seconds":2,"ranks":3,"why":"rank 0: <b>"}
{"step":9,"event":{},"seconds":[1]}
]])
    local result = support.run(home, { "report", "<b>", "--no-rehearsal", "--out", "b.html" })
    assert.equal(0, result.code, result.err)
    local page = shell.read(home .. "/b.html")
    assert.is_nil(page:find("<b>", 1, true))
    assert.truthy(page:find("<h1>&lt;b&gt;</h1>", 1, true))
    assert.matches("config.lua is no table of plain values", page)
    local rows = rows_of(page, "requests")
    assert.equal(3, #rows)
    assert.same({ "7", "2026-11-25T01:02:03Z", "[0,2]", "f &#39;&lt;b&gt;&#39;", "&lt;b&gt;1&lt;/b&gt;" }, rows[2])
    assert.same({ "8", ":checkpoint", "failed: the disk is full" }, { rows[3][1], rows[3][4], rows[3][5] })
    local totals, all = {}, {}
    for _, row in ipairs(rows_of(page, "events")) do
      if #row == 4 then totals[row[1]] = { row[2], row[3], row[4] } else all[#all + 1] = row end
    end
    assert.same({ "2", "0.75", "0.5" }, totals.checkpoint)
    assert.same({ { "1", "0.125", "0.125" }, { "1", "2", "2" } }, { totals.resize, totals.restart })
    local said = {}
    for _, row in ipairs(all) do said[#said + 1] = row[3] .. ": " .. (row[5] or "") end
    assert.same({ "checkpoint: written beside training", "resize: 2 to 3 ranks; built in 1.5 s beside training",
      "checkpoint: failed: &lt;b&gt;no room", "restart: 3 ranks; rank 0: &lt;b&gt;" }, { unpack(said, 2, 5) })
    assert.equal(0, shell.run("test ! -e " .. home .. "/ran").code)
  end)

  it("takes no statistics of an older run for those of one that goes on", function()
    local hook = [[hooks = { { before_train_iter = function() assert(not io.open "again/stats.json") end },]]
    shell.write(home .. "/again.lua", (support.recipe:gsub("hooks = {", hook)))
    for _ = 1, 2 do
      local result = support.run(home, { "run", "again.lua", "--out", "again" })
      assert.equal(0, result.code, result.err)
      assert.equal(16, support.json(home .. "/again/stats.json").steps)
    end
  end)

  it("takes no lines of `attach` and no plan of an older run for those of a run that begins anew", function()
    assert(os.execute("mkdir " .. home .. "/used") == 0)
    local function left_after(...)
      for _, name in ipairs { "events.jsonl", "requests.jsonl", "plan.json" } do
        shell.write(home .. "/used/" .. name, "{}\n")
      end
      local result = support.run(home, { "run", "recipe.lua", "--steps", "1", "--out", "used", ... })
      assert.equal(0, result.code, result.err)
      return support.names(home .. "/used")
    end
    assert.equal("config.lua env.json metrics.jsonl stats.json", left_after())
    assert.equal("config.lua env.json events.jsonl metrics.jsonl plan.json requests.jsonl stats.json",
      left_after("--resume", "auto"))
  end)

  it("takes all runs of a sweep, and refuses what is no run", function()
    local words = { "sweep", "recipe.lua", "--set", "optimizer.lr=0.01,0.02", "--out", "swept" }
    assert.equal(0, support.run(home, words).code)
    local result = support.run(home, { "report", "swept", "--no-rehearsal", "--out", "swept.html" })
    assert.matches("swept.html: 2 runs", result.out)
    local wrong = support.run(home, { "report", "." })
    assert.equal(2, wrong.code)
    assert.matches("is no folder of a run: it has neither metrics.jsonl nor config.lua", wrong.err)
    local nowhere = support.run(home, { "report", "one", "--out", "none/x.html" })
    assert.equal(2, nowhere.code)
    assert.matches("%-%-out", nowhere.err)
  end)
end)

describe("a chart", function()
  it("keeps the peaks of a long curve", function()
    local points = {}
    for i = 1, 5000 do points[i] = { i, math.sin(i / 200) } end
    points[1234][2], points[4321][2], points[7][2] = 40, -30, 0 / 0
    local kept, low, high = chart.thinned(points, 100), math.huge, -math.huge
    assert(#kept <= 200)
    for i, point in ipairs(kept) do
      assert(i == 1 or kept[i - 1][1] < point[1])
      low, high = math.min(low, point[2]), math.max(high, point[2])
    end
    assert.same({ -30, 40 }, { low, high })
  end)

  it("has round marks inside of its limits", function()
    for _, case in ipairs { { 0, 1, { 0, 0.2, 0.4, 0.6, 0.8, 1 } }, { 3, 97, { 20, 40, 60, 80 } },
      { -0.013, 0.021, { -0.01, 0, 0.01, 0.02 } } } do
      local marks = chart.marks(case[1], case[2])
      assert.equal(#case[3], #marks)
      for i, mark in ipairs(case[3]) do assert(math.abs(mark - marks[i]) < 1e-9) end
    end
  end)

  it("draws a point that is alone, leaves gaps at what is not finite, and nothing if nothing is", function()
    local function drawn(points)
      return chart.curves { title = "t", series = { { name = "a", class = "s1", points = points } } }
    end
    assert.matches('d="M%S+ %S+h0.1"', drawn { { 1, 2 } })
    assert.equal(2, select(2, drawn { { 1, 2 }, { 2, 3 }, { 3, 0 / 0 }, { 4, 2 }, { 5, 1 } }:match ' d="(.-)"'
      :gsub("M", "")))
    assert.is_nil(drawn { { 1, 1 / 0 } })
  end)
end)
