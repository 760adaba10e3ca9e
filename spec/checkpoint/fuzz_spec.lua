--- libFuzzer at the readers of files (fuzz.c): for some seconds here, for ten minutes in `.ci/run --full`:
-- GANYMEDE_SPEC_FUZZ=600 ./ganymede spec --slow spec/checkpoint/fuzz_spec.lua
--
-- It takes clang with its fuzzer (Debian's packages clang and libclang-rt-dev). Inputs begin with small right files; an
-- input that crashes, takes 10 s or more than 512 MiB ends it, and its bytes are shown.
-- sanitizers: no, it builds what it runs with the sanitizers
local bit = require "bit"
local shell = require "spec.support.shell"

local seconds = tonumber(os.getenv "GANYMEDE_SPEC_FUZZ") or 20

local SOURCES = "spec/checkpoint/fuzz.c host/arrays/{arrays,blocks,elements,gguf,nifti,npy,read,safetensors}.c "
  .. "host/checkpoint/{index,files}.c host/data/{array_file,token_file}.c host/files/*.c "
  .. "kernels/{status,dtype,tensor,memory,journal}.c"

local function le(n, bytes)
  local out = {}
  for i = 1, bytes do out[i], n = string.char(n % 256), math.floor(n / 256) end
  return table.concat(out)
end

-- A right file of each kind, in the order of the readers in fuzz.c.
local function seeds()
  local header = '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]},"v":{"dtype":"U8","shape":[3],'
    .. '"data_offsets":[24,27]}}'
  local npy = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
  npy = npy .. (" "):rep(118 - #npy - 1) .. "\n"
  return {
    [0] = le(#header, 8) .. header .. ("\7"):rep(27),
    "GGUF" .. le(3, 4) .. le(1, 8) .. le(1, 8) .. le(3, 8) .. "a.b" .. le(4, 4) .. le(7, 4) .. le(1, 8) .. "w"
      .. le(1, 4) .. le(4, 8) .. le(0, 4) .. le(0, 8) .. ("\0"):rep(64),
    "\147NUMPY\1\0" .. le(#npy, 2) .. npy .. ("\0"):rep(24),
    "PK\5\6" .. ("\0"):rep(18),
    le(348, 4) .. ("\0"):rep(344) .. ("\0"):rep(60),
    "\0\0\8\3\0\0\0\2\0\0\0\3\0\0\0\2\1\2\3\4\5\6\7\8\9\10\11\12",
    "GMTOKENS" .. le(1, 4) .. le(2, 4) .. le(3, 8) .. le(9, 8) .. le(1, 2) .. le(2, 2) .. le(3, 2),
    '{"files":{"r.safetensors":{"bytes":400,"header_crc32c":"01234567"}},"format":"ganymede checkpoint","meta":{},'
      .. '"tensors":{"w":{"boxes":[{"begin":64,"bytes":24,"crc32c":"01234567","file":"r.safetensors","offset":[0,0],'
      .. '"shape":[2,3]}],"dtype":"i32","shape":[2,3]}},"version":1,"world":1',
  }
end

describe("readers of files", function()
  it("crash on no input of libFuzzer, and take no more memory than their limit #slow", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local build = ("clang -std=c11 -D_GNU_SOURCE= -g1 -O1 -fsanitize=fuzzer,address,undefined "
      .. "-fno-sanitize-recover=undefined %s -ljansson -lisal -lz -larchive -lm -o %s/fuzz"):format(SOURCES, folder)
    if shell.run("echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer -x c -o /dev/null -")
      .code ~= 0 then
      return pending "there is no clang with libFuzzer: Debian's packages clang and libclang-rt-14-dev"
    end
    local built = shell.run("bash -c " .. shell.quote(build))
    assert.equal(0, built.code, built.err)
    os.execute(("mkdir %s/corpus"):format(folder))
    for kind, text in pairs(seeds()) do
      shell.write(("%s/corpus/%d"):format(folder, kind), string.char(bit.band(kind, 255)) .. text)
    end
    local result = shell.run(("cd %s && env TMPDIR=%s timeout -k 5 %d ./fuzz -max_total_time=%d -timeout=10 "
      .. "-rss_limit_mb=512 -max_len=4096 -print_final_stats=1 corpus"):format(folder, folder, seconds + 120, seconds))
    assert.equal(0, result.code, result.err:sub(-4000))
    local runs = tonumber(result.err:match "stat::number_of_executed_units: (%d+)")
    assert.is_true(runs > 100, result.err:sub(-2000))
    if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then
      print(("%d inputs, %s"):format(runs, result.err:match "[^\n]*cov: %d+[^\n]*$" or result.err:match ".*(cov: %d+)"))
    end
  end)
end)
