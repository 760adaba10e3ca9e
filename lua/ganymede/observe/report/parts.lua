--- The parts of a report as HTML, from runs that ganymede.observe.report.read has read. Each returns its text, or says
-- what is missing.
-- @module ganymede.observe.report.parts
local chart = require "ganymede.observe.report.chart"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local slowest = require "ganymede.observe.slowest"

local escaped = chart.escaped
local parts = {}

local COLOURS = 8

-- ---------------------------------------------------------------- tables

local function shown(value)
  if value == nil or value == json.null then return "–" end
  if type(value) == "number" then return ("%.6g"):format(value) end
  if type(value) == "table" then return json.encode(value) end
  return tostring(value)
end

local function cell(tag, value)
  local numeric = type(value) == "number" or type(value) == "table" and value.number
  local text = type(value) == "table" and value.text or shown(value)
  return ("<%s%s>%s</%s>"):format(tag, numeric and ' class="n"' or "", escaped(text), tag)
end

local function bytes(n) return { text = n and machine.bytes(n) or "–", number = true } end

-- A table of a head (list of texts) and rows (lists of values; { text, number = true } is set to the right).
local function html_table(head, rows)
  local out = { '<div class="wide"><table><tr>' }
  for column, text in ipairs(head) do
    local first = rows[1] and rows[1][column]
    local numeric = type(first) == "number" or type(first) == "table" and first.number
    out[#out + 1] = cell("th", { text = text, number = numeric })
  end
  for _, row in ipairs(rows) do
    out[#out + 1] = "</tr><tr>"
    for column = 1, #head do out[#out + 1] = cell("td", row[column]) end
  end
  return table.concat(out) .. "</tr></table></div>"
end

local function none(fmt, ...) return ('<p class="dim">%s</p>'):format(escaped(fmt:format(...))) end

local function each(runs, fn)
  local out = {}
  for i, run in ipairs(runs) do
    if #runs > 1 then out[#out + 1] = ("<h3>%s</h3>"):format(escaped(run.title)) end
    out[#out + 1] = fn(run, i)
  end
  return table.concat(out, "\n")
end

-- ---------------------------------------------------------------- what runs are

--- The legend of the curves, and what came out.
function parts.overview(runs)
  local out, rows = { "<p>" }, {}
  for i, run in ipairs(runs) do
    out[#out + 1] = ('<span class="key"><svg viewBox="0 0 34 10"><path class="curve s%d" d="M0 5H34"/></svg></span>'
      .. "%s &nbsp; "):format((i - 1) % COLOURS + 1, escaped(run.title))
    local stats, last = run.stats or {}, run.steps[#run.steps] or {}
    local test = run.tests[#run.tests] and run.tests[#run.tests].test or {}
    rows[i] = { run.title, stats.status or "no end was written", last.step, last.loss, test.loss, test.accuracy,
      stats.samples_per_second, stats.tokens_per_second, stats.seconds }
  end
  out[#out + 1] = "</p>" .. html_table({ "run", "state", "steps", "last loss", "test loss", "test accuracy",
    "samples/s", "tokens/s", "seconds" }, rows)
  for _, run in ipairs(runs) do
    local why = run.stats and run.stats.error
    if type(why) == "string" then out[#out + 1] = none("%s: %s", run.title, why) end
  end
  return table.concat(out)
end

--- Curves of every number that steps and evaluations have.
function parts.curves(runs)
  local names, seen, out = {}, {}, {}
  local function note(group, event)
    for key, value in pairs(event) do
      local name = group .. key
      if type(value) == "number" and not seen[name] then names[#names + 1], seen[name] = name, { group, key } end
    end
  end
  for _, run in ipairs(runs) do
    for _, event in ipairs(run.steps) do note("", event) end
    for _, event in ipairs(run.tests) do note("test ", event.test) end
  end
  for _, name in ipairs { "step", "epoch", "samples" } do seen[name] = nil end
  table.sort(names)
  for _, name in ipairs(names) do
    local of = seen[name]
    local series = {}
    for i, run in ipairs(of and runs or {}) do
      local points = {}
      for _, event in ipairs(of[1] == "" and run.steps or run.tests) do
        local value = (of[1] == "" and event or event.test)[of[2]]
        if type(value) == "number" then points[#points + 1] = { event.step, value } end
      end
      series[#series + 1] = { name = run.title, class = "s" .. (i - 1) % COLOURS + 1, points = points }
    end
    local drawn = of and chart.curves { title = name, series = series }
    if drawn then out[#out + 1] = ("<div><h3>%s</h3>%s</div>"):format(escaped(name), drawn) end
  end
  if #out == 0 then return none "metrics.jsonl has no numbers" end
  return '<div class="grid2">' .. table.concat(out, "\n") .. '</div><p class="dim">by step</p>'
end

-- The rows of all paths of the runs' settings. differ: those only that differ.
local function setting_rows(runs, differ)
  local all, rows = {}, {}
  for _, run in ipairs(runs) do
    for path in pairs(run.settings or {}) do all[path] = true end
  end
  for _, path in ipairs(options.sorted_keys(all)) do
    local row, differs = { path }, false
    for i, run in ipairs(runs) do
      local value = (run.settings or {})[path]
      row[i + 1] = { text = value == nil and "–" or shown(value) }
      differs = differs or value ~= (runs[1].settings or {})[path]
    end
    if differs or not differ then rows[#rows + 1] = row end
  end
  return rows
end

--- Settings that differ, and all of them in a fold.
function parts.settings(runs)
  local head = { "setting" }
  for i, run in ipairs(runs) do head[i + 1] = run.title end
  local all, out = setting_rows(runs, false), {}
  if #runs > 1 then
    local rows = setting_rows(runs, true)
    out[1] = #rows > 0 and html_table(head, rows) or none "all settings are equal"
  end
  out[#out + 1] = #all > 0 and ("<details%s><summary>all settings</summary>%s</details>"):format(
    #runs == 1 and " open" or "", html_table(head, all)) or none "there are no settings"
  return table.concat(out)
end

-- ---------------------------------------------------------------- what they cost

local function energy_of(stats)
  local energy = type(stats.energy) == "table" and stats.energy or {}
  return type(energy.joules) == "number" and ("%.6g J (%s)"):format(energy.joules, shown(energy.of)) or nil
end

--- Throughput, operations and energy, beside what a plan has predicted.
function parts.throughput(runs)
  local rows = {}
  for i, run in ipairs(runs) do
    local stats, flops = run.stats or {}, 0
    for _, rank in ipairs(stats.ranks or {}) do flops = flops + (rank.flops or 0) end
    local seconds = type(stats.seconds) == "number" and stats.seconds > 0 and stats.seconds or nil
    local steps = type(stats.steps) == "number" and stats.steps > 0 and stats.steps or nil
    rows[i] = { run.title, stats.world, stats.samples_per_second, stats.tokens_per_second,
      seconds and steps and 1e3 * seconds / steps, run.plan and run.plan.seconds and 1e3 * run.plan.seconds,
      seconds and flops > 0 and flops / seconds / 1e9 or nil, energy_of(stats) }
  end
  return html_table({ "run", "ranks", "samples/s", "tokens/s", "ms a step", "ms predicted", "GFLOP/s, all ranks",
    "energy" }, rows)
end

local of_rank = { { "parameters", "parameter_bytes" }, { "gradients", "gradient_bytes" },
  { "optimizer", "optimizer_bytes" }, { "activations", "activation_peak_bytes" } }

--- The peak of every rank, and what it is made of.
function parts.memory(runs)
  local keys = {}
  for i, pair in ipairs(of_rank) do
    keys[i] = ('<span class="swatch"><svg viewBox="0 0 11 11"><rect class="p%d" width="11" height="11"/></svg>'
      .. "</span>%s"):format(i, pair[1])
  end
  return "<p>" .. table.concat(keys) .. "</p>" .. each(runs, function(run)
    local rows, lines = {}, {}
    for i, rank in ipairs(run.stats and run.stats.ranks or {}) do
      rows[i] = { name = ("rank %d%s"):format(rank.rank, rank.stage and (", stage %d"):format(rank.stage) or ""),
        parts = {} }
      lines[i] = { rows[i].name }
      for k, pair in ipairs(of_rank) do
        rows[i].parts[k] = { pair[1], rank[pair[2]] or 0 }
        lines[i][k + 1] = bytes(rank[pair[2]])
      end
      lines[i][6] = bytes(rank.peak_bytes)
    end
    local drawn = chart.bars(rows, machine.bytes)
    if not drawn then return none "there is no stats.json with what ranks held" end
    return drawn .. html_table({ "", "parameters", "gradients", "optimizer", "activations", "peak" }, lines)
  end)
end

--- What modules hold on rank 0, from a rehearsal of the run's settings.
function parts.modules(runs)
  return each(runs, function(run)
    if not run.modules then return none("%s", run.modules_why or "no rehearsal was made") end
    local rows = {}
    for _, row in ipairs(run.modules) do
      local sent = 0
      for _, e in ipairs(row.sent or {}) do sent = sent + e.bytes end
      rows[#rows + 1] = { row.path == "" and "(loss and update)" or row.path, row.class or "",
        bytes(row.parameter_bytes), bytes(row.gradient_bytes), bytes(row.optimizer_bytes), bytes(row.saved_bytes),
        bytes(sent) }
    end
    return html_table({ "module", "class", "parameters", "gradients", "optimizer", "saved for backward",
      "sent a step" }, rows)
  end)
end

--- What was sent, by axis and operation, summed over ranks.
function parts.communication(runs)
  return each(runs, function(run)
    local sums, order = {}, {}
    for _, rank in ipairs(run.stats and run.stats.ranks or {}) do
      for _, e in ipairs(rank.comm or {}) do
        local axes = #e.axes > 0 and table.concat(e.axes, ".") or "all ranks"
        local key = axes .. " " .. e.op
        if not sums[key] then
          sums[key], order[#order + 1] = { axes, e.op, 0, 0, 0, 0 }, key
        end
        local sum = sums[key]
        for k, name in ipairs { "calls", "bytes_logical", "seconds", "seconds_exposed" } do
          sum[k + 2] = sum[k + 2] + (type(e[name]) == "number" and e[name] or 0)
        end
      end
    end
    if not run.stats then return none "there is no stats.json with what ranks sent" end
    if #order == 0 then return none "one rank: nothing was sent" end
    table.sort(order)
    local rows = {}
    for i, key in ipairs(order) do
      local sum = sums[key]
      rows[i] = { sum[1], sum[2], sum[3], bytes(sum[4]), sum[5], sum[6] }
    end
    local slow = type(run.stats.slowest) == "table" and run.stats.slowest
    return html_table({ "axis", "operation", "calls", "bytes", "seconds", "seconds in which a rank only waited" },
      rows) .. (slow and ("<p>%s</p>"):format(chart.escaped(slowest.text(slow, run.stats.seconds))) or "")
  end)
end

--- Lines that `attach` ran in the job, or asked it for.
function parts.requests(runs)
  return each(runs, function(run)
    local rows = {}
    for i, e in ipairs(run.requests) do
      rows[i] = { e.step, shown(e.time), e.ranks and shown(e.ranks) or "all",
        e.line and shown(e.line) or ":" .. shown(e.kind), (e.failed and "failed: " or "") .. shown(e.said) }
    end
    return #rows > 0 and html_table({ "step", "time", "ranks", "line", "what it said" }, rows)
      or none "nobody has attached to the run"
  end)
end

-- What an event says besides its seconds.
local function said_of(e)
  if e.event == "resize" then
    return ("%s to %s ranks; built in %s s beside training"):format(shown(e.before), shown(e.ranks), shown(e.built))
  elseif e.event == "batch" then
    return ("%s to %s samples; learning rate %s, %s times that of the first batch"):format(shown(e.before),
      shown(e.batch), shown(e.lr), shown(e.factor))
  elseif e.event == "restart" then
    return ("%s ranks; %s"):format(shown(e.ranks), shown(e.why))
  end
  return e.failed and "failed: " .. shown(e.failed) or e.background and "written beside training" or ""
end

--- What happened besides steps, and how long training stood still for it: sums of each kind, and all in a fold.
function parts.events(runs)
  return each(runs, function(run)
    local sums, kinds, rows = {}, {}, {}
    for i, e in ipairs(run.events) do
      local kind, seconds = shown(e.event), type(e.seconds) == "number" and e.seconds or 0
      if not sums[kind] then sums[kind], kinds[#kinds + 1] = { kind, 0, 0, 0 }, kind end
      local sum = sums[kind]
      sum[2], sum[3], sum[4] = sum[2] + 1, sum[3] + seconds, math.max(sum[4], seconds)
      rows[i] = { e.step, shown(e.time), kind, seconds, said_of(e) }
    end
    if #rows == 0 then return none "no checkpoint was saved, and the ranks stayed" end
    table.sort(kinds)
    local totals = {}
    for i, kind in ipairs(kinds) do totals[i] = sums[kind] end
    return html_table({ "", "how many", "seconds in all", "longest" }, totals)
      .. ("<details><summary>each of them</summary>%s</details>"):format(html_table({ "step", "time", "what",
        "seconds", "" }, rows))
  end)
end

-- Sums the complete events of a trace by rank and name; counts the messages.
local function trace_sums(events)
  local ranks, names = {}, {}
  for _, e in ipairs(events) do
    if (e.ph == "X" or e.ph == "b") and e.tid < 3 then -- others show one step in full
      local rank = ranks[e.pid] or { sums = {}, messages = 0, from = math.huge, to = -math.huge }
      ranks[e.pid] = rank
      if e.ph == "b" then
        rank.messages = rank.messages + 1
      else
        local name = (e.tid == 1 and "phase " or "") .. e.name
        names[name] = true
        rank.sums[name] = (rank.sums[name] or 0) + e.dur
        rank.from, rank.to = math.min(rank.from, e.ts), math.max(rank.to, e.ts + e.dur)
      end
    end
  end
  return ranks, options.sorted_keys(names)
end

--- What ranks did in a trace.
function parts.trace(runs)
  return each(runs, function(run)
    if not run.trace then return none "there is no trace; ganymede run ... --trace trace.json makes one" end
    local ranks, names = trace_sums(run.trace)
    local head, rows = { "rank", "ms in all", "messages" }, {}
    for i, name in ipairs(names) do head[i + 3] = name .. ", ms" end
    for _, pid in ipairs(options.sorted_keys(ranks)) do
      local rank = ranks[pid]
      local row = { pid, (rank.to - rank.from) / 1e3, rank.messages }
      for i, name in ipairs(names) do row[i + 3] = (rank.sums[name] or 0) / 1e3 end
      rows[#rows + 1] = row
    end
    return #rows > 0 and html_table(head, rows) or none "the trace has no events"
  end)
end

--- The most expensive ops of a profile.
function parts.profile(runs)
  return each(runs, function(run)
    local lines = run.profile and run.profile.lines
    if not lines then return none "there is no profile; ganymede run ... --profile profile.json makes one" end
    local rows = {}
    for i = 1, math.min(#lines, 12) do
      local line = lines[i]
      rows[i] = { line.op, line.about, 1e3 * line.seconds / math.max(1, run.profile.steps),
        line.calls / math.max(1, run.profile.steps) }
    end
    return html_table({ "op", "inputs", "ms a step", "calls a step" }, rows)
  end)
end

--- Program, machine and command line.
function parts.environment(runs)
  local head, all, rows = { "" }, {}, {}
  for i, run in ipairs(runs) do
    head[i + 1] = run.title
    for key in pairs(run.env or {}) do all[key] = true end
  end
  for _, key in ipairs(options.sorted_keys(all)) do
    local row = { key }
    for i, run in ipairs(runs) do
      local value = (run.env or {})[key]
      row[i + 1] = { text = key == "argv" and type(value) == "table" and table.concat(value, " ") or shown(value) }
    end
    rows[#rows + 1] = row
  end
  return #rows > 0 and html_table(head, rows) or none "there is no env.json"
end

--- What the folders lack, and how to have it.
function parts.missing(runs)
  local rows = {}
  for _, run in ipairs(runs) do
    for _, entry in ipairs(run.missing) do rows[#rows + 1] = { run.title, entry[1], entry[2] } end
  end
  return #rows > 0 and html_table({ "run", "part", "why" }, rows) or none "nothing is missing"
end

return parts
