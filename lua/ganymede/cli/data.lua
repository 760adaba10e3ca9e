--- ganymede data FILE...: what is in files and folders of data: pictures, tables, texts, arrays, tokens, tar files.
--
-- Tables are read whole. Of pictures a sample is decoded, spread evenly; damaged ones are named. What cannot be read is
-- an error of its own; the other files are shown nevertheless, and the status is that of the first error.
local columns = require "ganymede.cli.columns"
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm_tensor = require "ganymede.tensor"
local log = require "ganymede.base.log"
local session = require "ganymede.job.session"

local verb = { summary = "show what is in files of data: shapes, types, ranges, what is missing, a sheet of pictures",
  prints = true }

verb.examples = {
  "ganymede data train.csv",
  "ganymede data photos/train --sheet sheet.png",
  "ganymede data shards.tar samples.npz --samples 1000",
}

local ENDINGS = { ".png", ".jpg", ".jpeg", ".tar", ".csv", ".tsv",
  ".jsonl", ".csv.gz", ".tsv.gz", ".jsonl.gz", ".txt", ".npy", ".npz", ".nii", ".nii.gz",
  ".safetensors", ".gguf", ".tokens" }
local ZIPPED = { csv = true, tsv = true, jsonl = true, nii = true } -- with .gz behind it, too
local LARGEST = 2 ^ 22 -- numbers of an array, or of a file of tokens, whose range is worked out

function verb.arguments(parser)
  parser:argument("files", "folders of classes, " .. table.concat(ENDINGS, ", ")):args "+"
  parser:option("--samples", "how many pictures of a folder or tar file are decoded"):argname "N"
    :convert(session.integer(1)):default "100"
  parser:option("--sheet", "write a contact sheet of pictures as PNG"):argname "OUT.png"
  parser:option("--pictures", "the number of pictures on the sheet"):argname "N"
    :convert(session.integer(1)):default "64"
  parser:option("--delimiter", "the byte between two fields of a table; otherwise a comma, or a tab in .tsv")
    :argname "C"
end

local function checked(first, message, kind)
  if first == nil then failure(kind == "corrupt" and 5 or 2, "%s", message) end
  return first
end

-- What the name of a file ends with, without the dot and a .gz that may be there; "": nothing.
local function ending_of(path)
  local inner = path:lower():match "%.(%w+)%.gz$"
  return ZIPPED[inner] and inner or path:lower():match "%.(%w+)$" or ""
end

local function put(fmt, ...) log.result(fmt:format(...)) end
local function put_table(rows)
  for _, line in ipairs(columns.lines(rows, columns.numbers)) do put("  %s", line) end
end

local function range(least, most) return least == most and ("%d"):format(least) or ("%d to %d"):format(least, most) end
local function number(v) return ("%.6g"):format(v) end

-- ---------------------------------------------------------------- pictures

-- At most n numbers of samples from 1 to `all`, spread evenly.
local function spread(all, n)
  local list = {}
  n = math.min(all, n)
  for k = 1, n do list[k] = n == 1 and 1 or 1 + math.floor((k - 1) * (all - 1) / (n - 1) + 0.5) end
  return list
end

