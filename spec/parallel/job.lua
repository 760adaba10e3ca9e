--- Runs of a recipe on several ranks, for specs: job.run(recipe text, ranks, options) -> document of --stats.
--
-- options: steps, set (list of "key=value"), flags (list of words), env, code (the exit status expected, default
-- 0), timeout (seconds, default 240), alone (true: a job of its own).
-- The result of a job of its own also has out and err, what the run wrote.
--
-- Recipes of several ranks run one after the other on ranks that stay (spec.parallel.standing), unless they ask for a
-- job of their own, or need one: an environment, a status, a flag that belongs to the job, a program that launches.
local json = require "ganymede.base.json"
local device = require "spec.support.device"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local standing = require "spec.parallel.standing"

local job = {}

local IMAGES, PIXELS, packed = 2400, 28 * 28, "/usr/share/datasets/fashion-mnist/train-"

-- The first bytes of a file that is packed with gzip.
local function first_bytes(path, n)
  local pipe = assert(io.popen(("gzip -dc '%s' 2>/dev/null | head -c %d"):format(path, n)))
  local bytes = pipe:read "*a"
  pipe:close()
  return bytes
end

-- The first images of Fashion-MNIST and their labels as files: { name = text }. For each rank of each run to inflate
-- all 60,000 takes longer than most runs do.
local files
local function image_files()
  if files then return files end
  local count = string.char(0, 0, math.floor(IMAGES / 256), IMAGES % 256) -- in place of the count of all
  local images = first_bytes(packed .. "images-idx3-ubyte.gz", 16 + IMAGES * PIXELS)
  local labels = first_bytes(packed .. "labels-idx1-ubyte.gz", 8 + IMAGES)
  files = { ["train-images-idx3-ubyte"] = images:sub(1, 4) .. count .. images:sub(9),
    ["train-labels-idx1-ubyte"] = labels:sub(1, 4) .. count .. labels:sub(9) }
  return files
end

--- Writes a recipe as recipe.lua into `folder`, and the images where it has FashionMNIST with the root "images".
function job.write(folder, recipe)
  shell.write(folder .. "/recipe.lua", recipe)
  if not recipe:find('root = "images"', 1, true) then return end
  os.execute("mkdir -p " .. shell.quote(folder .. "/images"))
  for name, text in pairs(image_files()) do shell.write(folder .. "/images/" .. name, text) end
end

-- Flags that take effect in a process that has run other recipes.
local free = { ["--no-eval"] = true, ["--out"] = true, ["--resume"] = true }

local function may_stand(recipe, ranks, options)
  if ranks == 1 or options.alone or options.env or options.code or not device.is_cpu() then return false end
  for _, flag in ipairs(options.flags or {}) do
    if flag:find "^%-" and not free[flag] then return false end
  end
  return not recipe:find "gm%.launch" and not recipe:find "gm%.initialize"
end

