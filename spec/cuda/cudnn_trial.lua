--- Asks the real cuDNN for graphs and plans, without a GPU, through a program of its own (dnn_trial.c).
--
--     local answers, why = trial.ask(problems, 90)          checks graphs; a line of dnn_trial.c for each problem
--     trial.ask(problems, 90, true)                         builds their plans too, for a GPU that is described to it
--
-- nil and why: there is no cuDNN here, or no such program, or this is the part of the tests under sanitizers, which the
-- program does not have.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local shell = require "spec.support.shell"

local trial = {}

-- What cuDNN wants to know of a GPU; name, version of the architecture, memory of a block.
local device = [[{"deviceName":"%s","cudaDeviceId":0,"deviceId":0,"deviceVer":%d,"driverVer":13000,]] ..
  [["maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,]] ..
  [["multiProcessorCount":%d,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":%d,]] ..
  [["reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,]] ..
  [["maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,]] ..
  [["memClockRateKHz":3201000,"l2CacheSize":62914560,"totalGlobalMem":150754820096}]]

--- By compute capability.
trial.gpus = {
  [80] = device:format("NVIDIA A100-SXM4-80GB", 800, 108, 166912),
  [90] = device:format("NVIDIA H200", 900, 132, 232448),
  [100] = device:format("NVIDIA B200", 1000, 148, 232448),
}

local folder = core.executable():match "^(.*)/" .. "/emulation/"

local function is_built()
  local file = io.open(folder .. "gm_dnn_trial", "rb") -- a packed tree has none
  if file then file:close() end
  return file ~= nil
end

function trial.ask(problems, arch, plans)
  if emulation.is_sanitized() then return nil, "gm_dnn_trial has no sanitizers" end
  if not is_built() then return nil, "gm_dnn_trial is not built here" end
  local work = shell.temporary_folder()
  shell.write(work .. "/problems", table.concat(problems, "\n") .. "\n")
  local result = shell.run(("%sgm_dnn_trial - %s %s <%s/problems"):format(shell.quote(folder),
    plans and shell.quote(folder .. "libgm_any_driver.so") or "-", shell.quote(trial.gpus[arch]), work))
  shell.remove(work)
  if result.code == 3 then return nil, "there is no cuDNN 9.19 or newer here" end
  assert(result.code == 0, result.err)
  local answers = {}
  for line in result.out:gmatch "[^\n]+" do table.insert(answers, line) end
  assert(#problems == #answers, result.out)
  return answers
end

return trial
