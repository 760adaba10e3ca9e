--- spec/bench/gpu/run.sh from end to end at toy sizes, so that no minute of a lent GPU is lost to a mistake in it:
-- under the emulation, beside a peer that answers with fixed numbers.
-- sanitizers: no, this is about scripts; the other files of spec/cuda look at the same code
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

if emulation.lacks(pending, "emulated") then return end

-- In Python's place: `-c` asks whether there is PyTorch, `-u peer.py` is the peer, whose steps take STUB_SECONDS.
local stub = [=[
#!/bin/sh
[ "$1" = -u ] || exit 0
while read -r word rest; do
  case $word in
  about) echo '{"torch": "none, a stub", "device": "none"}' ;;
  gpt) sleep "${STUB_SECONDS:-0}"; echo '{"seconds": 3, "loss": 1, "peak_bytes": 1073741824, "warm_up_seconds": 0}' ;;
  attention) echo '{"forward": 0.5, "backward": 1.5}' ;;
  *) echo "{\"error\": \"the stub knows no $word\"}" ;;
  esac
done
]=]

describe("spec/bench/gpu/run.sh", function()
  local folder

  setup(function()
    folder = shell.temporary_folder()
    shell.write(folder .. "/python", stub)
    os.execute("chmod +x " .. shell.quote(folder .. "/python"))
  end)
  teardown(function() shell.remove(folder) end)

  -- -> status, what it printed, results.json
  local function run(words, variables)
    local env = { GANYMEDE_BIN = core.executable(), PYTHON = folder .. "/python", TMPDIR = folder }
    for name, path in pairs(emulation.environment()) do env[name] = path end
    for name, value in pairs(variables or {}) do env[name] = value end
    local list = {}
    for name, value in pairs(env) do list[#list + 1] = name .. "=" .. shell.quote(value) end
    shell.run("rm -rf " .. shell.quote(folder .. "/out"))
    local result = shell.run(("env %s sh %s/spec/bench/gpu/run.sh --toy --out %s/out %s 2>&1"):format(
      table.concat(list, " "), shell.quote(GANYMEDE_ROOT), shell.quote(folder), words))
    local file = io.open(folder .. "/out/results.json", "rb")
    local results = file and json.decode(file:read "*a", "results.json")
    if file then file:close() end
    return result.code, result.out, results
  end

  local function has(text, part) assert.is_truthy(text:find(part, 1, true), ("no '%s' in: %s"):format(part, text)) end

  it("times products, steps, attention and every memory-bound op, ours and the peer's", function()
    local status, out, results = run "rates gpt32 attention kernels"
    assert.equal(0, status, out)
    assert.equal(4, #results.stages)
    assert.is_true(results.rates.product_tflops > 0 and results.rates.copy_gbs > 0)
    has(results.rates.peer_reason, "the stub knows no product")
    local gpt = results["gpt-4"]
    assert.near(4 * 16 / gpt.seconds, gpt.tokens_per_second, 1e-6 * gpt.tokens_per_second)
    assert.near(gpt.flops_per_token * gpt.tokens_per_second / 1e12, gpt.tflops, 1e-9 * gpt.tflops)
    -- 2 blocks of width 32 behind 64 + 16 embeddings, without a bias in the head; and 6 L C T for attention
    local parameters = (64 + 16) * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
    assert.equal(parameters, gpt.parameters)
    assert.equal(6 * parameters + 6 * 2 * 32 * 16, gpt.flops_per_token)
    assert.equal(3 / 2, gpt.peers.autocast.seconds) -- two steps a window
    local ratios = {}
    for i, window in ipairs(gpt.windows) do ratios[i] = 1.5 / window.seconds end
    assert.near((ratios[1] + ratios[2]) / 2, gpt.peers.autocast.ratio, 1e-9 * ratios[1])
    assert.is_true(gpt.calls.launches + gpt.calls.graphs > 0)
    for _, row in ipairs(results.attention.rows) do
      local b, s, lengths = row.batch, row.length, 0
      for i = 1, b do lengths = lengths + s - math.floor((i - 1) * s / (2 * b)) end
      local seen = { all = s ^ 2, masked = s * lengths / b }
      local pairs_seen = seen[row.kind] or s * (s + 1) / 2
      local flops = 4 * row.batch * row.heads * row.head_size * pairs_seen
      assert.near(3.5 * flops / 2 / 1e12, row.peer_both, 1e-9 * row.peer_both)
      assert.near(row.both / row.peer_both, row.ratio, 1e-9 * row.ratio)
    end
    assert.equal(8, #results.attention.rows)
    assert.same({}, { unpack(results.kernels.refused) })
    assert.is_true(#results.kernels.rows > 80)
    has(out, "PyTorch autocast 43 tokens/s, 1.00 GiB")
    has(out, "memory-bound ops: ")
  end)

  it("begins on a new GPU with what is likeliest to fail: the same bits, each product, ops", function()
    local status, out, results = run "smoke"
    assert.equal(0, status, out)
    for _, name in ipairs { "o", "lse", "dq", "dk", "dv" } do -- the emulation adds up in one order
      assert.equal(0, results.smoke.bits.default[name])
      assert.equal(0, results.smoke.bits.deterministic[name])
    end
    assert.equal(3 * (3 * 3 + 4) + 3 + 2 * 4, #results.smoke.products)
    for _, line in ipairs(results.smoke.products) do assert.is_true(line.seconds > 0, line.label) end
    has(results.ops, " passed, 0 failed")
    has(out, "attention twice, deterministic: the same bits")
  end)

  it("goes on after a stage that fails, says so, and leaves out what begins too late", function()
    local status, out, results = run("rates facts", { GANYMEDE_CUDA_DRIVER = "/nowhere/libcuda.so.1" })
    assert.equal(1, status)
    has(out, "STAGE rates: status 2")
    assert.equal(0, results.stages[2].status)
    has(out, "no NVIDIA driver here")
    status, out = run "--bound 0 facts"
    assert.equal(0, status)
    has(out, "facts: left out")
    status, out = run "speed"
    assert.equal(2, status)
    has(out, "no stage speed")
  end)

  it("sanitizes first what no GPU has run, and all files once with each tool", function()
    local tools = folder .. "/tools"
    os.execute("mkdir -p " .. shell.quote(tools))
    shell.write(tools .. "/compute-sanitizer", "#!/bin/sh\nexit 0\n")
    os.execute("chmod +x " .. shell.quote(tools .. "/compute-sanitizer"))
    local status, out, results = run("sanitize", { PATH = tools .. ":" .. os.getenv "PATH" })
    assert.equal(0, status, out)
    assert.equal("memcheck grouped_spec.lua clean", results.sanitize[1])
    assert.equal("racecheck float8_blocks_spec.lua clean", results.sanitize[4])
    local files, seen = io.popen("ls " .. shell.quote(GANYMEDE_ROOT) .. "/spec/kernels/*_spec.lua | wc -l"), {}
    assert.equal(2 * tonumber(files:read "*a"), #results.sanitize)
    files:close()
    for _, line in ipairs(results.sanitize) do
      assert.is_nil(seen[line])
      seen[line] = true
    end
  end)

  it("ends a stage at its limit", function()
    local status, out, results = run("--bound 2 gpt32", { GM_BENCH_PEERS = "autocast", STUB_SECONDS = "20" })
    assert.equal(1, status, out)
    assert.equal(124, results.stages[1].status)
    has(out, "STAGE gpt32: out of time")
  end)

  it("does all the rest too #slow", function()
    local status, out, results = run("facts gpt64 chunk64 timed64 profile float8 long ranks curves suite layers "
      .. "sanitize")
    assert.equal(0, status, out)
    assert.equal(12, #results.stages)
    for _, variant in ipairs { "-chunk", "-timed" } do assert.equal(variant, results["gpt-8" .. variant].variant) end
    assert.equal(0, results.long.growth.live)
    assert.equal(0, results.long.growth.allocations)
    assert.is_true(results.ranks.worlds["2"].largest_difference < 1e-5)
    assert.same({ 2, 0, 3 }, { results.ranks.graphs.ranks, results.ranks.graphs.largest_difference,
      results.ranks.graphs.launches })
    assert.is_true(#results.profile.lines > 10)
    assert.is_true(#results.float8.rows == 2 and results.float8.rows[2].ratio > 0)
    assert.is_true(results.float8.rows[2].layer_delayed > 0 and results.float8.rows[2].layer_blocks > 0)
    assert.is_true(#results.curves.bf16 == 6 and results.curves.difference > 0)
    has(results.suite, " passed, 0 failed")
    has(results.layers, " passed, 0 failed")
  end)
end)