-- Decodes samples: least and largest height and width, the largest label, what is damaged.
local function look_at(dataset, n)
  local seen = { heights = { math.huge, 0 }, widths = { math.huge, 0 }, damaged = {}, good = {} }
  for _, i in ipairs(spread(dataset:length(), n)) do
    local ok, err = pcall(gm_tensor.scope, function()
      local shape = (dataset:get(i)):shape()
      for d, at in pairs { [2] = seen.heights, [3] = seen.widths } do
        at[1], at[2] = math.min(at[1], shape[d]), math.max(at[2], shape[d])
      end
    end)
    if ok then
      seen.good[#seen.good + 1] = i
    elseif failure.code(err) == 5 then
      seen.damaged[#seen.damaged + 1] = failure.text(err):gsub("\n.*", "")
    else
      error(err, 0)
    end
  end
  return seen
end

local function sheet(args, dataset)
  local list = {}
  for k, i in ipairs(spread(dataset:length(), args.pictures)) do list[k] = i - 1 end
  checked(core.image_sheet(args.sheet, dataset.handle, list, { columns = math.ceil(math.sqrt(#list)), size = 96 }))
  put("  sheet: %s, %d pictures", args.sheet, #list)
  args.drawn = true
end

-- forgiving: the same dataset, which leaves damaged pictures out.
local function pictures(args, dataset, forgiving)
  local seen = look_at(dataset, args.samples)
  local n = #seen.good + #seen.damaged
  if #seen.good > 0 then
    put("  height %s, width %s of %d that were decoded", range(seen.heights[1], seen.heights[2]),
      range(seen.widths[1], seen.widths[2]), #seen.good)
  end
  if #seen.damaged > 0 then put("  damaged: %d of %d", #seen.damaged, n) end
  for _, text in ipairs(seen.damaged) do put("    %s", text) end
  if args.sheet and #seen.good > 0 then sheet(args, forgiving) end
end

local function folder(args, path)
  local dataset = data.ImageFolder { root = path }
  local about, rows = dataset:describe(), { { "class", "pictures" } }
  put("%s: a folder of %d pictures in %d classes; %d other files", path, about.length, about.classes, about.left_out)
  for k, name in ipairs(about.class_names) do rows[k + 1] = { name, tostring(dataset.class_counts[k]) } end
  put_table(rows)
  pictures(args, dataset, data.ImageFolder { root = path, damaged = "skip" })
end

local function tar(args, path)
  local dataset = data.WebDataset { path = path, classes = 2 ^ 31 }
  put("%s: a tar file of %d pictures with labels; %d other members", path, dataset:length(),
    dataset:describe().left_out)
  pictures(args, dataset, data.WebDataset { path = path, classes = 2 ^ 31, damaged = "skip" })
end

local function picture(_, path)
  local h = checked(core.image_header(path))
  put("%s: %s, height %d, width %d, %d channels of %d bits", path, h.format, h.height, h.width, h.channels, h.bits)
end

-- ---------------------------------------------------------------- tables

local function kinds(c)
  if c.numbers > 0 and c.texts == 0 then return "number" end
  return c.numbers == 0 and c.texts > 0 and "text" or c.texts > 0 and "mixed" or "empty"
end

-- The texts of a column and how often each is there, the commonest first.
local function texts(c)
  local list, out = {}, {}
  for i, entry in ipairs(c.different) do list[i] = entry end
  table.sort(list, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
  for i = 1, math.min(#list, 5) do
    out[i] = ("%s (%d)"):format(#list[i][1] > 20 and list[i][1]:sub(1, 17) .. "..." or list[i][1], list[i][2])
  end
  return table.concat(out, ", ") .. ((c.more or #list > 5) and ", ..." or "")
end

local function rows(args, path)
  local ending = ending_of(path)
  if ending == "jsonl" and args.delimiter then failure(2, "%s: its lines are JSON, without a --delimiter", path) end
  local delimiter = args.delimiter or ending == "tsv" and "\t" or ending ~= "jsonl" and "," or nil
  local t = checked(core.table_look(path, delimiter))
  if t.rows == 0 and #t.columns == 0 then failure(5, "%s: is empty: a table has at least a column", path) end
  put("%s: a table of %d rows, %d columns", path, t.rows, #t.columns)
  local out = { { "column", "type", "missing", "least", "mean", "largest", "values" } }
  for _, c in ipairs(t.columns) do
    local has = c.numbers > 0
    local different = #c.different .. (c.more and " or more" or "") .. " different"
    out[#out + 1] = { c.name, kinds(c), tostring(c.missing), has and number(c.least) or "-",
      has and number(c.mean) or "-", has and number(c.most) or "-", c.texts > 0 and texts(c) or different }
  end
  put_table(out)
  if t.uneven > 0 then
    put("  rows with another number of fields than the first line: %d; the first is line %d", t.uneven, t.uneven_line)
  end
end

-- ---------------------------------------------------------------- texts

local function text(_, path)
  local file = assert(io.open(path, "rb"))
  local bytes, lines, blank, longest = file:seek "end", 0, 0, 0
  if bytes == 0 then
    file:close()
    failure(5, "%s: is empty", path)
  end
  file:seek "set"
  for line in file:lines() do
    lines, longest = lines + 1, math.max(longest, #line)
    if not line:find "%S" then blank = blank + 1 end
  end
  file:close()
  put("%s: a text of %d bytes in %d lines, %d of them blank; the longest has %d bytes", path, bytes, lines, blank,
    longest)
end

-- ---------------------------------------------------------------- arrays

-- Least and largest of nested lists, and how many numbers are not finite.
local function extremes(t, found)
  if type(t) ~= "table" then
    if t ~= t or math.abs(t) == math.huge then found.odd = found.odd + 1
    else found.least, found.most = math.min(found.least, t), math.max(found.most, t) end
    return found
  end
  for i = 1, #t do extremes(t[i], found) end
  return found
end

local function arrays(args, path)
  local file = require("ganymede.hub.arrays").open(path)
  local out = { { "array", "type", "shape", "least", "largest", "not finite" } }
  for _, name in ipairs(file:names()) do
    local info, n = file:info(name), 1
    for _, size in ipairs(info.shape) do n = n * size end
    local found = n > 0 and n <= LARGEST and gm_tensor.scope(function()
      return extremes(file:read(name, { dtype = "f64" }):totable(), { least = math.huge, most = -math.huge, odd = 0 })
    end)
    local some = found and found.most >= found.least
    out[#out + 1] = { name == "" and "-" or name, info.dtype or info.type, table.concat(info.shape, " x "),
      some and number(found.least) or "-", some and number(found.most) or "-", found and tostring(found.odd) or "-" }
  end
  put("%s: %d arrays", path, #out - 1)
  put_table(out)
  file:close()
  if args.sheet and path:lower():find "%.npy$" then sheet(args, data.Arrays { x = path }) end
end

-- ---------------------------------------------------------------- tokens

-- Of a long file the first tokens are read, and said to be the first.
local function tokens(_, path)
  local about = data.Tokens({ path = path, sequence_length = 1 }):describe()
  local count = about.length + 1
  local n = math.min(count - 1, LARGEST)
  local found = gm_tensor.scope(function()
    local x, y = data.Tokens({ path = path, sequence_length = n }):get(1)
    return extremes(y:totable(), extremes({ x:totable()[1] }, { least = math.huge, most = -math.huge, odd = 0 }))
  end)
  put("%s: a file of %d tokens, a vocabulary of %d; %s are %d to %d", path, count, about.classes,
    n == count - 1 and "they" or ("the first %d"):format(n + 1), found.least, found.most)
end

local readers = { png = picture, jpg = picture, jpeg = picture, tar = tar, csv = rows, tsv = rows, jsonl = rows,
                  txt = text, npy = arrays, npz = arrays, nii = arrays, safetensors = arrays, gguf = arrays,
                  tokens = tokens }

local function show(args, path)
  local reader = readers[ending_of(path)]
  if core.is_file(path) then
    if not reader then
      failure(2, "%s: its name must say what it is, by one of the endings %s; a link with such a name will do", path,
        table.concat(ENDINGS, " "))
    end
    return reader(args, path)
  end
  if #core.list_folder(path) == 0 then
    failure(2, "%s: is no file, and no folder with something in it%s", path, reader and "" or
      "; give a folder whose folders are the classes, or a file that ends in one of " .. table.concat(ENDINGS, " "))
  end
  return folder(args, path)
end

function verb.run(args)
  local first
  for _, path in ipairs(args.files) do
    local ok, err = pcall(show, args, path)
    if not ok then
      if failure.code(err) == 1 then error(err, 0) end
      first = first or err
      log.error("%s", failure.text(err))
    end
  end
  if first then return failure.code(first) end
  if args.sheet and not args.drawn then
    failure(2, "--sheet: none of these files has pictures that a sheet can show: a folder of classes, .tar, .npy")
  end
end

return verb
