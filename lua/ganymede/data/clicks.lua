--- Datasets of clicks: logs as Criteo publishes them, and made-up ones. Samples are what gm.models.DLRM takes.
--
-- x (dense + tables), i64: counts, then a row of each table; y: 1 for a click, else 0. They are read and made in C
-- (host/data/click_dataset.c).
-- @module ganymede.data.clicks
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local native = require "ganymede.data.native"
local options = require "ganymede.base.options"
local paths_of = require "ganymede.data.paths"

local clicks = {}

-- The rows of n tables, from their list or from one number for all.
local function rows_of(name, given, n)
  local list = given
  if type(given) == "number" then
    list = {}
    for t = 1, n do list[t] = given end
  elseif n and #list ~= n then
    error(("%s: rows lists %d tables, and tables is %d"):format(name, #list, n), 0)
  end
  for t, rows in ipairs(list) do
    if type(rows) ~= "number" or rows < 1 or rows % 1 ~= 0 or rows >= 2 ^ 31 then
      error(("%s: rows[%d] must be a whole number from 1 to 2^31 - 1; got %s"):format(name, t,
        options.literal(rows)), 0)
    end
  end
  return list
end

local rows_option = "the number of rows of every table, or the list of the numbers of rows"

clicks.ClickLog = native.define("ClickLog", {
  path = { type = { "string", "list" }, doc = "the path of a file, gzipped or not, or a list of paths" },
  dense = { type = "integer", min = 0, max = 10000, default = 13, doc = "the number of counts in a line" },
  tables = { type = "integer", min = 0, max = 10000, default = 26, doc = "the number of categories in a line" },
  rows = { type = { "integer", "list" }, min = 1, max = 2 ^ 31 - 1, doc = rows_option },
  damaged = { type = "string", one_of = { "stop", "skip" }, default = "stop",
    doc = "what a line does that cannot be read; stop: it is an error that names the line; skip: it is left out, and "
      .. "how many there are is said" },
}, function(opt)
  local paths = paths_of("ClickLog", opt.path)
  local handle, refused, first = checked(nil, core.dataset_click_log(paths, { dense = opt.dense,
    rows = rows_of("ClickLog", opt.rows, opt.tables), skip_damaged = opt.damaged == "skip" }))
  if refused > 0 and core.rank() == 0 then
    log.warn("ClickLog: %d lines are left out because they cannot be read; the first: %s", refused, first)
  end
  return handle, { left_out = refused, class_names = { "no click", "click" } }
end)

clicks.Clicks = native.define("Clicks", {
  length = { type = "integer", min = 1, max = 2 ^ 40, default = 1024, doc = "the number of samples" },
  dense = { type = "integer", min = 0, max = 10000, default = 13, doc = "the number of counts of a sample" },
  rows = { type = "list", doc = "the list of the numbers of rows of the tables" },
  signal = { type = "number", min = 0, max = 100, default = 2,
    doc = "the standard deviation of the log-odds of a click: how much the numbers say" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, default = 0, doc = "the seed of what is to be learned" },
  split = { type = "string", one_of = { "train", "test" }, default = "train",
    doc = "the part of the dataset that is read" },
}, function(opt)
  local handle = checked(nil, core.dataset_made_clicks { length = opt.length, dense = opt.dense,
    rows = rows_of("Clicks", opt.rows), signal = opt.signal, seed = opt.seed,
    split = opt.split == "train" and 0 or 1 })
  return handle, { class_names = { "no click", "click" } }
end)

return clicks
