--- What the programs of this folder share: sizes, where results go, clocks around work of the device.
--
-- run.sh tells them through the environment: GM_BENCH_WORK, the folder of results; GM_BENCH_TOY, set where sizes shall
-- be tiny (under the emulation); GM_BENCH_PYTHON, a Python for the peer, or empty.
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local common = { toy = (os.getenv "GM_BENCH_TOY" or "") ~= "" }

--- real on a GPU, tiny in a toy run.
function common.size(real, tiny)
  if common.toy then return tiny end
  return real
end

local work = os.getenv "GM_BENCH_WORK" or "."

--- Writes a result: name.json in the folder of results, at once, so that what a time limit cuts off keeps the rest.
function common.write(name, result)
  core.write_whole(work .. "/" .. name .. ".json", json.encode(result, { indent = true }) .. "\n")
end

--- Another program's result, or nil.
function common.read(name)
  local file = io.open(work .. "/" .. name .. ".json", "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return json.decode(text, name)
end

function common.median(list)
  local sorted = {}
  for i, v in ipairs(list) do sorted[i] = v end
  table.sort(sorted)
  local n = #sorted
  if n == 0 then return nil end
  return n % 2 == 1 and sorted[(n + 1) / 2] or (sorted[n / 2] + sorted[n / 2 + 1]) / 2
end

--- Seconds of one fn(), which queues work, from `rounds` rounds of `each` calls after a warm-up: the median round.
function common.seconds(fn, rounds, each)
  local gm, times = require "ganymede", {}
  for _ = 1, 2 do gm.scope(fn) end
  for i = 1, rounds do
    core.synchronize()
    local began = core.now()
    for _ = 1, each do gm.scope(fn) end
    core.synchronize()
    times[i] = (core.now() - began) / each
  end
  return common.median(times)
end

--- The device that this program was given, as core.run_op calls it.
function common.backend() return core.device().name end

function common.say(fmt, ...)
  io.stdout:write(fmt:format(...), "\n")
  io.stdout:flush()
end

--- FLOPs of training on one token (reference of llm.c and nanoGPT): 6 N + 6 L C T.
function common.flops_per_token(parameters, layers, width, length)
  return 6 * parameters + 6 * layers * width * length
end

return common
