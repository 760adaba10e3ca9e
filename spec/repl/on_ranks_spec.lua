--- The repl on 4 ranks, on a terminal (tmux) and typed as a user would, mistakes included.
--
-- docs/repl_on_ranks.txt is a transcript of the session below. To write it again:
--
--     GANYMEDE_TRANSCRIPT=docs/repl_on_ranks.txt ./ganymede spec spec/repl/on_ranks_spec.lua
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local tmux = require "spec.repl.tmux"

local sum = "gm.comm.all_reduce(x)"

-- What lies in the folder of the session.
local files = {
  ["mine.lua"] = "double = function(x) return 2 * x end\n",
  ["points.lua"] = [[
return {
  name = "points", model = { type = "MLP", inputs = 4, hidden = { 8 }, classes = 3 }, epochs = 1,
  data = { train = { type = "Synthetic", length = 64, shape = { 4 }, classes = 3 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]],
}

-- What is typed, and what must be shown then (plain texts, each in turn). prompt: what follows; keys: what is pressed
-- in place of Enter, but Ctrl-C after it, when rank 1 has said that the line has begun.
local session = {
  { "6 * 7", { "[0-3] 42" } },
  { "rank", { "[0] 0", "[1] 1", "[2] 2", "[3] 3" } },
  { "rank % 2", { "[0,2] 0", "[1,3] 1" } },
  { "@2 rank + 40", { "[2] 42" } },
  { "@0,2-3 rank * 2", { "[0] 0", "[2] 4", "[3] 6" } },
  { "@0,7 rank", { "there is no rank 7; they are 0 to 3" } },
  { "for i = 1, 2 do print(rank % 2, i) end", { "[0,2] 0 1", "0 2", "[1,3] 1 1", "1 2" } },
  { 'print("I am", rank)', { "[0] I am\t0", "[1] I am\t1", "[2] I am\t2", "[3] I am\t3" } },
  { '@0 io.write "no line end"', { "[0] no line end", "[0] true" } },
  { "x = gm.ones { 2 }", {} },
  { sum, { "[0-3] tensor f32 (2)", "[4.0000, 4.0000]" } },
  { "@1 " .. sum, { "[1] ", "only this rank runs this" } },
  { "@9 rank", { "there is no rank 9; they are 0 to 3" } },
  { 'if rank == 2 then error "no luck" end ' .. sum, { "[2] line:1: no luck" } },
  { sum, { "[0-3] tensor f32 (2)" } },
  { "?x:item", { "[0-3] tensor:item: a method of tensors", "x:item()",
    "collective where the tensor is cut or partial" } },
  { ":load mine.lua", {} },
  { "double(rank)", { "[0] 0", "[1] 2", "[2] 4", "[3] 6" } },
  { "?double", { "[0-3] double: a function [mine.lua:1]" } },
  { ":run points.lua steps=2", { "[0-3] 2 steps, last loss" } },
  { "@0,2 trainer.step", { "[0,2] 2" } },
  { "nn.Linear { input = 3, outputs = 2 }", { "[0-3] ", "did you mean 'inputs'?" } },
  { "if rank == 0 then gm.comm.broadcast(x, nil, 0) else " .. sum .. " end", { "broadcast", "all_reduce" },
    any_order = true },
  { "for i = 1, 2 do", {}, prompt = ">> " },
  { "y = (y or 0) + i end", {} },
  { "y", { "[0-3] 3" } },
  { "gm.ops.log_soft", { "gm.ops.log_softmax(" }, keys = "Tab", prompt = "(" },
  { "x)", { "[0-3] tensor f32 (2)" } },
  { 'if rank == 1 then io.write "begun\\n" end while true do end', { "[0-3] interrupted" }, keys = "C-c" },
  { 'if rank == 1 then io.write "begun\\n" while true do end end ' .. sum, { "interrupted" }, keys = "C-c" },
  { sum, { "[0-3] tensor f32 (2)" } },
  { "wrong wrong", { "[0-3] line:1: " } },
  { 'if rank == 3 then os.execute "kill -9 $PPID" end', { "ganymede: rank 3: killed by signal 9 (Killed)" },
    prompt = "$ " },
  { "echo status $?", { "status 6" }, prompt = "$ " },
}

-- Parts of what was shown, in order or not.
local function check_shown(shown, parts, any_order, typed)
  local from = 1
  for _, part in ipairs(parts) do
    part = part:gsub("\t", " ")
    local _, stop = shown:gsub("%s+", " "):find(part:gsub("%s+", " "), from, true)
    if not stop then error(("%s: %q is not in, or not in that order:\n%s"):format(typed, part, shown), 2) end
    if not any_order then from = stop + 1 end
  end
end

local function play(terminal, step)
  local typed, parts = step[1], step[2]
  local before = terminal:screen()
  terminal:type(typed)
  local prompt = step.prompt or "> "
  if step.keys == "C-c" then
    terminal:key "Enter"
    terminal:wait_for("[1] begun", before)
  end
  terminal:key(step.keys or "Enter")
  local shown = terminal:wait(prompt, before)
  local after = shown:sub(#before + 1)
  check_shown(after, parts, step.any_order, typed)
end

describe("ganymede repl -n 4 on a terminal", function()
  local folder, terminal
  before_each(function()
    folder = shell.temporary_folder()
    for name, text in pairs(files) do shell.write(folder .. "/" .. name, text) end
    terminal = tmux.open(folder, { PATH = shell.executable():match "^(.*)/" .. ":" .. os.getenv "PATH",
      GANYMEDE_ROOT = GANYMEDE_ROOT, GANYMEDE_HISTORY = "", TMPDIR = folder })
  end)
  after_each(function()
    terminal:close()
    shell.remove(folder)
  end)

  it("answers, survives mistakes, and names the rank that died", function()
    local before = terminal:screen()
    terminal:type ("ganymede repl -n 4 --threads 1 --device " .. device.name())
    terminal:key "Enter"
    terminal:wait("> ", before)
    for _, step in ipairs(session) do play(terminal, step) end
    local path = os.getenv "GANYMEDE_TRANSCRIPT"
    if path then shell.write(path, terminal:screen():gsub("%s*%$?%s*$", "") .. "\n") end
    assert.equal("", shell.run("ls -d " .. folder .. "/ganymede-* 2>/dev/null").out)
  end)

  it("leaves with Ctrl-D", function()
    local before = terminal:screen()
    terminal:type "ganymede repl -n 2 --threads 1; echo status $?"
    terminal:key "Enter"
    terminal:wait("> ", before)
    terminal:key "C-d"
    terminal:wait_for("status 0", "$ ")
  end)
end)

describe("docs/repl_on_ranks.txt", function()
  it("is a transcript of this session", function()
    local text = shell.read "docs/repl_on_ranks.txt"
    local from = 1
    for _, step in ipairs(session) do
      local _, stop = text:find(step[1], from, true)
      if not stop then error(("%q is not in it, or not in that order; see the head of this spec"):format(step[1])) end
      from = stop + 1
    end
  end)
end)
