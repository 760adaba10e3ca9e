--- Prints the tables of `ganymede check` from what a rehearsal found. Lines have at most 120 columns if names are short
-- enough.
local columns = require "ganymede.cli.columns"
local draw = require "ganymede.schedules.draw"
local elements = require("ganymede.nn.module").elements
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"

local function print_columns(rows)
  for _, line in ipairs(columns.lines(rows)) do print("  " .. line) end
end

local function thousands(n)
  local text = ("%d"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

local function shown(shape) return "(" .. table.concat(shape, ", ") .. ")" end

local function print_settings(found)
  local rows = {}
  for i, row in ipairs(found.settings) do rows[i] = { row.path, options.literal(row.value), row.origin } end
  print "settings"
  print_columns(rows)
end

-- ---------------------------------------------------------------- modules

local function sum(entries, phase)
  local bytes = 0
  for _, e in ipairs(entries) do bytes = bytes + (e.phase == phase and e.bytes or 0) end
  return bytes
end

local function amount(bytes) return bytes > 0 and machine.bytes(bytes) or "-" end

-- "Linear2D: (8, 64) replicated -> (8, 256) cut (row, col)"
local function call_of(row, many)
  if not many or not row.x or not row.y then return row.class end
  return ("%s: %s %s -> %s %s"):format(row.class, shown(row.x.shape), row.x.layout, shown(row.y.shape),
    row.y.layout == row.x.layout and "alike" or row.y.layout)
end

-- Returns the lines below the line of a module: its class and parameters. On several ranks they show layouts and, if
-- asked, what the module sends.
local function details(row, found, verbose)
  local many = found.world > 1
  local lines = { call_of(row, many) }
  for _, p in ipairs(row.parameters) do
    local count = p.tied and "tied" or thousands(elements(p.shape))
    local line = ("%s %s %s"):format(p.name:match "[^.]*$", shown(p.shape), count)
    if many and p.layout then line = ("%s: %s%s"):format(line, p.layout, p.use and ", used " .. p.use or "") end
    lines[#lines + 1] = line
  end
  for _, e in ipairs(many and verbose and row.sent or {}) do
    lines[#lines + 1] = ("%s: %s over %s, %s calls, %s"):format(e.phase, e.op, table.concat(e.axes, "."),
      thousands(e.calls), machine.bytes(e.bytes))
  end
  return lines
end

local function cells(row, found)
  local out = { amount(row.parameter_bytes), amount(row.gradient_bytes), amount(row.optimizer_bytes),
    amount(row.saved_bytes) }
  if found.world > 1 then
    out[#out + 1], out[#out + 2] = amount(sum(row.sent, "forward")), amount(sum(row.sent, "backward"))
  end
  return out
end

-- Makes one row of the table: the parts of its path, its cells, its details, and all of these as one text.
local function entry_of(row, found, verbose)
  local parts = {}
  for part in row.path:gmatch "[^.]+" do parts[#parts + 1] = part end
  local own, below = cells(row, found), details(row, found, verbose)
  return { parts = parts, cells = own, details = below,
    text = table.concat(own, "\0") .. "\0" .. table.concat(below, "\n") }
end

-- entries[first .. last] share the first `depth` parts of their paths. Returns their other parts and cells as one text.
local function signature(entries, first, last, depth)
  local out = {}
  for i = first, last do
    local rest = { unpack(entries[i].parts, depth + 1) }
    out[#out + 1] = table.concat(rest, ".") .. "\0" .. entries[i].text
  end
  return table.concat(out, "\1")
end

-- Returns the last of the entries from `first` on that have the same part at `depth`.
local function end_of(entries, first, last, depth)
  local i = first
  while i < last and entries[i + 1].parts[depth] == entries[first].parts[depth] do i = i + 1 end
  return i
end

-- Adds the lines of the entries from first to last to out. A numbered entry that is like the one before it is left
-- out. `label` is the text of the first depth - 1 parts of their paths.
local function collapse(out, entries, first, last, depth, label)
  local i = first
  while i <= last do
    local part, stop = entries[i].parts[depth], end_of(entries, i, last, depth)
    if not part then
      out[#out + 1] = { label = label, entry = entries[i] }
    else
      local shape, twin, name = signature(entries, i, stop, depth), stop, part
      while tonumber(part) and twin < last do
        local other, next_part = end_of(entries, twin + 1, last, depth), entries[twin + 1].parts[depth]
        if not tonumber(next_part) or signature(entries, twin + 1, other, depth) ~= shape then break end
        twin, name = other, part .. "-" .. next_part
      end
      collapse(out, entries, i, stop, depth + 1, label == "" and name or label .. "." .. name)
      stop = twin
    end
    i = stop + 1
  end
  return out
end

local function print_modules(found, verbose)
  local entries, list = {}, {}
  for i, row in ipairs(found.modules) do entries[i] = entry_of(row, found, verbose) end
  if verbose then
    for i, entry in ipairs(entries) do list[i] = { label = table.concat(entry.parts, "."), entry = entry } end
  else
    collapse(list, entries, 1, #entries, 1, "")
  end
  local rows = { { "", "parameters", "gradients", "optimizer", "saved" } }
  if found.world > 1 then rows[1][6], rows[1][7] = "forward", "backward" end
  for _, item in ipairs(list) do
    rows[#rows + 1] = { item.label == "" and "(model, loss, update)" or item.label, unpack(item.entry.cells) }
  end
  local saved = found.pipeline and "saves for backward of a micro-batch" or "saves for backward"
  print(found.world > 1 and ("\nmodules: bytes that this rank holds, %s, and sends in a step (a-b: each)"):format(saved)
    or ("\nmodules: bytes that it holds, and %s (a-b: each)"):format(saved))
  for i, line in ipairs(columns.lines(rows, columns.behind_first)) do
    print("  " .. line)
    for _, detail in ipairs(i > 1 and list[i - 1].entry.details or {}) do print("      " .. detail) end
  end
end

-- ---------------------------------------------------------------- ranks

local function print_peers(peers)
  local rows = {}
  for _, kind in ipairs(peers.by) do
    local said = {}
    for i, group in ipairs(kind.axes) do said[i] = ("%d over %s"):format(group.peers, table.concat(group.axes, ".")) end
    rows[#rows + 1] = { kind.what, ("%d ranks"):format(kind.peers), table.concat(said, ", ") }
  end
  rows[#rows + 1] = { "in all", ("%d ranks"):format(peers.all), "" }
  print "\nranks that this rank exchanges messages with"
  print_columns(rows)
end

local function print_batch(found)
  local rows = {}
  for _, name in ipairs { "x", "y" } do
    local t = found.batch[name]
    if t then rows[#rows + 1] = { name, shown(t.shape), t.layout, "here " .. shown(t.local_shape) } end
  end
  local pieces = found.batch.micro_batches
  print(pieces and ("\nthe first of %d micro-batches of a batch"):format(pieces) or "\na batch")
  print_columns(rows)
end

local function print_ranks(found)
  if found.world == 1 then return end
  local rows = {}
  for i, axis in ipairs(found.mesh) do rows[i] = { axis.name, ("%d of %d"):format(axis.coordinate, axis.size) } end
  print(("\nmesh, and where rank %d is on it (from 0)"):format(found.rank))
  print_columns(rows)
  print_batch(found)
  rows = {}
  for i, e in ipairs(found.sent) do
    rows[i] = { e.op, e.phase, table.concat(e.axes, "."), thousands(e.calls) .. " calls", machine.bytes(e.bytes) }
  end
  print "\nsent by this rank in a step"
  print_columns(rows)
  print_peers(found.peers)
end

-- ---------------------------------------------------------------- pipelines

local function crossing_of(part)
  local said = {}
  for i, t in ipairs(part.gives or {}) do said[i] = ("%s %s"):format(shown(t.shape), t.dtype) end
  return #said > 0 and ("%s, %s a rank"):format(table.concat(said, ", "), machine.bytes(part.border_bytes)) or "-"
end

local function print_parts(p)
  local rows = { { "part", "stage", "parameters", "GFLOP: forward", "backward", "gives a micro-batch", "sections" } }
  for i, part in ipairs(p.parts) do
    local backward = part.input_flops and ("%.3g + %.3g"):format(part.input_flops / 1e9, part.weight_flops / 1e9) or "?"
    rows[i + 1] = { tostring(part.part), tostring(part.stage), part.parameters and thousands(part.parameters) or "",
      ("%.3g"):format(part.flops / 1e9), backward, crossing_of(part),
      part.first == part.last and part.first or ("%d: %s to %s"):format(part.sections, part.first, part.last) }
  end
  print_columns(rows)
end

local function print_stages(p)
  local rows = { { "stage", "parts", "parameters", "GFLOP a micro-batch", "micro-batches held", "activations" } }
  for i, stage in ipairs(p.by_stage) do
    rows[i + 1] = { tostring(stage.stage), table.concat(stage.parts, ", "),
      stage.parameters and thousands(stage.parameters) or "", ("%.3g"):format(stage.flops / 1e9),
      ("%.4g"):format(stage.held), machine.bytes(stage.held_bytes) }
  end
  print_columns(rows)
end

local function print_pipeline(p)
  print "\npipeline: a batch in its stages, all passes taken as equal"
  print(p.picture)
  local barrier = p.bubble_with_barrier > p.bubble_of_split
    and (" (%s where steps end at a barrier)"):format(draw.percent(p.bubble_with_barrier)) or ""
  print(("bubble with the operations of this split: %s of the ideal time%s"):format(draw.percent(p.bubble_of_split),
    barrier))
  print(("the busiest stage computes %.3g times the mean of the stages"):format(p.busiest))
  print_parts(p)
  print_stages(p)
end

local function print_totals(found)
  local t = found.totals
  local rows = {
    { "parameters", thousands(t.parameters) .. ", " .. machine.bytes(t.parameter_bytes) },
    { "gradients", machine.bytes(t.gradient_bytes) },
    { "optimizer", machine.bytes(t.optimizer_bytes) },
    { "activations, at most", machine.bytes(t.activation_peak_bytes) },
    { "all tensors, at most", machine.bytes(t.peak_bytes) },
    { "one step", ("%.3g GFLOP on %d samples, %.3g of them in products and attention"):format(t.flops_per_step / 1e9,
      t.samples_per_step, t.product_flops_per_step / 1e9) },
  }
  if t.steps then rows[#rows + 1] = { "the run", ("%s steps"):format(thousands(t.steps)) } end
  print(found.world == 1 and "\none rank" or ("\nrank %d"):format(found.rank))
  print_columns(rows)
  rows = {}
  for i, place in ipairs(found.places) do rows[i] = { place.place, machine.bytes(place.peak_bytes) } end
  print "\nlargest at their peaks"
  print_columns(rows)
end

local printing = {}

--- Prints all that a rehearsal found. args: those of the command line.
function printing.all(found, args)
  print(("%s: %s, %s on %d rank%s\n"):format(found.recipe, found.name, found.dtype, found.world,
    found.world == 1 and "" or "s"))
  print_settings(found)
  print_modules(found, args.verbose)
  print_ranks(found)
  if found.pipeline then print_pipeline(found.pipeline) end
  print_totals(found)
end

--- Prints what --sections found.
function printing.sections(found)
  print(("%s: sections of the model, in order; a pipeline cuts between them"):format(found.name))
  local rows = { { "", "parameters", "forward pass of a micro-batch", "" } }
  for i, s in ipairs(found.sections) do
    rows[i + 1] = { tostring(i), thousands(s.parameters), ("%.4g MFLOP"):format(s.flops / 1e6), s.name }
  end
  print_columns(rows)
end

return printing