-- Words of the command line that does not depend on where it runs.
local function words_of(options)
  local words = { "run", "recipe.lua", "--stats", "stats.json" }
  if options.steps then words[#words + 1], words[#words + 2] = "--steps", tostring(options.steps) end
  for _, set in ipairs(options.set or {}) do words[#words + 1], words[#words + 2] = "--set", set end
  for _, word in ipairs(options.flags or {}) do words[#words + 1] = word end
  return words
end

-- Runs them as a job of its own -> what it printed.
local function run_alone(folder, ranks, words, options)
  for _, word in ipairs { "--threads", "1", "--comm-timeout", "120" } do words[#words + 1] = word end
  if ranks > 1 then words[#words + 1], words[#words + 2] = "-n", tostring(ranks) end
  local result = run_host(words, { cwd = folder, env = options.env, timeout = options.timeout or 240 })
  if result.code ~= (options.code or 0) then
    error(("%d ranks ended with status %d, expected %d:\n%s\n%s"):format(ranks, result.code, options.code or 0,
      result.out, result.err), 3)
  end
  return result
end

--- Runs inside `folder`, which stays (for checkpoints); files there: what job.write writes, and stats.json.
function job.run_in(folder, recipe, ranks, options)
  options = options or {}
  job.write(folder, recipe)
  os.remove(folder .. "/stats.json")
  local words, result = words_of(options), {}
  if may_stand(recipe, ranks, options) then standing.run(ranks, folder, words, options.timeout or 240)
  else result = run_alone(folder, ranks, words, options) end
  local stats = json.decode(shell.read(folder .. "/stats.json"), "stats.json")
  stats.out, stats.err = result.out, result.err
  return stats
end

--- The same in a folder that is removed.
function job.run(recipe, ranks, options)
  local folder = shell.temporary_folder()
  local ok, result = pcall(job.run_in, folder, recipe, ranks, options)
  shell.remove(folder)
  if not ok then error(result, 2) end
  return result
end

--- `n` training steps, or GANYMEDE_SPEC_STEPS (6) if that is fewer: what is wrong shows in the first ones, and every
--- step after it starts from all that went before; rates that rise for 5 steps fall in the 6th. `.ci/run --full` takes
--- all.
function job.steps(n) return math.min(n, tonumber(os.getenv "GANYMEDE_SPEC_STEPS") or 6) end

job.full = require "spec.support.full"

--- A recipe with other words: each change is { from, to }, for all places. One that is nowhere is an error.
function job.changed(recipe, ...)
  for _, change in ipairs { ... } do
    local from, to = unpack(change)
    local changed, times = recipe:gsub(from:gsub("%p", "%%%0"), (to:gsub("%%", "%%%%")))
    if times == 0 then error(("'%s' is nowhere in the recipe:\n%s"):format(from, recipe), 2) end
    recipe = changed
  end
  return recipe
end

--- Largest |a - b| / |a| over the first `steps` losses of two runs, and where.
function job.largest_difference(a, b, steps)
  local worst, at = 0, 0
  assert(#a.loss >= steps and #b.loss >= steps, ("%d and %d losses, %d wanted"):format(#a.loss, #b.loss, steps))
  for i = 1, steps do
    local difference = math.abs(a.loss[i] - b.loss[i]) / math.abs(a.loss[i])
    if difference > worst or difference ~= difference then worst, at = difference, i end
    if difference ~= difference then break end
  end
  return worst, at
end

--- Sum over the ranks' entries of communication that match { op =, phase =, axes = }, of bytes_logical or another
-- field.
function job.traffic(stats, match, field)
  local sum = 0
  for _, rank in ipairs(stats.ranks) do
    for _, entry in ipairs(rank.comm) do
      local fits = (not match.op or entry.op == match.op) and (not match.phase or entry.phase == match.phase)
        and (not match.axes or table.concat(entry.axes, ".") == match.axes)
      if fits then sum = sum + entry[field or "bytes_logical"] end
    end
  end
  return sum
end

--- Returns a function (set) -> the run of a recipe on one rank with these settings, which is made once.
function job.serial(recipe, steps)
  local one = {}
  return function(set)
    local key = table.concat(set or {}, " ")
    one[key] = one[key] or job.run(recipe, 1, { steps = steps, set = set })
    return one[key]
  end
end

--- Two recipes with every kind of dropout, whose batches 3, 4 and 8 ranks do not divide evenly.
job.vit = [[
return {
  name = "vit", seed = 5,
  model = { type = "VisionTransformer", image_size = 28, patch_size = 7, channels = 1, classes = 10, width = 16,
            depth = 2, heads = 2, dropout = 0.1, attention_dropout = 0.1, drop_path = 0.1 },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, weight_decay = 0.05 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 5 },
  epochs = 1, clip_grad_norm = 1.0,
}
]]

job.gpt = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 256, sequence_length = 32, width = 32, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 32, stride = 32 }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]

return job
