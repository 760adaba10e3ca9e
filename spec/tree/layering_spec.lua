-- Who may depend on whom (README, "How it is built inside"), kept by a machine.
local tree = require "spec.support.tree"

--- never: patterns of what #include must not name; except: files that may.
local rules = {
  { folder = "kernels", never = { "^lua", "lualib", "lauxlib", "^mpi%.h", "nccl", "host/", "bindings/" } },
  { folder = "host", never = { "^lua", "lualib", "lauxlib", "bindings/" }, except = "^host/embed%.c$" },
  { folder = "host", never = { "^mpi%.h" }, except = "^host/comm/comm_mpi%.c$" },
  { folder = "host", never = { "nccl" }, except = "^host/comm/comm_nccl%.c$" },
  { folder = "host", never = { "^cuda" } },
  { folder = "bindings", never = { "^mpi%.h", "nccl", "cuda" } },
}

local function includes(path)
  local found = {}
  for name in tree.read(path):gmatch '#%s*include%s+["<]([^">\n]+)[">]' do found[#found + 1] = name end
  return found
end

describe("the folders", function()
  it("have C files to look at", function()
    for _, folder in ipairs { "kernels", "host", "bindings" } do
      assert(#tree.files("^" .. folder .. "/.*%.[ch]$") > 3, folder .. "/ holds next to nothing")
    end
  end)

  for _, rule in ipairs(rules) do
    it(("%s/ includes no %s"):format(rule.folder, table.concat(rule.never, " ")), function()
      local wrong = {}
      for _, path in ipairs(tree.files("^" .. rule.folder .. "/.*%.[ch]$", "^" .. rule.folder .. "/.*%.cuh?$")) do
        if not (rule.except and path:find(rule.except)) then
          for _, name in ipairs(includes(path)) do
            for _, word in ipairs(rule.never) do
              if name:find(word) then wrong[#wrong + 1] = ("%s includes %s"):format(path, name) end
            end
          end
        end
      end
      tree.none(wrong)
    end)
  end

  -- From the ground up: a folder of host/ includes those before it, and none behind it.
  it("of host/ stand on each other in one order", function()
    local floors = { "lapack", "mesh", "files", "arrays", "text", "tier", "image", "data", "loopback", "observe",
      "plan", "comm", "job", "rank", "checkpoint", "autograd", "parallel", "gradients", "optim", "pipeline" }
    local height = {}
    for i, folder in ipairs(floors) do height[folder] = i end
    local wrong, arrows = {}, 0
    for _, path in ipairs(tree.files "^host/.*%.[ch]$") do
      local from = path:match "^host/(%a+)/"
      if from and not height[from] then wrong[#wrong + 1] = path .. ": this spec does not place its folder" end
      for _, name in ipairs(from and includes(path) or {}) do
        local to = tree.resolve(path, name):match "^host/(%a+)"
        if to and to ~= from then
          arrows = arrows + 1
          if not height[to] or height[to] >= (height[from] or 0) then
            wrong[#wrong + 1] = ("%s includes %s, which lies above it"):format(path, name)
          end
        end
      end
    end
    assert(arrows > 50, "hardly an include was understood")
    tree.none(wrong)
  end)

  -- start.c opens and closes what all of them need, and so stands above them.
  it("of kernels/cuda/ stand on each other in one order, and its ops run in no circle", function()
    local height = { runtime = 1, common = 2, products = 3, blas = 4, dnn = 4, ops = 5 }
    local wrong, arrows, onto = {}, 0, {}
    for _, path in ipairs(tree.files("^kernels/cuda/.*%.[ch]$", "^kernels/cuda/.*%.cuh?$")) do
      local from, op = path:match "^kernels/cuda/(%a+)/", path:match "^kernels/cuda/ops/(%a+)/"
      if from and not height[from] then wrong[#wrong + 1] = path .. ": this spec does not place its folder" end
      for _, name in ipairs(from and includes(path) or {}) do
        local there = tree.resolve(path, name)
        local to, other = there:match "^kernels/cuda/(%a+)/", there:match "^kernels/cuda/ops/(%a+)/"
        if to and to ~= from then
          arrows = arrows + 1
          if height[to] >= (height[from] or 0) then
            wrong[#wrong + 1] = ("%s includes %s, which lies above it"):format(path, name)
          end
        elseif op and other and op ~= other then
          onto[op] = onto[op] or {}
          onto[op][other] = path
        end
      end
    end
    local function reaches(from, to, seen)
      if from == to then return true end
      if seen[from] then return false end
      seen[from] = true
      for other in pairs(onto[from] or {}) do
        if reaches(other, to, seen) then return true end
      end
    end
    for op, others in pairs(onto) do
      for other, path in pairs(others) do
        if reaches(other, op, {}) then
          wrong[#wrong + 1] = ("%s includes ops/%s, which includes it"):format(path, other)
        end
      end
    end
    assert(arrows > 50, "hardly an include was understood")
    tree.none(wrong)
  end)

  it("host/embed.c includes bindings/open.h and nothing else of bindings/", function()
    local wrong = {}
    for _, name in ipairs(includes "host/embed.c") do
      if name:find "bindings/" and not name:find "bindings/open%.h$" then wrong[#wrong + 1] = name end
    end
    tree.none(wrong)
  end)

  -- So that bytes may one day rest elsewhere: on the host, on a disk, on other ranks.
  it("reach a storage's bytes through gm_tensor_data and gm_elements alone", function()
    local allowed = { ["kernels/element.h"] = true, ["kernels/tensor.c"] = true, ["kernels/meta/known.c"] = true,
      ["host/tier/tier.c"] = true, ["host/checkpoint/apart.c"] = true } -- which bring them there
    local wrong, read = {}, 0
    for _, path in ipairs(tree.files("%.[ch]$", "%.cuh?$")) do
      local code = path:find "^spec/" and "" or tree.c_code(tree.read(path))
      for _ in code:gmatch "storage%s*%->%s*data%f[^%w_]" do
        read = read + 1
        if not allowed[path] then wrong[#wrong + 1] = path end
      end
    end
    assert(read >= 2, "hardly a file was understood")
    tree.none(wrong)
  end)

  it("bindings/ run ops through gm_apply, which alone chooses forms that communicate", function()
    local wrong, calls = {}, 0
    for _, path in ipairs(tree.files "^bindings/.*%.[ch]$") do
      local code = tree.c_code(tree.read(path))
      for name in code:gmatch "%f[%w_](gm_sharded_[%w_]+)%s*%(" do wrong[#wrong + 1] = path .. " calls " .. name end
      for _ in code:gmatch "%f[%w_]gm_apply[%w_]*%s*%(" do calls = calls + 1 end
    end
    assert(calls > 20, "hardly a call was understood")
    tree.none(wrong)
  end)

  it("kernels/ and host/ neither exit, nor print, nor jump (main.c and embed.c aside)", function()
    local never = { "exit", "_exit", "abort", "longjmp", "printf", "puts", "putchar", "perror" }
    local allowed = { ["host/job/signals.c"] = "_exit", -- in a signal handler, after all else has failed
      ["host/image/jpeg.c"] = "longjmp" } -- out of libjpeg, which knows no other way, to the call of it in this file
    local wrong = {}
    for _, path in ipairs(tree.files("^kernels/.*%.[ch]$", "^host/.*%.[ch]$")) do
      if path ~= "host/main.c" and path ~= "host/embed.c" then
        local code = tree.c_code(tree.read(path))
        for _, name in ipairs(never) do
          if allowed[path] ~= name and code:find("%f[%w_]" .. name .. "%s*%(") then
            wrong[#wrong + 1] = ("%s calls %s"):format(path, name)
          end
        end
      end
    end
    tree.none(wrong)
  end)

  it("recipes use what is public, and neither ffi nor the collector", function()
    local wrong = {}
    for _, path in ipairs(tree.files "^recipes/.*%.lua$") do
      local text = tree.read(path)
      for _, word in ipairs { "[\"']ffi[\"']", "collectgarbage", "ganymede%.core", "ganymede%.cli", ":release%(" } do
        if text:find(word) then wrong[#wrong + 1] = ("%s contains %s"):format(path, text:match(word)) end
      end
      for module in text:gmatch "require%s*%(?%s*[\"']([^\"']+)" do
        if not module:find "^ganymede%f[.%z]" and not module:find "^recipes%." then
          wrong[#wrong + 1] = ("%s requires %s"):format(path, module)
        end
      end
    end
    tree.none(wrong)
  end)

  -- From the ground up: a folder of lua/ganymede/ requires those before it, also late, inside functions, and none
  -- behind it. colossal.lua, which lies above train/, and init.lua, which lists what is public, are files. The registry
  -- (base/) names modules above it as text: those that register what it is asked for.
  it("of lua/ganymede/ stand on each other in one order", function()
    local floors = { "base", "cluster", "text", "tensor", "job", "nn", "metrics", "models", "data", "pipeline",
      "lr_scheduler", "optim", "schedules", "observe", "config", "checkpoint", "hub", "hooks", "recompute", "train",
      "generation", "colossal", "plan", "init", "reference", "repl", "cli" }
    local allowed = { -- what may look up, and why
      -- Colossal-AI's gpc.load_config: the context takes up a recipe, which is made of everything
      ["lua/ganymede/job/context.lua"] = { config = true },
    }
    local height = {}
    for i, folder in ipairs(floors) do height[folder] = i end
    local wrong, arrows = {}, 0
    for _, path in ipairs(tree.files "^lua/ganymede/.*%.lua$") do
      local from = path:match "^lua/ganymede/([%w_]+)"
      if not height[from] then wrong[#wrong + 1] = path .. ": this spec does not place its folder" end
      for module in tree.lua_code(tree.read(path)):gmatch "%f[%w]require%s*%(?%s*[\"'](ganymede[%w_.]*)" do
        local to = module:match "^ganymede%.([%w_]+)" or "init"
        if to ~= from and to ~= "core" then
          arrows = arrows + 1
          local may = (allowed[path] or {})[to]
          if not may and (not height[to] or height[to] >= (height[from] or 0)) then
            wrong[#wrong + 1] = ("%s requires %s, which lies above it"):format(path, module)
          end
        end
      end
    end
    assert(arrows > 300, "hardly a require was understood")
    tree.none(wrong)
  end)

  -- Files that need each other cannot be read one after the other.
  it("of lua/ganymede/ have no circle of files", function()
    local needs, wrong = {}, {}
    for _, path in ipairs(tree.files "^lua/ganymede/.*%.lua$") do
      local name = path:match "^lua/(.*)%.lua$":gsub("/init$", ""):gsub("/", ".")
      needs[name] = {}
      for module in tree.lua_code(tree.read(path)):gmatch "%f[%w]require%s*%(?%s*[\"'](ganymede[%w_.]*)" do
        table.insert(needs[name], module)
      end
    end
    local state = {}
    local function visit(name, trail)
      if state[name] == "open" then wrong[#wrong + 1] = trail .. " -> " .. name end
      if state[name] or not needs[name] then return end
      state[name] = "open"
      for _, module in ipairs(needs[name]) do visit(module, trail .. " -> " .. module) end
      state[name] = "done"
    end
    local names = {}
    for name in pairs(needs) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do visit(name, name) end
    assert(#names > 150, "hardly a file was understood")
    tree.none(wrong)
  end)

  it("lua/ does not lean on recipes or specs", function()
    local wrong = {}
    for _, path in ipairs(tree.files "^lua/.*%.lua$") do
      for module in tree.read(path):gmatch "%f[%w]require%s*%(?%s*[\"']([^\"']+)" do
        local tests = module:find "^spec%." and not path:find "^lua/ganymede/cli/%a+%.lua$"
        if tests or module:find "^recipes" then wrong[#wrong + 1] = ("%s requires %s"):format(path, module) end
      end
    end
    tree.none(wrong)
  end)
end)
